/* What routes add up to: for each layer with a router, how often each expert was selected, and how much routing mass it got.
 *
 *   selected[l][e]   tokens whose selected experts in layer l include e       (MoE-Spec eq. 4)
 *   mass[l][e]       sum over tokens of what the router gives e (probs in stream/route.h): the probability of a softmax over
 *                    all experts, or a sigmoid where the family has that, whatever it does to selected weights
 *
 * Tokens are those that are part of the text: prompt tokens, decoded ones, and of a verified draft the accepted ones. So
 * the counts of a text do not depend on how it was drafted.
 *
 * Both are integers. A token's mass is rounded to steps of 2^-30 before it is added, here and where a producer sums a
 * record's tokens (route_mass_add): every sum is then exact, and equal in whatever order or grouping the same tokens come,
 * so shards can be counted anywhere and merged in any order. A record whose mass is not in such steps is rounded to them.
 *
 * Memory is that of the two tables. Errors: an expert or a mass that cannot be, 2^32 tokens or more. */
#ifndef MOE_ROUTE_COUNTS_H
#define MOE_ROUTE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/stream/route.h"

#define ROUTE_MASS_STEPS 1073741824.0           /* steps in a mass of 1 */
#define ROUTE_TOKENS_MAX ((int64_t)UINT32_MAX)
enum { ROUTE_CELLS_MAX = 1 << 22 };             /* layers x experts; today's largest models have some 20,000 */

struct route_counts {
    int moe_layers, experts, top_k;
    int64_t tokens;
    bool lacks_mass;            /* some record had neither mass nor probs: the mass table is not whole */
    int64_t *selected;          /* [moe_layers][experts] */
    int64_t *mass;              /* [moe_layers][experts], in steps */
};

/* Can routes of this model be counted? It must have routers, and tables of a size that models have. */
int route_model_check(const struct stream_model *model, struct err *err);

int route_counts_open(struct route_counts **out, const struct stream_model *model, struct err *err);
void route_counts_free(struct route_counts **counts);
int route_counts_add(struct route_counts *counts, const struct route_tokens *record, struct err *err);

/* Tokens of a record that are part of the text. */
int route_tokens_kept(const struct route_tokens *record);

/* sum[i] += score[i] rounded to steps, i < count: how one token's probabilities enter a record's mass. Exact up to 2^22
 * tokens a record. */
void route_mass_add(double *sum, const float *score, int count);

#endif
