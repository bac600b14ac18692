/* An order of experts in which those are next to each other that the same tokens select: the leaves of a hierarchical
 * clustering (MoE-Spec figure 8), average linkage over the Jaccard similarity count[a][b] / (count[a][a] + count[b][b] -
 * count[a][b]).
 *
 * At each joint the two groups are turned so that the experts that meet are the most alike. The same matrix gives the same
 * order. Time and memory are O(n^2). */
#ifndef MOE_ROUTE_CLUSTER_H
#define MOE_ROUTE_CLUSTER_H

#include <stdint.h>

#include "common/base/err.h"

/* count: [n][n] as route_pairs_each hands out; order: [n], a permutation. */
int cluster_order(int32_t *order, const int64_t *count, int n, struct err *err);

#endif
