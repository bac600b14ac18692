/* What a budget by router keeps of forwards that decode or verify: all nodes together, rejected ones included, layer by layer.
 *
 * Each forward ranks a layer's experts as the engine does (kernels/route.h, route_shortlist): by the sum over its nodes of
 * probs + correction, in f32, node by node; equal sums go by the lower expert. Where the router is a softmax this is MoE-Spec's
 * eq. 5. Then, for every budget B:
 *
 *   mass[l][B-1]      share of the nodes' probs that falls on the first B experts, mean over forwards (section 4.6, figure 7)
 *   served[l][B-1]    share of nodes whose selected experts are all among those B
 *
 * Forwards are records of the phases decode (one node) and verify; prompts are none. Sums over the selected experts alone would
 * say something else, so a record without probs is an error.
 *
 * Shares are rounded to 2^-30 before they are summed: the same forwards give the same figures in any order. */
#ifndef MOE_ROUTE_SHORTLIST_H
#define MOE_ROUTE_SHORTLIST_H

#include "common/base/err.h"
#include "common/route/coverage.h"
#include "common/stream/route.h"

struct shortlist;

int shortlist_open(struct shortlist **out, const struct stream_model *model, struct err *err);
void shortlist_free(struct shortlist **shortlist);

/* A text begins: its correction, which may be NULL, counts for the records that follow. */
void shortlist_begin(struct shortlist *shortlist, const struct route_begin *begin);

/* Records of prompts are passed over. Experts must be in range. Errors: no probs, or such as cannot be. */
int shortlist_add(struct shortlist *shortlist, const struct route_tokens *record, struct err *err);

/* Tokens of it are nodes. Errors: there was no forward. */
int shortlist_coverage(struct coverage **out, const struct shortlist *shortlist, struct err *err);

#endif
