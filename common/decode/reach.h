/* How likely each node of a draft is to be kept, before it is verified: the weight of a token's scores in a budget that ranks
 * experts by path (AcceptMoE, arXiv 2608.02989). A node is kept when all tokens on its path are; the probability of each is
 * learned in this text so far (predict/estimator.h). */
#ifndef MOE_DECODE_REACH_H
#define MOE_DECODE_REACH_H

#include <stdint.h>

#include "common/draft/share.h"
#include "common/predict/estimator.h"

struct reach { struct estimator estimator[DRAFTERS_MAX]; };

void reach_begin(struct reach *reach);      /* a new text */

/* Writes signal[nodes], and weight[1 + nodes]: the root's, which is 1, then the nodes'. */
void reach_weights(const struct reach *reach, const struct draft_tree *tree, struct estimator_signal *signal, float *weight);

/* kept[1 + nodes]: root and accepted nodes are 1. A node teaches where its parent was kept. */
void reach_observe(struct reach *reach, const struct draft_tree *tree, const struct estimator_signal *signal,
                   const uint8_t *kept);

#endif
