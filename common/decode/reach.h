/* Estimates the probability of each node of a draft to be kept, before the draft is verified: the weight of a token's scores
 * in a budget that ranks experts by path (AcceptMoE, arXiv 2608.02989). A node is kept when all tokens on its path are; the
 * probability of each token is learned in the current text (predict/estimator.h). */
#ifndef MOE_DECODE_REACH_H
#define MOE_DECODE_REACH_H

#include <stdint.h>

#include "common/draft/share.h"
#include "common/predict/estimator.h"

struct reach { struct estimator estimator[DRAFTERS_MAX]; };

void reach_begin(struct reach *reach);      /* a new text */

/* Writes signal[nodes] and weight[1 + nodes]: 1 for the root, then the probability of each node. */
void reach_weights(const struct reach *reach, const struct draft_tree *tree, struct estimator_signal *signal, float *weight);

/* Learns from a verified draft. kept[1 + nodes]: 1 for the root and accepted nodes. Only nodes whose parent was kept count. */
void reach_observe(struct reach *reach, const struct draft_tree *tree, const struct estimator_signal *signal,
                   const uint8_t *kept);

#endif
