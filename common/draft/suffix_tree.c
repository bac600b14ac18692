#include "common/draft/suffix_tree.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

enum { SLOTS_FIRST = 1024, CHILDREN_MAX = 64 };

static int edge_tokens(const struct suffix_tree *tree, int32_t node)
{
    const struct suffix_node *here = &tree->node[node];
    return (here->end < tree->tokens ? here->end : tree->tokens) - here->start;
}

static uint32_t hash(int32_t parent, int32_t token)
{
    uint64_t mixed = ((uint64_t)(uint32_t)parent << 32 | (uint32_t)token) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(mixed >> 32);
}

/* Returns the hash slot of the child that begins with the token, or the empty slot for it. */
static uint32_t find_slot(const struct suffix_tree *tree, int32_t parent, int32_t token)
{
    uint32_t at = hash(parent, token) & (tree->slots - 1);
    for (int32_t node; (node = tree->slot[at]); at = (at + 1) & (tree->slots - 1))
        if (tree->node[node].parent == parent && tree->token[tree->node[node].start] == token)
            break;
    return at;
}

static int32_t find_child(const struct suffix_tree *tree, int32_t parent, int32_t token)
{
    return tree->node[parent].child ? tree->slot[find_slot(tree, parent, token)] : 0;
}

static int resize_slots(struct suffix_tree *tree, size_t slots, struct err *err)
{
    int32_t *slot = mem_alloc(slots, sizeof *slot, err);
    if (!slot)
        return -1;
    mem_free(&tree->slot);
    tree->slot = slot;
    tree->slots = (uint32_t)slots;
    for (int32_t node = 1; node < tree->nodes; node++)
        tree->slot[find_slot(tree, tree->node[node].parent, tree->token[tree->node[node].start])] = node;
    return 0;
}

int suffix_tree_init(struct suffix_tree *tree, int depth, struct err *err)
{
    struct suffix_tree made = {.depth = depth, .nodes = 1, .limit = SUFFIX_TOKENS_MAX};
    if (mem_grow(&made.own_node, &made.node_room, 1, sizeof *made.own_node, err))
        return -1;
    made.node = made.own_node;
    if (resize_slots(&made, SLOTS_FIRST, err)) {
        suffix_tree_free(&made);
        return -1;
    }
    *tree = made;
    return 0;
}

void suffix_tree_free(struct suffix_tree *tree)
{
    mem_free(&tree->own_token);
    mem_free(&tree->own_node);
    mem_free(&tree->slot);
    *tree = (struct suffix_tree){0};
}

void suffix_tree_clear(struct suffix_tree *tree)
{
    tree->tokens = tree->cursors = 0;
    tree->nodes = 1;
    tree->own_node[0] = (struct suffix_node){0};
    for (uint32_t at = 0; at < tree->slots; at++)
        tree->slot[at] = 0;
}

size_t suffix_tree_bytes(const struct suffix_tree *tree)
{
    return (size_t)tree->tokens * sizeof *tree->token + (size_t)tree->nodes * sizeof *tree->node +
           (size_t)tree->slots * sizeof *tree->slot;
}

/* ---- growing ---- */

/* Adds a leaf below `parent` for a suffix that continues with the last token as no suffix did before. */
static void add_leaf(struct suffix_tree *tree, int32_t parent, int length)
{
    const int last = tree->tokens - 1, end = last - length + tree->depth;
    struct suffix_node *above = &tree->own_node[parent];
    const int32_t leaf = tree->nodes++;
    tree->own_node[leaf] = (struct suffix_node){.parent = parent, .start = last, .end = end < tree->limit ? end : tree->limit,
                                                .count = 1, .sibling = above->child};
    if (above->child)
        tree->own_node[above->child].before = leaf;
    above->child = leaf;
    above->followed++;
    tree->slot[find_slot(tree, parent, tree->token[last])] = leaf;
}

/* Splits an edge at the cursor, and moves the cursor to the new node. Later cursors in the list are shorter suffixes: those
 * on this edge are nearer to the root and have not reached what is now below the node. Earlier cursors are longer suffixes:
 * they are past the node, and as the text continues, none of them is still on this edge. */
static void split(struct suffix_tree *tree, int which)
{
    struct suffix_cursor *cursor = &tree->cursor[which];
    const int32_t below = cursor->node, node = tree->nodes++;
    const int at = cursor->at;
    struct suffix_node *lower = &tree->own_node[below], *upper = &tree->own_node[node];
    tree->slot[find_slot(tree, lower->parent, tree->token[lower->start])] = node;
    *upper = *lower;
    upper->end = lower->start + at;
    upper->child = below;
    if (upper->before)
        tree->own_node[upper->before].sibling = node;
    else
        tree->own_node[upper->parent].child = node;
    if (upper->sibling)
        tree->own_node[upper->sibling].before = node;
    lower->parent = node;
    lower->start += at;
    lower->sibling = lower->before = 0;
    for (int other = which; other < tree->cursors; other++)
        if (tree->cursor[other].node == below) {
            tree->cursor[other].node = node;
            lower->count--;
        }
    upper->followed = lower->count;
    tree->slot[find_slot(tree, node, tree->token[lower->start])] = below;
}

