/* How likely each node of a draft is to be kept, before it is verified: what a budget that ranks experts by path weighs a
 * token's scores with (AcceptMoE, arXiv 2608.02989).
 *
 * A node is kept when all tokens on its path are. A token's own share is what its drafter says, where that is the chance that
 * the target takes it: at temperature 0; else, or when the drafter cannot say, the share kept at its depth in this text so far,
 * one kept and one lost counted beforehand. */
#ifndef MOE_DECODE_REACH_H
#define MOE_DECODE_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/draft/tree.h"

enum { REACH_DEPTH_MAX = 64 };              /* deeper ones count as this */

struct reach {
    bool trusts;                            /* what drafters say counts */
    double tried[REACH_DEPTH_MAX + 1], kept[REACH_DEPTH_MAX + 1];
};

void reach_begin(struct reach *reach, bool trusts);         /* a new text */

/* weight[1 + nodes]: the root's, which is 1, then the nodes'. */
void reach_weights(const struct reach *reach, const struct draft_tree *tree, float *weight);

/* kept[1 + nodes]: root and accepted nodes are 1. A node was tried when its parent was kept and no sibling before it. */
void reach_observe(struct reach *reach, const struct draft_tree *tree, const uint8_t *kept);

#endif
