/* A tree that grows at its most probable nodes. A node's value is the log-probability of its path according to the drafter: the
 * sum of log-probabilities from the root down.
 * Source: Li, Wei, Zhang, Zhang, "EAGLE-2", arXiv 2406.16858, sections 4.1 (expansion) and 4.2 (reranking).
 *
 * Each of `depth` levels extends the `topk` nodes of the level above with the highest values by up to `topk` children each. At
 * the end the nodes with the highest values are kept, such that the verifying forward has `total` tokens with the root; of
 * equal values the older node is kept. A child's value never exceeds that of its older parent, so the kept nodes form a tree.
 * Values are floats, as in the authors' code: a child with a probability near 1 has exactly its parent's value, so the order of
 * equal values influences which nodes are kept.
 *
 * Nodes outside the best total - 1 are dropped as soon as possible: nodes are only added, so a dropped node and its descendants
 * could never be among the best again. The result is the same as with dropping at the end, without drafting below such nodes.
 * */
#include "common/policy/shape.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/mem.h"

enum { TOTAL_DEFAULT = 60, DEPTH_DEFAULT = 5, TOPK_DEFAULT = 10 };

struct rank { float value; int32_t node; };

struct dynamic {
    struct shape base;
    int topk, level;                    /* level: the last level grown */
    float *value;                       /* [room] */
    struct rank *rank;                  /* [room] */
    int32_t *keep;                      /* [room] */
    struct draft_leaf leaf[SHAPE_SIBLINGS_MAX];
};

static void dynamic_free(struct shape *shape)
{
    struct dynamic *dynamic = (struct dynamic *)shape;
    mem_free(&dynamic->value);
    mem_free(&dynamic->rank);
    mem_free(&dynamic->keep);
    mem_free(&dynamic);
}

static int dynamic_open(struct shape **out, struct spec *spec, struct err *err)
{
    int total, depth, topk;
    if (spec_int(spec, "total", TOTAL_DEFAULT, 2, SHAPE_NODES_MAX + 1, &total, err) ||
        spec_int(spec, "depth", DEPTH_DEFAULT, 1, SHAPE_DEPTH_MAX, &depth, err) ||
        spec_int(spec, "topk", TOPK_DEFAULT, 1, SHAPE_SIBLINGS_MAX, &topk, err))
        return -1;
    struct dynamic *dynamic = mem_alloc(1, sizeof *dynamic, err);
    if (!dynamic)
        return -1;
    int leaves = topk < total - 1 ? topk : total - 1;
    dynamic->base = (struct shape){.depth = depth, .nodes = total - 1, .room = total - 1 + topk * topk,
                                   .added = topk + (depth - 1) * leaves * topk, .trims = true};
    dynamic->topk = topk;
    size_t room = (size_t)dynamic->base.room;
    dynamic->value = mem_alloc(room, sizeof *dynamic->value, err);
    dynamic->rank = mem_alloc(room, sizeof *dynamic->rank, err);
    dynamic->keep = mem_alloc(room, sizeof *dynamic->keep, err);
    if (!dynamic->value || !dynamic->rank || !dynamic->keep) {
        dynamic_free(&dynamic->base);
        return -1;
    }
    *out = &dynamic->base;
    return 0;
}

/* Sets the values of nodes. A token without a probability has probability 0. */
static void set_values(struct dynamic *dynamic, const struct draft_tree *tree)
{
    for (int node = 0; node < tree->nodes; node++) {
        float step = tree->log_probability[node];
        float above = tree->parent[node] < 0 ? 0 : dynamic->value[tree->parent[node]];
        dynamic->value[node] = isnan(step) ? -INFINITY : step < 0 ? above + step : above;
    }
}

static int compare_ranks(const void *a, const void *b)
{
    const struct rank *left = a, *right = b;
    if (left->value != right->value)
        return left->value > right->value ? -1 : 1;
    return left->node < right->node ? -1 : left->node > right->node;
}

static int compare_nodes(const void *a, const void *b)
{
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return left < right ? -1 : left > right;
}

/* Ranks the nodes of one level, or of all levels (level 0). Returns their number. */
static int rank_nodes(struct dynamic *dynamic, const struct draft_tree *tree, int level)
{
    int count = 0;
    for (int node = 0; node < tree->nodes; node++)
        if (!level || tree->depth[node] == level)
            dynamic->rank[count++] = (struct rank){dynamic->value[node], node};
    qsort(dynamic->rank, (size_t)count, sizeof *dynamic->rank, compare_ranks);
    return count;
}

static struct step keep_best(struct dynamic *dynamic, const struct draft_tree *tree)
{
    rank_nodes(dynamic, tree, 0);
    for (int at = 0; at < dynamic->base.nodes; at++)
        dynamic->keep[at] = dynamic->rank[at].node;
    qsort(dynamic->keep, (size_t)dynamic->base.nodes, sizeof *dynamic->keep, compare_nodes);
    return (struct step){.kind = STEP_KEEP, .keep = dynamic->keep, .kept = dynamic->base.nodes};
}

static struct step dynamic_next(struct shape *shape, const struct draft_view *view, int depth)
{
    struct dynamic *dynamic = (struct dynamic *)shape;
    const struct draft_tree *tree = view->tree;
    int leaves = 0;
    depth = depth < shape->depth ? depth : shape->depth;
    if (!view->steps)
        dynamic->level = 0;
    set_values(dynamic, tree);
    if (tree->nodes > shape->nodes)
        return keep_best(dynamic, tree);
    if (dynamic->level >= depth || dynamic->level == view->room)
        return (struct step){.kind = STEP_STOP};
    if (dynamic->level) {
        leaves = rank_nodes(dynamic, tree, dynamic->level);
        leaves = leaves < dynamic->topk ? leaves : dynamic->topk;
        for (int at = 0; at < leaves; at++)
            dynamic->leaf[at] = (struct draft_leaf){dynamic->rank[at].node, dynamic->topk};
    } else {
        dynamic->leaf[leaves++] = (struct draft_leaf){-1, dynamic->topk};
    }
    if (!leaves)
        return (struct step){.kind = STEP_STOP};
    const int levels = depth - dynamic->level++;
    return (struct step){.kind = STEP_EXTEND, .tokens = 1, .levels = levels, .leaf = dynamic->leaf, .leaves = leaves};
}

static void dynamic_state(const struct shape *shape, struct values *out)
{
    values_int(out, "total", shape->nodes + 1);
    values_int(out, "topk", ((const struct dynamic *)shape)->topk);
}

const struct shape_class shape_dynamic = {
    .name = "dynamic",
    .summary = "a tree that grows where its drafter is most certain",
    .settings = "total=N,depth=N,topk=N",
    .open = dynamic_open,
    .next = dynamic_next,
    .state = dynamic_state,
    .free = dynamic_free,
};