/* Advances a cursor over the last token. Returns false if no earlier suffix continued so; the suffix then has got a leaf of
 * its own. */
static bool advance(struct suffix_tree *tree, int which, int32_t token)
{
    struct suffix_cursor *cursor = &tree->cursor[which];
    const struct suffix_node *here = &tree->node[cursor->node];
    if (cursor->at < edge_tokens(tree, cursor->node)) {
        if (tree->token[here->start + cursor->at] == token) {
            cursor->at++;
            cursor->length++;
            return true;
        }
        split(tree, which);
    } else {
        int32_t child = find_child(tree, cursor->node, token);
        if (child) {
            tree->own_node[cursor->node].followed++;
            tree->own_node[child].count++;
            *cursor = (struct suffix_cursor){child, 1, cursor->length + 1};
            return true;
        }
    }
    add_leaf(tree, cursor->node, cursor->length);
    return false;
}

/* Allocates memory for `more` further nodes. */
static int reserve_nodes(struct suffix_tree *tree, int more, struct err *err)
{
    const size_t nodes = (size_t)tree->nodes + (size_t)more;
    size_t slots = tree->slots;
    if (mem_grow(&tree->own_node, &tree->node_room, nodes, sizeof *tree->own_node, err))
        return -1;
    tree->node = tree->own_node;
    while (2 * nodes > slots)
        slots *= 2;
    return slots > tree->slots ? resize_slots(tree, slots, err) : 0;
}

int suffix_tree_put(struct suffix_tree *tree, int32_t token, struct err *err)
{
    int kept = 0;
    if (tree->tokens >= SUFFIX_TOKENS_MAX)
        return err_set(err, ERR_INPUT, "the corpus has more than %d tokens, the limit; use fewer texts", SUFFIX_TOKENS_MAX);
    if (mem_grow(&tree->own_token, &tree->token_room, (size_t)tree->tokens + 1, sizeof *tree->own_token, err))
        return -1;
    tree->token = tree->own_token;
    if (reserve_nodes(tree, 2 * (tree->cursors + 1), err))
        return -1;
    tree->own_token[tree->tokens++] = token;
    tree->cursor[tree->cursors++] = (struct suffix_cursor){0, 0, 0};
    for (int which = 0; which < tree->cursors; which++)
        if (!advance(tree, which, token))
            tree->cursor[which].length = 0;
    for (int which = 0; which < tree->cursors; which++)
        if (tree->cursor[which].length && tree->cursor[which].length < tree->depth)
            tree->cursor[kept++] = tree->cursor[which];
    tree->cursors = kept;
    return 0;
}

/* Ends the text: makes a node wherever one of its suffixes ends within an edge. The subtree of such a node has not followed
 * this suffix, so later texts must not count it there. */
static int end_text(struct suffix_tree *tree, struct err *err)
{
    if (reserve_nodes(tree, tree->cursors, err))
        return -1;
    for (int which = 0; which < tree->cursors; which++)
        if (tree->cursor[which].at < edge_tokens(tree, tree->cursor[which].node))
            split(tree, which);
    tree->cursors = 0;
    return 0;
}

int suffix_tree_add(struct suffix_tree *tree, const int32_t *token, int count, struct err *err)
{
    int rc = count > SUFFIX_TOKENS_MAX - tree->tokens
        ? err_set(err, ERR_INPUT, "the corpus has more than %d tokens, the limit; use fewer texts", SUFFIX_TOKENS_MAX) : 0;
    tree->limit = rc ? tree->limit : tree->tokens + count;
    for (int at = 0; !rc && at < count; at++)
        rc = suffix_tree_put(tree, token[at], err);
    rc = rc ? rc : end_text(tree, err);
    tree->limit = SUFFIX_TOKENS_MAX;
    return rc;
}

/* ---- sorted ---- */

struct child { int32_t node, count, order; };

