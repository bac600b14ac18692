/* How unevenly a layer uses its experts, and how concentrated its pairs of experts are (MoE-Spec figure 2c, appendix D).
 *
 *   effective       exp of the entropy of selections: the number of equally used experts with the same entropy
 *   half            smallest number of experts that make up half of the selections
 *   concentration   eq. 9: tokens that select the most frequent pair, divided by the tokens of a pair if all pairs were equally
 *                   likely, tokens x k (k-1) / (E (E-1)). NaN for a model whose tokens select one expert
 *
 * Computed from counts and the co-activation matrix. */
#ifndef MOE_ROUTE_SKEW_H
#define MOE_ROUTE_SKEW_H

#include "common/base/err.h"
#include "common/route/counts.h"
#include "common/route/put.h"
#include "common/route/spool.h"
#include "common/stream/coact.h"

struct skew {
    int moe_layers;
    int64_t tokens;
    struct coact_stats *layers;         /* [moe_layers] */
};

/* counts and spool must contain the same tokens. Errors: no tokens; more experts than PAIRS_EXPERTS_MAX. */
int skew_make(struct skew **out, const struct route_counts *counts, struct route_spool *spool, struct err *err);
void skew_free(struct skew **skew);

/* Computes the figures of one layer from its matrix. */
int skew_layer(struct coact_stats *out, const struct route_counts *counts, int layer, const int64_t *count, struct err *err);

/* Writes one `stats` record per layer. */
int skew_put(const struct skew *skew, record_put *put, void *context, struct err *err);

#endif
