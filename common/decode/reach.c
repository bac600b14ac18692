#include "common/decode/reach.h"

#include <math.h>

/* What an observation weighs when the next one comes. A text gives some hundreds: the last hundred count, so that each of the
 * calibration's bins has some, and a text that changes its kind is followed. */
static const double memory = 0.99;

void reach_begin(struct reach *reach)
{
    *reach = (struct reach){0};
    calibration_init(&reach->said, memory);
}

static int depth_of(const struct draft_tree *tree, int node)
{
    return tree->depth[node] < REACH_DEPTH_MAX ? tree->depth[node] : REACH_DEPTH_MAX;
}

/* What its drafter says of a node; less than 0: nothing. */
static double said_of(const struct draft_tree *tree, int node)
{
    double said = exp((double)tree->log_probability[node]);
    return said <= 1 ? said : said > 1 ? 1 : -1;
}

void reach_weights(const struct reach *reach, const struct draft_tree *tree, float *weight)
{
    weight[0] = 1;
    for (int node = 0; node < tree->nodes; node++) {
        int depth = depth_of(tree, node);
        double share = said_of(tree, node);
        share = share >= 0 ? calibration_of(&reach->said, share) : (reach->kept[depth] + 1) / (reach->tried[depth] + 2);
        weight[1 + node] = weight[1 + tree->parent[node]] * (float)share;
    }
}

void reach_observe(struct reach *reach, const struct draft_tree *tree, const uint8_t *kept)
{
    for (int node = 0; node < tree->nodes; node++) {
        int depth = depth_of(tree, node), before = 0;
        double said = said_of(tree, node);
        if (!kept[1 + tree->parent[node]])
            continue;
        if (said >= 0)
            calibration_observe(&reach->said, said, kept[1 + node]);
        while (before < node && !(tree->parent[before] == tree->parent[node] && kept[1 + before]))
            before++;
        if (before < node)
            continue;
        reach->tried[depth]++;
        reach->kept[depth] += kept[1 + node];
    }
}
