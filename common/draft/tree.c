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
    if (!made.token || !made.parent || !made.depth || !made.log_probability || !made.drafter) {
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
    tree->nodes = tree->capacity = 0;
}

void draft_tree_clear(struct draft_tree *tree)
{
    tree->nodes = 0;
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
    return tree->nodes++;
}

int draft_tree_path(const struct draft_tree *tree, int node, int32_t *token, int room)
{
    int depth = node < 0 ? 0 : tree->depth[node], count = depth < room ? depth : room;
    for (int at = count; at-- > 0; node = tree->parent[node])
        token[at] = tree->token[node];
    return count;
}

int draft_tree_depth(const struct draft_tree *tree)
{
    int depth = 0;
    for (int node = 0; node < tree->nodes; node++)
        depth = tree->depth[node] > depth ? tree->depth[node] : depth;
    return depth;
}
