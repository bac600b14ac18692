/* Totals of routes: for each layer with a router, how often each expert was selected, and its sum of routing probabilities.
 *
 *   selected[l][e]   tokens whose selected experts in layer l include e       (MoE-Spec eq. 4)
 *   mass[l][e]       sum over tokens of the router's probability of e (probs in stream/route.h): of the softmax over all
 *                    experts, or of the sigmoid in families that use one, before any renormalisation of selected weights
 *
 * Only tokens of the text count: prompt tokens, decoded tokens, and the accepted tokens of a verified draft. The counts of a
 * text therefore do not depend on how it was drafted.
 *
 * Both tables contain integers. A token's mass is rounded to multiples of 2^-30 before it is added, here and where a producer
 * sums the tokens of a record (route_mass_add). Every sum is then exact and independent of order and grouping, so shards can be
 * counted anywhere and merged in any order. The mass of a record that is not a multiple of 2^-30 is rounded to one.
 *
 * Memory: the two tables. Errors: an expert or a mass out of range; 2^32 tokens or more. */
#ifndef MOE_ROUTE_COUNTS_H
#define MOE_ROUTE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/stream/route.h"

#define ROUTE_MASS_STEPS 1073741824.0           /* units of 2^-30 in a mass of 1 */
#define ROUTE_TOKENS_MAX ((int64_t)UINT32_MAX)
enum { ROUTE_CELLS_MAX = 1 << 22 };             /* layers x experts; today's largest models have some 20,000 */

struct route_counts {
    int moe_layers, experts, top_k;
    int64_t tokens;
    bool lacks_mass;            /* a record had neither mass nor probs: the mass table is incomplete */
    int64_t *selected;          /* [moe_layers][experts] */
    int64_t *mass;              /* [moe_layers][experts], in units of 2^-30 */
};

/* Returns 0 if routes of this model can be counted: it has routers, and at most ROUTE_CELLS_MAX layers x experts. */
int route_model_check(const struct stream_model *model, struct err *err);

int route_counts_open(struct route_counts **out, const struct stream_model *model, struct err *err);
void route_counts_free(struct route_counts **counts);
int route_counts_add(struct route_counts *counts, const struct route_tokens *record, struct err *err);

/* Returns the number of the record's tokens that are part of the text. */
int route_tokens_kept(const struct route_tokens *record);

/* Adds one token's probabilities, rounded to multiples of 2^-30, to a record's mass: sum[i] += score[i] for i < count. Exact
 * for up to 2^22 tokens per record. */
void route_mass_add(double *sum, const float *score, int count);

#endif
