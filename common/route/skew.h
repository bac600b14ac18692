/* How unevenly a layer uses its experts, and how often the same ones together (MoE-Spec figure 2c, appendix D).
 *
 *   effective       exp of the entropy of selections: so many experts used alike would be as uncertain
 *   half            fewest experts that make up half of the selections
 *   concentration   eq. 9: tokens that select the most frequent pair, over what a pair would have if all pairs were equally
 *                   likely, tokens x k (k-1) / (E (E-1)). NaN for a model whose tokens select one expert
 *
 * Made from counts and the matrix of pairs. */
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

/* counts and spool hold the same tokens. Errors: no tokens, more experts than pairs can be counted of. */
int skew_make(struct skew **out, const struct route_counts *counts, struct route_spool *spool, struct err *err);
void skew_free(struct skew **skew);

/* One layer's, from its matrix. */
int skew_layer(struct coact_stats *out, const struct route_counts *counts, int layer, const int64_t *count, struct err *err);

/* A `stats` record a layer. */
int skew_put(const struct skew *skew, record_put *put, void *context, struct err *err);

#endif
