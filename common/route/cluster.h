/* Orders experts so that experts which the same tokens select are neighbours: the leaf order of a hierarchical clustering
 * (MoE-Spec figure 8) with average linkage over the Jaccard similarity
 * count[a][b] / (count[a][a] + count[b][b] - count[a][b]).
 *
 * When two groups are joined, each is reversed if necessary, so that the most similar ends of the two groups meet. The order is
 * deterministic. Time and memory are O(n^2). */
#ifndef MOE_ROUTE_CLUSTER_H
#define MOE_ROUTE_CLUSTER_H

#include <stdint.h>

#include "common/base/err.h"

/* Stores a permutation of 0 .. n - 1 in order[n]. count: [n][n], a matrix of route_pairs_each. */
int cluster_order(int32_t *order, const int64_t *count, int n, struct err *err);

#endif
