/* Orders the nodes of a finished draft by score per added cost, where the cost of a set of nodes is that of the union of their
 * predicted experts. Over plain arrays, for host and device.
 *
 * A node is added only after its parent, so the first k nodes of the order always contain the parents of all of them;
 * trim_by_rate (trim.h) then chooses k. Unlike with a cost that depends on the size only, the greedy order is not optimal:
 * tests/unit/test_trim.c measures its distance from the best of all sets. */
#ifndef MOE_KERNELS_PLAIN_TRIM_EXPERTS_H
#define MOE_KERNELS_PLAIN_TRIM_EXPERTS_H

#include "kernels/plain/plain.h"

struct trim_experts {                   /* a pair is a layer and one of its experts */
    const int32_t *parent;              /* [nodes] -1: the root */
    const double *score;                /* [nodes] as of trim_scores */
    int nodes, max;                     /* max: max number of nodes to order */
    const uint64_t *const *set;         /* [1 + nodes] root first: bits [words] of predicted pairs; NULL: none */
    int words;
    double all, each;                   /* number of pairs of the model, and of one token */
    const double *growth;            /* [1 + max] added cost, over that of one token, of a forward over 1 + k average tokens, */
    const double *average;              /* [1 + max] which load this many pairs */
    double base, steepness;             /* cost = base + steepness * growth * (pairs - each) / (average - each) */
};

struct trim_union {
    uint64_t *bits;                     /* [words] */
    double size, unknown;               /* expected number of pairs; of these, pairs of nodes without a prediction */
};

PLAIN int trim_count_bits(uint64_t x)
{
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (int)(x * 0x0101010101010101u >> 56);
}

/* Returns the number of pairs that row `row` (0: the root) is expected to add. A row without a prediction may use any pairs. */
PLAIN double trim_added_experts(const struct trim_experts *t, const struct trim_union *joined, int row)
{
    int added = 0;
    if (!t->set[row])
        return t->each * (1 - joined->size / t->all);
    for (int word = 0; word < t->words; word++)
        added += trim_count_bits(t->set[row][word] & ~joined->bits[word]);
    return added * (1 - joined->unknown / t->all);
}

PLAIN void trim_join_experts(const struct trim_experts *t, struct trim_union *joined, int row)
{
    const double added = trim_added_experts(t, joined, row);
    joined->size += added;
    if (!t->set[row])
        joined->unknown += added;
    for (int word = 0; t->set[row] && word < t->words; word++)
        joined->bits[word] |= t->set[row][word];
}

/* Returns the cost of verifying k nodes that load `pairs` pairs with the root. */
PLAIN double trim_experts_cost(const struct trim_experts *t, int k, double pairs)
{
    const double usual = t->average[k] - t->each;
    return t->base + t->steepness * t->growth[k] * (usual > 0 ? (pairs - t->each) / usual : 1);
}

/* Writes order[k] and cost[0 .. k] for k nodes, min(nodes, max) of them, and returns k. bits: scratch [words]; taken: scratch
 * [nodes]. The older one is first among equally good nodes. */
PLAIN int trim_order_by_experts(const struct trim_experts *t, int32_t *order, double *cost, uint64_t *bits, uint8_t *taken)
{
    struct trim_union joined = {bits, 0, 0};
    const int count = t->nodes < t->max ? t->nodes : t->max;
    for (int word = 0; word < t->words; word++)
        bits[word] = 0;
    for (int node = 0; node < t->nodes; node++)
        taken[node] = 0;
    trim_join_experts(t, &joined, 0);
    cost[0] = t->base;
    for (int k = 1; k <= count; k++) {
        double best_score = 0, best_added = 0;
        int best = -1;
        for (int node = 0; node < t->nodes; node++) {
            if (taken[node] || (t->parent[node] >= 0 && !taken[t->parent[node]]))
                continue;
            double added = trim_experts_cost(t, k, joined.size + trim_added_experts(t, &joined, 1 + node)) - cost[k - 1];
            added = added > 1e-9 ? added : 1e-9;
            if (best < 0 || t->score[node] * best_added > best_score * added) {
                best = node;
                best_score = t->score[node];
                best_added = added;
            }
        }
        trim_join_experts(t, &joined, 1 + best);
        taken[best] = 1;
        order[k - 1] = best;
        cost[k] = trim_experts_cost(t, k, joined.size);
    }
    return count;
}

#endif
