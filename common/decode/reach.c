#include "common/decode/reach.h"

#include <math.h>

void reach_begin(struct reach *reach, bool trusts)
{
    *reach = (struct reach){.trusts = trusts};
}

static int depth_of(const struct draft_tree *tree, int node)
{
    return tree->depth[node] < REACH_DEPTH_MAX ? tree->depth[node] : REACH_DEPTH_MAX;
}

void reach_weights(const struct reach *reach, const struct draft_tree *tree, float *weight)
{
    weight[0] = 1;
    for (int node = 0; node < tree->nodes; node++) {
        int depth = depth_of(tree, node);
        double share = exp((double)tree->log_probability[node]);
        if (!reach->trusts || !(share <= 1))
            share = (reach->kept[depth] + 1) / (reach->tried[depth] + 2);
        weight[1 + node] = weight[1 + tree->parent[node]] * (float)share;
    }
}

void reach_observe(struct reach *reach, const struct draft_tree *tree, const uint8_t *kept)
{
    for (int node = 0; node < tree->nodes; node++) {
        int depth = depth_of(tree, node), before = 0;
        if (!kept[1 + tree->parent[node]])
            continue;
        while (before < node && !(tree->parent[before] == tree->parent[node] && kept[1 + before]))
            before++;
        if (before < node)
            continue;
        reach->tried[depth]++;
        reach->kept[depth] += kept[1 + node];
    }
}
