/* How far states and router move from a token to the next: MoE-SpAc's theorem 1 (appendix B) held against a model. Its bound
 * has constants that the paper does not give: here they are the largest quotients that were seen, so that the bound is the
 * smallest which these texts allow.
 *
 *   state    |h_t - h_t+1| after a layer
 *   growth   that over the layer before's: 1 + sigma is at least the largest one              (eq. 30)
 *   score    the same of the router's scores: logarithms of its probabilities, less their mean over the layer's experts,
 *            which a softmax does not see
 *   norm     score over the state that comes into the layer: C_R is at least the largest one  (eq. 35)
 *   bound    eq. 23 from the state after the first layer; no layer before it is recorded
 *
 * Wanted are route streams with states and probabilities (moe-profile --record hidden,probs) of models of which every layer
 * has experts. Neighbours are tokens of one text. */
#ifndef MOE_ROUTE_DRIFT_H
#define MOE_ROUTE_DRIFT_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/route/put.h"
#include "common/stream/route.h"

struct drift;

/* Errors: the model has layers without experts. */
int drift_open(struct drift **out, const struct stream_model *model, struct err *err);
void drift_free(struct drift **drift);

/* Errors: the record has no states or no probabilities. */
int drift_add(struct drift *drift, const struct route_tokens *record, struct err *err);
void drift_end(struct drift *drift, int64_t sequence);

int64_t drift_pairs(const struct drift *drift);
int drift_layers(const struct drift *drift);

/* Of a layer; those of layer 0 that want a layer before it are NaN. */
struct drift_facts { double state, growth_mean, growth_max, score_mean, score_max, norm_max, bound; };
void drift_layer(const struct drift *drift, int layer, struct drift_facts *out);

/* A `drift` record a layer. */
int drift_put(const struct drift *drift, record_put *put, void *context, struct err *err);

#endif
