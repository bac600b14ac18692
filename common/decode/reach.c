#include "common/decode/reach.h"

/* Factor by which the weight of an observation decreases with each later one: a text has some hundreds of observations, and
 * estimates follow a text that changes its kind. */
static const double decay = 0.9975;

void reach_begin(struct reach *reach)
{
    for (int i = 0; i < DRAFTERS_MAX; i++)
        estimator_init(&reach->estimator[i], 0.5, decay);
}

void reach_weights(const struct reach *reach, const struct draft_tree *tree, struct estimator_signal *signal, float *weight)
{
    weight[0] = 1;
    estimator_signals(signal, tree, 0);
    for (int node = 0; node < tree->nodes; node++)
        weight[1 + node] = weight[1 + tree->parent[node]] *
                           (float)estimator_of(&reach->estimator[tree->drafter[node]], &signal[node]);
}

void reach_observe(struct reach *reach, const struct draft_tree *tree, const struct estimator_signal *signal,
                   const uint8_t *kept)
{
    for (int node = 0; node < tree->nodes; node++)
        if (kept[1 + tree->parent[node]])
            estimator_observe(&reach->estimator[tree->drafter[node]], &signal[node], kept[1 + node]);
}
