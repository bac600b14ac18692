/* Measures how far hidden states and router scores move from one token to the next, to test MoE-SpAc's theorem 1 (appendix B)
 * on a model. The paper does not give the constants of its bound. They are estimated here by the largest quotients observed,
 * which yields the smallest bound that these texts allow.
 *
 *   state    |h_t - h_t+1| after a layer
 *   growth   state divided by the previous layer's state: 1 + sigma is at least the maximum   (eq. 30)
 *   score    the distance of the router's scores: logarithms of its probabilities minus their mean over the layer's experts
 *            (softmax is invariant to that mean)
 *   norm     score divided by the distance of the layer's input states: C_R is at least the maximum  (eq. 35)
 *   bound    eq. 23, from the state after the first layer, because no earlier state is recorded
 *
 * The input is route streams with states and probabilities (moe-profile --record hidden,probs) of a model in which every layer
 * has experts. Pairs of tokens are consecutive tokens of one text. */
#ifndef MOE_ROUTE_DRIFT_H
#define MOE_ROUTE_DRIFT_H

#include "common/route/analysis.h"

/* Records `drift`, as above; values that need a previous layer are NaN for layer 0. Errors: the model has a layer without
 * experts; a record has no states or no probabilities. */
extern const struct analysis_class drift_analysis;

#endif
