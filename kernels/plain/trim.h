/* Chooses which nodes of a finished draft to verify, over plain arrays, for host and device alike.
 *
 * A node's SCORE is the product of the acceptance probabilities along its path, so the expected tokens of an iteration that
 * verifies a set of nodes are 1 + the sum of their scores. cost[k] is the cost of an iteration that verifies k nodes.
 *
 * trim_by_rate is EVICT as printed (arXiv 2605.00342): nodes are ordered by score and U(k) = (1 + sum of the best k) / C(k) is
 * computed for every k. No score exceeds that of the parent, so the best k nodes always contain the parents of all of them. */
#ifndef MOE_KERNELS_PLAIN_TRIM_H
#define MOE_KERNELS_PLAIN_TRIM_H

#include "kernels/plain/plain.h"

/* Writes the score of each node. chance[node] is in 0 .. 1; a parent precedes its children, -1 is the root. */
PLAIN void trim_scores(double *score, const double *chance, const int32_t *parent, int nodes)
{
    for (int node = 0; node < nodes; node++)
        score[node] = (parent[node] < 0 ? 1 : score[parent[node]]) * chance[node];
}

/* Orders the nodes by score, the highest first; among equal scores the older node precedes. */
PLAIN void trim_order(int32_t *order, const double *score, int nodes)
{
    for (int node = 0; node < nodes; node++) {
        int at = node;
        for (; at > 0 && score[order[at - 1]] < score[node]; at--)
            order[at] = order[at - 1];
        order[at] = node;
    }
}

/* Returns the k of the largest (1 + sum of the first k scores) / cost[k]; among equal ones the smaller k. */
PLAIN int trim_by_rate(const int32_t *order, const double *score, const double *cost, int nodes)
{
    double gain = 1, best_rate = 1 / cost[0];
    int best = 0;
    for (int k = 1; k <= nodes; k++) {
        gain += score[order[k - 1]];
        if (gain / cost[k] > best_rate) {
            best = k;
            best_rate = gain / cost[k];
        }
    }
    return best;
}

/* Returns the k of the largest 1 + sum of the first k scores - rate * cost[k]: with a convex cost, all nodes whose score
 * exceeds the constant threshold `rate` times their added cost. */
PLAIN int trim_by_threshold(const int32_t *order, const double *score, const double *cost, int nodes, double rate)
{
    double gain = 1, best_value = 1 - rate * cost[0];
    int best = 0;
    for (int k = 1; k <= nodes; k++) {
        gain += score[order[k - 1]];
        if (gain - rate * cost[k] > best_value) {
            best = k;
            best_value = gain - rate * cost[k];
        }
    }
    return best;
}

/* Adds nodes while each raises (1 + sum of scores) / cost; returns how many. Larger k are not scanned. */
PLAIN int trim_while_rising(const int32_t *order, const double *score, const double *cost, int nodes)
{
    double gain = 1;
    int k = 0;
    for (; k < nodes && (gain + score[order[k]]) / cost[k + 1] > gain / cost[k]; k++)
        gain += score[order[k]];
    return k;
}

#endif
