#include "common/draft/tree.h"

#include "common/base/mem.h"

int draft_tree_init(struct draft_tree *tree, int capacity, struct err *err)
{
    struct draft_tree made = {.capacity = capacity};
    size_t room = (size_t)capacity;
    made.token = mem_alloc(room, sizeof *made.token, err);
    made.parent = mem_alloc(room, sizeof *made.parent, err);
    made.depth = mem_alloc(room, sizeof *made.depth, err);
    made.log_probability = mem_alloc(room, sizeof *made.log_probability, err);
    made.drafter = mem_alloc(room, sizeof *made.drafter, err);
    made.reviewer = mem_alloc(room, sizeof *made.reviewer, err);
    made.match = mem_alloc(room, sizeof *made.match, err);
    made.proposal = mem_alloc(room, sizeof *made.proposal, err);
    if (!made.token || !made.parent || !made.depth || !made.log_probability || !made.drafter || !made.reviewer || !made.match ||
        !made.proposal) {
        draft_tree_free(&made);
        return -1;
    }
    *tree = made;
    return 0;
}

void draft_tree_free(struct draft_tree *tree)
{
    mem_free(&tree->token);
    mem_free(&tree->parent);
    mem_free(&tree->depth);
    mem_free(&tree->log_probability);
    mem_free(&tree->drafter);
    mem_free(&tree->reviewer);
    mem_free(&tree->match);
    mem_free(&tree->proposal);
    tree->nodes = tree->capacity = 0;
}

void draft_tree_clear(struct draft_tree *tree)
{
    tree->nodes = tree->levels = 0;
}

int draft_tree_add(struct draft_tree *tree, int parent, int32_t token, float log_probability, int drafter)
{
    int node = tree->nodes;
    for (int other = parent + 1; other < node; other++)
        if (tree->parent[other] == parent && tree->token[other] == token)
            return other;
    if (node == tree->capacity)
        return -1;
    tree->token[node] = token;
    tree->parent[node] = parent;
    tree->depth[node] = parent < 0 ? 1 : tree->depth[parent] + 1;
    tree->log_probability[node] = log_probability;
    tree->drafter[node] = drafter;
    tree->reviewer[node] = -1;
    tree->match[node] = 0;
    tree->proposal[node] = NULL;
    return tree->nodes++;
}

/* Returns the index of `node` in the ascending list kept[0 .. count), or -1. */
static int position_of(const int32_t *kept, int count, int32_t node)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (kept[middle] < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && kept[low] == node ? low : -1;
}

int draft_tree_keep(struct draft_tree *tree, const int32_t *node, int count)
{
    for (int at = 0; at < count; at++)
        if (node[at] < 0 || node[at] >= tree->nodes || (at && node[at] <= node[at - 1]) ||
            (tree->parent[node[at]] >= 0 && position_of(node, at, tree->parent[node[at]]) < 0))
            return -1;
    for (int at = 0; at < count; at++) {
        int from = node[at];
        tree->token[at] = tree->token[from];
        tree->parent[at] = tree->parent[from] < 0 ? -1 : position_of(node, at, tree->parent[from]);
        tree->depth[at] = tree->depth[from];
        tree->log_probability[at] = tree->log_probability[from];
        tree->drafter[at] = tree->drafter[from];
        tree->reviewer[at] = tree->reviewer[from];
        tree->match[at] = tree->match[from];
        tree->proposal[at] = tree->proposal[from];
    }
    tree->nodes = count;
    return 0;
}

bool draft_tree_is_below(const struct draft_tree *tree, int node, int leaf)
{
    int above = node;
    while (above > leaf)
        above = tree->parent[above];
    return node != leaf && above == leaf;
}

int draft_tree_follow(struct draft_tree *tree, int leaf, const int32_t *way, int count, int *last, struct err *err)
{
    int32_t *kept = mem_alloc((size_t)tree->nodes + 1, sizeof *kept, err);
    int keeps = 0, on = 0;
    if (!kept)
        return -1;
    *last = leaf;
    for (int node = 0; node < tree->nodes; node++) {
        bool follows = on < count && way[on] == node;
        if (!follows && draft_tree_is_below(tree, node, leaf))
            continue;
        if (follows)
            *last = keeps;
        on += follows;
        kept[keeps++] = node;
    }
    int rc = draft_tree_keep(tree, kept, keeps);
    mem_free(&kept);
    return rc ? err_set(err, ERR_INPUT, "the accepted path is not part of the draft") : 0;
}

int draft_tree_path(const struct draft_tree *tree, int node, int32_t *token, int room)
{
    int depth = node < 0 ? 0 : tree->depth[node], count = depth < room ? depth : room;
    for (int at = count; at-- > 0; node = tree->parent[node])
        token[at] = tree->token[node];
    return count;
}

int draft_tree_find(const struct draft_tree *tree, const int32_t *token, int count)
{
    int at = -1;
    for (int depth = 0; depth < count; depth++) {
        int next = at + 1;
        while (next < tree->nodes && !(tree->parent[next] == at && tree->token[next] == token[depth]))
            next++;
        if (next == tree->nodes)
            return -2;
        at = next;
    }
    return at;
}

int draft_tree_depth(const struct draft_tree *tree)
{
    int depth = 0;
    for (int node = 0; node < tree->nodes; node++)
        depth = tree->depth[node] > depth ? tree->depth[node] : depth;
    return depth;
}
