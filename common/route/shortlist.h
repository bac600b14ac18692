/* Measures what a budget by router scores keeps of forwards that decode or verify: all nodes of a forward together, rejected
 * ones included, layer by layer.
 *
 * Each forward ranks a layer's experts as the engine does (kernels/route.h, route_shortlist): by the sum over its nodes of
 * probs + correction, in f32, added node by node; of equal sums the lower expert comes first. For a softmax router this is
 * MoE-Spec's eq. 5. Then, for every budget B:
 *
 *   mass[l][B-1]      share of the nodes' probs that the first B experts have, mean over forwards (section 4.6, figure 7)
 *   served[l][B-1]    share of nodes whose selected experts are all among those B
 *
 * Forwards are records of the phases decode (one node) and verify; prompts do not count. A record without probs is an error,
 * because sums over the selected experts alone would be another quantity.
 *
 * Shares are rounded to multiples of 2^-30 before they are summed, so that figures do not depend on the order of forwards. */
#ifndef MOE_ROUTE_SHORTLIST_H
#define MOE_ROUTE_SHORTLIST_H

#include "common/base/err.h"
#include "common/route/coverage.h"
#include "common/stream/route.h"

struct shortlist;

int shortlist_open(struct shortlist **out, const struct stream_model *model, struct err *err);
void shortlist_free(struct shortlist **shortlist);

/* Begins a text. Its router correction, which may be NULL, applies to the records that follow. */
void shortlist_begin(struct shortlist *shortlist, const struct route_begin *begin);

/* Adds a record; records of prompts are ignored. Experts must be in range. Errors: no probs, or probs out of range. */
int shortlist_add(struct shortlist *shortlist, const struct route_tokens *record, struct err *err);

/* Makes the coverage; its tokens are nodes. Errors: there was no forward. */
int shortlist_coverage(struct coverage **out, const struct shortlist *shortlist, struct err *err);

#endif
