#include "common/bench/recorded.h"

#include "common/base/mem.h"
#include "common/policy/recorded_way.h"

enum { WAY_MAX = 512 };

static int recorded_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                            int tokens, struct err *err);
static int recorded_review(struct drafter *drafter, struct draft_tree *tree, int leaf, int *agreed, struct err *err);

static const struct drafter_class recorded_class = {
    .name = "recorded", .propose = recorded_propose, .review = recorded_review};

void recorded_open(struct recorded_drafter *mine, const struct recording *all, int number)
{
    *mine = (struct recorded_drafter){.base = {.class = &recorded_class, .number = number}, .all = all};
}

void recorded_begin(struct recorded_drafter *mine, const struct recorded_text *text, int at)
{
    mine->text = text;
    mine->at = at;
    mine->from = (text->position + (size_t)at) * (size_t)mine->all->drafters + (size_t)mine->base.number;
    mine->first = mine->last = 0;
    mine->closed_us = 0;
    mine->closed_bytes = 0;
}

double recorded_us(const struct recorded_drafter *mine)
{
    const double *us = mine->all->draft_us + mine->all->draft[mine->from].row;
    return mine->closed_us + (us[mine->last] - (mine->first ? us[mine->first] : 0));
}

int64_t recorded_bytes(const struct recorded_drafter *mine)
{
    const int64_t *bytes = mine->all->draft_bytes + mine->all->draft[mine->from].row;
    return mine->closed_bytes + bytes[mine->last] - (mine->first ? bytes[mine->first] : 0);
}

/* Adds the cost of tokens of a recorded draft: those after token `first`, up to `last`. */
static void charge(struct recorded_drafter *mine, size_t draft, int first, int last)
{
    if (draft != mine->from || first > mine->last) {
        mine->closed_us = recorded_us(mine);
        mine->closed_bytes = recorded_bytes(mine);
        mine->from = draft;
        mine->first = mine->last = first;
    }
    mine->last = last > mine->last ? last : mine->last;
}

static struct recorded_way recorded_path(const struct recorded_drafter *mine, const struct draft_tree *tree, int node,
                                         int32_t *token)
{
    return (struct recorded_way){mine->all, mine->text, mine->at, mine->base.number, token,
                                 draft_tree_path(tree, node, token, WAY_MAX)};
}

/* Returns whether the recording contains what the drafter proposes after this node. */
static bool continues(const struct recorded_drafter *mine, const struct recorded_node *found)
{
    return !mine->all->trees || mine->all->asked[mine->all->draft[found->draft].row + (size_t)found->at];
}

/* Returns whether the recording contains `tokens` more tokens after this node, or shows that the draft ended before. */
static bool reaches(const struct recorded_drafter *mine, const struct recorded_node *found, int tokens)
{
    const struct recorded_draft *draft = &mine->all->draft[found->draft];
    return found->at + tokens <= draft->n - 1 || draft->n - 1 < mine->all->length;
}

/* Finds the recorded node whose children are the drafter's proposals after `node`. After its own tokens a drafter with states
 * continues its recorded draft from the root, with the costs of those levels. A drafter that looks up text is taken at the
 * latest position that the leaf's path reaches, since a longer draft requested at once may continue differently; for trees,
 * which were requested leaf by leaf, at the earliest one. If neither is recorded, the result is a guess: the position that
 * many tokens later in the text. tokens: the number of recorded tokens required after
 * the node; 0: the node alone suffices. */
static struct recorded_node find(const struct recorded_drafter *mine, const struct draft_tree *tree, int node, int tokens)
{
    int32_t token[WAY_MAX];
    struct recorded_node found;
    const struct recorded_way way = recorded_path(mine, tree, node, token);
    const int right = recorded_way_matches(&way);
    const bool own = node >= 0 && tree->drafter[node] == mine->base.number, oldest = own && mine->all->trees;
    if (own && !mine->all->trees && mine->own_states && recorded_way_find(&way, 0, &found) && reaches(mine, &found, tokens))
        return found;
    for (int i = 0; i <= right; i++)
        if (recorded_way_find(&way, oldest ? i : right - i, &found) && (!mine->guesses || !tokens || continues(mine, &found)))
            return found;
    return recorded_way_guess(&way);
}

size_t recorded_row(const struct recorded_drafter *mine, const struct draft_tree *tree, int node)
{
    struct recorded_node recorded = find(mine, tree, node, 0);
    return mine->all->draft[recorded.draft].row + (size_t)recorded.at;
}

bool recorded_is_own(const struct recorded_drafter *mine, const struct draft_tree *tree)
{
    for (int node = 0; node < tree->nodes; node++) {
        int32_t token[WAY_MAX];
        struct recorded_node found;
        const struct recorded_way way = recorded_path(mine, tree, node, token);
        if (!recorded_way_find(&way, 0, &found) || found.at != node + 1)
            return false;
    }
    return true;
}

static int add(const struct recorded_drafter *mine, struct draft_tree *tree, int parent, size_t row)
{
    const struct recording *all = mine->all;
    int before = tree->nodes;
    int node = draft_tree_add(tree, parent, all->token[row], all->log_probability[row], mine->base.number);
    if (node == before)
        tree->match[node] = all->match[row];
    return node;
}

