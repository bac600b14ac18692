/* Acceptance of a draft by coupling. The target chooses a token after the root and after each node as if it decoded alone, and
 * the longest path of the draft that matches these choices is accepted. Whatever was drafted, the emitted tokens are the
 * target's own. Source: Daliri, Musco, Suresh, "Coupling without communication and drafter-invariant speculative decoding",
 * arXiv 2408.07978; at temperature 0 it is the usual exact match. */
#ifndef MOE_KERNELS_PLAIN_ACCEPT_H
#define MOE_KERNELS_PLAIN_ACCEPT_H

#include "kernels/plain/plain.h"

/* Returns the child of `at` (-1: the root) whose token is `choice`, or -1. Children come after their parent (draft/tree.h). */
PLAIN int accept_child(const int32_t *token, const int32_t *parent, int nodes, int at, int32_t choice)
{
    for (int node = at + 1; node < nodes; node++)
        if (parent[node] == at && token[node] == choice)
            return node;
    return -1;
}

/* Accepts nodes. choice[0] follows the root, choice[i + 1] follows node i. Writes the accepted nodes, from the root downwards,
 * to path[nodes] and returns their number. The token after them is choice[0], or choice[path[last] + 1]. */
PLAIN int accept_walk(const int32_t *token, const int32_t *parent, int nodes, const int32_t *choice, int32_t *path)
{
    int accepted = 0;
    for (int at = accept_child(token, parent, nodes, -1, choice[0]); at >= 0;
         at = accept_child(token, parent, nodes, at, choice[at + 1]))
        path[accepted++] = at;
    return accepted;
}

#endif
