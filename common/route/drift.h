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

#include <stdint.h>

#include "common/base/err.h"
#include "common/route/put.h"
#include "common/stream/route.h"

struct drift;

/* Errors: the model has a layer without experts. */
int drift_open(struct drift **out, const struct stream_model *model, struct err *err);
void drift_free(struct drift **drift);

/* Adds a record. Errors: the record has no states or no probabilities. */
int drift_add(struct drift *drift, const struct route_tokens *record, struct err *err);
void drift_end(struct drift *drift, int64_t sequence);

int64_t drift_pairs(const struct drift *drift);
int drift_layers(const struct drift *drift);

/* The figures of one layer. Those that need a previous layer are NaN for layer 0. */
struct drift_facts { double state, growth_mean, growth_max, score_mean, score_max, norm_max, bound; };
void drift_layer(const struct drift *drift, int layer, struct drift_facts *out);

/* Writes one `drift` record a layer. */
int drift_put(const struct drift *drift, record_put *put, void *context, struct err *err);

#endif
