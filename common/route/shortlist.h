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

#include "common/route/analysis.h"

/* Records `coverage`, whose tokens are nodes. Records of prompts are ignored; a text's router correction applies to the records
 * that follow it. Errors: a record has no probs, or probs out of range. */
extern const struct analysis_class shortlist_analysis;

#endif
