/* What a layer keeps when only the first B experts of a ranking may be loaded (MoE-Spec section 3.3), for every B:
 *
 *   mass[l][B-1]      share of the routing mass that falls on those B experts
 *   served[l][B-1]    share of tokens whose selected experts are all among them
 *
 * Both are shares of the tokens counted, which need not be those that the ranking was made from. */
#ifndef MOE_ROUTE_COVERAGE_H
#define MOE_ROUTE_COVERAGE_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/route/counts.h"
#include "common/route/ranking.h"
#include "common/route/spool.h"

struct coverage {
    int moe_layers, experts, top_k;
    int64_t tokens;
    char method[32];            /* of the ranking */
    double *mass, *served;      /* [moe_layers][experts], in 0 .. 1 */
};

/* Room for the two tables. */
int coverage_open(struct coverage **out, const char *method, int moe_layers, int experts, struct err *err);

/* Counts and spool hold the same tokens. Errors: no tokens, no routing mass, shapes that differ. */
int coverage_make(struct coverage **out, const struct route_counts *counts, struct route_spool *spool,
                  const struct ranking *ranking, struct err *err);
void coverage_free(struct coverage **coverage);

/* A `coverage` record a layer. */
int coverage_put(const struct coverage *coverage, record_put *put, void *context, struct err *err);

#endif