static int compare_children(const void *a, const void *b)
{
    const struct child *left = a, *right = b;
    if (left->count != right->count)
        return left->count > right->count ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

/* Sorts all children by frequency. Equally frequent children keep their order, youngest first, because `order` makes the
 * sort stable. */
int suffix_tree_sort(struct suffix_tree *tree, struct err *err)
{
    struct child *child = NULL;
    size_t room = 0;
    for (int32_t parent = 0; parent < tree->nodes; parent++) {
        size_t count = 0;
        for (int32_t node = tree->node[parent].child; node; node = tree->node[node].sibling) {
            if (mem_grow(&child, &room, count + 1, sizeof *child, err)) {
                mem_free(&child);
                return -1;
            }
            child[count] = (struct child){node, tree->node[node].count, (int32_t)count};
            count++;
        }
        if (count < 2)
            continue;
        qsort(child, count, sizeof *child, compare_children);
        tree->own_node[parent].child = child[0].node;
        for (size_t at = 0; at < count; at++) {
            tree->own_node[child[at].node].before = at ? child[at - 1].node : 0;
            tree->own_node[child[at].node].sibling = at + 1 < count ? child[at + 1].node : 0;
        }
    }
    mem_free(&child);
    tree->sorted = true;
    return 0;
}

/* Returns whether a loaded tree is consistent. Children name their parent, and each node except the root is the child of
 * exactly one node: so every child list is finite. */
static bool is_sound(const struct suffix_tree *tree, int vocab)
{
    int64_t seen = 1;
    const struct suffix_node *root = &tree->node[0];
    for (int at = 0; at < tree->tokens; at++)
        if (tree->token[at] < 0 || tree->token[at] >= vocab)
            return false;
    if (root->parent || root->start || root->end || root->sibling)
        return false;
    for (int32_t node = 0; node < tree->nodes; node++) {
        const struct suffix_node *here = &tree->node[node];
        if (here->parent < 0 || here->parent >= tree->nodes || here->child < 0 || here->child >= tree->nodes ||
            here->sibling < 0 || here->sibling >= tree->nodes)
            return false;
        if (node && (here->start < 0 || here->start >= here->end || here->end > tree->tokens || here->count < 1))
            return false;
    }
    for (int32_t node = 0; node < tree->nodes; node++) {
        int64_t followed = 0;
        for (int32_t child = tree->node[node].child; child; child = tree->node[child].sibling) {
            followed += tree->node[child].count;
            if (tree->node[child].parent != node || ++seen > tree->nodes)
                return false;
        }
        if (followed != tree->node[node].followed)
            return false;
    }
    return seen == tree->nodes;
}

int suffix_tree_adopt(struct suffix_tree *tree, int vocab, bool *sound, struct err *err)
{
    size_t slots = SLOTS_FIRST;
    *sound = is_sound(tree, vocab);
    if (!*sound)
        return 0;
    while (slots < 2 * (size_t)tree->nodes)
        slots *= 2;
    tree->sorted = true;
    return resize_slots(tree, slots, err);
}

int suffix_tree_thaw(struct suffix_tree *tree, struct err *err)
{
    if (!tree->own_node) {
        int32_t *token = NULL;
        struct suffix_node *node = NULL;
        size_t token_room = 0, node_room = 0;
        if (mem_grow(&token, &token_room, (size_t)tree->tokens + 1, sizeof *token, err) ||
            mem_grow(&node, &node_room, (size_t)tree->nodes, sizeof *node, err)) {
            mem_free(&token);
            return -1;
        }
        memcpy(token, tree->token, (size_t)tree->tokens * sizeof *token);
        memcpy(node, tree->node, (size_t)tree->nodes * sizeof *node);
        tree->token = tree->own_token = token;
        tree->node = tree->own_node = node;
        tree->token_room = token_room;
        tree->node_room = node_room;
    }
    tree->limit = SUFFIX_TOKENS_MAX;
    tree->sorted = false;
    return 0;
}

/* ---- looking up ---- */

static bool step(const struct suffix_tree *tree, struct suffix_cursor *cursor, int32_t token)
{
    if (cursor->length == tree->depth)          /* checked in a damaged tree, too, so that the cursors fit their array */
        return false;
    if (cursor->at < edge_tokens(tree, cursor->node)) {
        if (tree->token[tree->node[cursor->node].start + cursor->at] != token)
            return false;
        cursor->at++;
    } else {
        int32_t child = find_child(tree, cursor->node, token);
        if (!child)
            return false;
        cursor->node = child;
        cursor->at = 1;
    }
    cursor->length++;
    return true;
}

int suffix_tree_follow(const struct suffix_tree *tree, struct suffix_cursor *cursor, int count, int32_t token)
{
    int kept = 0;
    cursor[count++] = (struct suffix_cursor){0, 0, 0};
    for (int which = 0; which < count; which++) {
        struct suffix_cursor next = cursor[which];
        if (step(tree, &next, token))
            cursor[kept++] = next;
    }
    return kept;
}

/* A token that may be next: token number `at` of the node's edge. */
struct chance {
    double probability, share;
    int32_t node, at, parent, level;
};

/* A heap ordered by probability, then by time of insertion. No two entries are on one path, so their probabilities sum to at
 * most 1, and each is at least SUFFIX_MIN: this bounds their number. */
struct queue {
    struct entry { struct chance chance; int order; } entry[SUFFIX_SHARES_MAX + CHILDREN_MAX];
    int count, arrived;
};

static bool is_before(const struct entry *a, const struct entry *b)
{
    return a->chance.probability > b->chance.probability ||
           (a->chance.probability == b->chance.probability && a->order < b->order);
}

static void queue_put(struct queue *queue, const struct chance *chance)
{
    struct entry entry = {*chance, queue->arrived++};
    int at = queue->count++;
    for (int above = (at - 1) / 2; at && is_before(&entry, &queue->entry[above]); above = (at - 1) / 2) {
        queue->entry[at] = queue->entry[above];
        at = above;
    }
    queue->entry[at] = entry;
}

static struct chance queue_take(struct queue *queue)
{
    const struct chance best = queue->entry[0].chance;
    const struct entry last = queue->entry[--queue->count];
    int at = 0;
    for (int child = 1; child < queue->count; child = 2 * at + 1) {
        child += child + 1 < queue->count && is_before(&queue->entry[child + 1], &queue->entry[child]);
        if (!is_before(&queue->entry[child], &last))
            break;
        queue->entry[at] = queue->entry[child];
        at = child;
    }
    queue->entry[at] = last;
    return best;
}

/* Returns how often the string `at` tokens into a node's edge occurs. Suffixes of an unfinished text may end before that
 * point. */
static int occurrences(const struct suffix_tree *tree, int32_t node, int at)
{
    int count = tree->node[node].count;
    for (int which = 0; which < tree->cursors; which++)
        count -= tree->cursor[which].node == node && tree->cursor[which].at < at;
    return count;
}

/* Queues the most frequent children of a node, of equal ones the younger, at most `max`. */
static void put_children(const struct suffix_tree *tree, struct queue *queue, struct chance chance, int max,
                         const struct suffix_limits *limits)
{
    const double before = chance.probability, min = limits->min;
    const double followed = limits->occurrences ? occurrences(tree, chance.node, chance.at) : tree->node[chance.node].followed;
    int32_t best[CHILDREN_MAX];
    int found = 0;
    max = max < CHILDREN_MAX ? max : CHILDREN_MAX;
    for (int32_t node = tree->node[chance.node].child; node; node = tree->node[node].sibling) {
        int32_t count = tree->node[node].count;
        bool likely = before * ((double)count / followed) >= min;
        if (tree->sorted && (!likely || found == max))
            break;
        if (!likely || (found == max && tree->node[best[max - 1]].count >= count))
            continue;
        int rank = found < max ? found++ : max - 1;
        for (; rank && tree->node[best[rank - 1]].count < count; rank--)
            best[rank] = best[rank - 1];
        best[rank] = node;
    }
    chance.at = 0;
    for (int at = 0; at < found; at++) {
        chance.node = best[at];
        chance.share = (double)tree->node[best[at]].count / followed;
        chance.probability = before * chance.share;
        queue_put(queue, &chance);
    }
}

static void put_next(const struct suffix_tree *tree, struct queue *queue, struct chance chance, int max,
                     const struct suffix_limits *limits)
{
    const int room = (int)(sizeof queue->entry / sizeof *queue->entry) - queue->count;
    if (chance.at == edge_tokens(tree, chance.node)) {
        put_children(tree, queue, chance, max < room ? max : room, limits);
        return;
    }
    chance.share = limits->occurrences ? (double)occurrences(tree, chance.node, chance.at + 1) /
                                         occurrences(tree, chance.node, chance.at) : 1;
    chance.probability *= chance.share;
    if (chance.probability >= limits->min)
        queue_put(queue, &chance);
}

void suffix_tree_expand(const struct suffix_tree *tree, const struct suffix_cursor *from, const struct suffix_limits *limits,
                        struct suffix_draft *out)
{
    struct queue queue;
    queue.count = queue.arrived = 0;
    out->nodes = 0;
    out->score = 0;
    if (limits->levels > 0 && limits->nodes > 0)
        put_next(tree, &queue, (struct chance){1, 1, from->node, from->at, -1, 1}, limits->first, limits);
    while (queue.count && out->nodes < limits->nodes) {
        struct chance chance = queue_take(&queue);
        const int node = out->nodes++;
        out->token[node] = tree->token[tree->node[chance.node].start + chance.at];
        out->parent[node] = chance.parent;
        out->level[node] = chance.level;
        out->share[node] = chance.share;
        out->score += chance.probability;
        chance.at++;
        chance.parent = node;
        if (chance.level++ < limits->levels)
            put_next(tree, &queue, chance, limits->below, limits);
    }
}
