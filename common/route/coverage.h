/* The share of routing that each layer keeps if only the first B experts of a ranking are loaded (MoE-Spec section 3.3), for
 * every B:
 *
 *   mass[l][B-1]      share of the routing mass of those B experts
 *   served[l][B-1]    share of tokens whose selected experts are all among them
 *
 * The counted tokens may differ from the tokens from which the ranking was made. */
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
    char method[32];            /* name of the ranking's method */
    double *mass, *served;      /* [moe_layers][experts], in 0 .. 1 */
};

/* Allocates the two tables. */
int coverage_open(struct coverage **out, const char *method, int moe_layers, int experts, struct err *err);

/* Fills the tables from counts and spool, which must contain the same tokens. Errors: no tokens, no routing mass, different
 * shapes. */
int coverage_make(struct coverage **out, const struct route_counts *counts, struct route_spool *spool,
                  const struct ranking *ranking, struct err *err);
void coverage_free(struct coverage **coverage);

/* Writes one `coverage` record per layer. */
int coverage_put(const struct coverage *coverage, record_put *put, void *context, struct err *err);

#endif