/* Adds up to `tokens` tokens of a recorded chain below a leaf. */
static int extend_chain(struct recorded_drafter *mine, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                        int tokens, struct err *err)
{
    const struct recording *all = mine->all;
    int before = tree->nodes, node = leaf[0].node;
    if (leaves != 1 || leaf[0].siblings != 1 || (all->drafters == 1 && node != before - 1))
        return err_set(err, ERR_INPUT, "the policy drafts a tree, but the stream records chains only; record with --tree, or "
                       "replay a policy that drafts chains");
    struct recorded_node recorded = find(mine, tree, node, tokens);
    const struct recorded_draft *draft = &all->draft[recorded.draft];
    if (recorded.at + tokens > draft->n - 1 && draft->n - 1 == all->length)
        return err_set(err, ERR_INPUT, "the policy drafts %d tokens, but only drafts of up to %d are recorded; record with "
                       "--record-length %d, or set a maximum with -K", recorded.at + tokens, all->length, recorded.at + tokens);
    int at = recorded.at;
    while (at < recorded.at + tokens && at + 1 < draft->n) {
        node = add(mine, tree, node, draft->row + (size_t)++at);
        if (node < 0)
            break;
    }
    charge(mine, recorded.draft, recorded.at, at);
    return tree->nodes - before;
}

/* Adds the recorded children of a leaf, as many as requested, and writes them to next[room] as new leaves. Returns their
 * number, or -1. */
static int extend_leaf(struct recorded_drafter *mine, struct draft_tree *tree, const struct draft_leaf *leaf,
                       struct draft_leaf *next, int room, struct err *err)
{
    const struct recording *all = mine->all;
    const struct recorded_node recorded = find(mine, tree, leaf->node, 1);
    const struct recorded_draft *draft = &all->draft[recorded.draft];
    int asked = all->asked[draft->row + (size_t)recorded.at], found = 0;
    for (int k = recorded.at + 1; k < draft->n && found < leaf->siblings && found < room; k++) {
        if (all->parent[draft->row + (size_t)k] != recorded.at)
            continue;
        charge(mine, recorded.draft, recorded.at, k);
        int node = add(mine, tree, leaf->node, draft->row + (size_t)k);
        if (node < 0)
            return found;
        next[found++] = (struct draft_leaf){node, 1};
    }
    if (found < leaf->siblings && found < room && (!asked || (found == asked && asked < leaf->siblings)))
        return err_set(err, ERR_INPUT, "the tree needs %d tokens after a node of depth %d, but only %d were recorded; record "
                       "with a larger tree", leaf->siblings,
                       leaf->node < 0 ? 0 : tree->depth[leaf->node], asked);
    return found;
}

/* Drafts one level. Its nodes, new or already present, are written to next[tree->capacity]. Returns their number, or -1. */
static int extend_level(struct recorded_drafter *mine, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                        struct draft_leaf *next, struct err *err)
{
    int found = 0;
    for (int at = 0; at < leaves; at++) {
        int children = extend_leaf(mine, tree, &leaf[at], next + found, tree->capacity - found, err);
        if (children < 0)
            return -1;
        found += children;
    }
    return found;
}

static int recorded_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                            int tokens, struct err *err)
{
    struct recorded_drafter *mine = (struct recorded_drafter *)drafter;
    struct draft_leaf *list[2] = {NULL, NULL};
    int before = tree->nodes;
    if (!mine->all->trees)
        return extend_chain(mine, tree, leaf, leaves, tokens, err);
    for (int which = 0; which < 2; which++)
        if (!(list[which] = mem_alloc((size_t)tree->capacity, sizeof **list, err)))
            leaves = -1;
    for (int level = 0; level < tokens && leaves > 0; level++) {
        leaves = extend_level(mine, tree, leaf, leaves, list[level & 1], err);
        leaf = list[level & 1];
    }
    mem_free(&list[0]);
    mem_free(&list[1]);
    return leaves < 0 ? -1 : tree->nodes - before;
}

/* Returns the child of a node that carries the token; -1: none. */
static int child_with(const struct draft_tree *tree, int node, int32_t token)
{
    for (int child = node + 1; child < tree->nodes; child++)
        if (tree->parent[child] == node && tree->token[child] == token)
            return child;
    return -1;
}

/* Reviews a draft: follows the drafter's own choices, which are the first recorded children, as long as the tree has them;
 * then adds the next choice. */
static int recorded_review(struct drafter *drafter, struct draft_tree *tree, int leaf, int *agreed, struct err *err)
{
    struct recorded_drafter *mine = (struct recorded_drafter *)drafter;
    const struct recording *all = mine->all;
    int32_t way[WAY_MAX];
    int kept = 0, at = leaf, choice = 0, last;
    size_t row = 0;
    struct recorded_node recorded = find(mine, tree, leaf, 1);
    if ((choice = recorded_child(all, &all->draft[recorded.draft], recorded.at, -1)))
        charge(mine, recorded.draft, recorded.at, choice);
    while (choice && kept < WAY_MAX) {
        row = all->draft[recorded.draft].row + (size_t)choice;
        int next = child_with(tree, at, all->token[row]);
        if (next < 0)
            break;
        tree->reviewer[next] = mine->base.number;
        tree->log_probability[next] = all->log_probability[row];
        way[kept++] = next;
        at = next;
        recorded = find(mine, tree, at, 1);
        choice = recorded_child(all, &all->draft[recorded.draft], recorded.at, -1);
    }
    *agreed = kept;
    if (draft_tree_follow(tree, leaf, way, kept, &last, err))
        return -1;
    return choice && add(mine, tree, last, row) >= 0;
}
