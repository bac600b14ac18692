/* The co-activation matrix of a layer: how often two experts were selected by the same token (MoE-Spec appendix D).
 *
 *   count[a][b]    tokens that selected both a and b; on the diagonal, tokens that selected a. Symmetric.
 *
 * Computed from a spool, for as many layers at a time as fit into PAIRS_BYTES, so that memory does not grow with the model.
 * Counts are integers and do not depend on the order of the tokens. */
#ifndef MOE_ROUTE_PAIRS_H
#define MOE_ROUTE_PAIRS_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/route/counts.h"
#include "common/route/spool.h"

enum { PAIRS_BYTES = 1 << 26, PAIRS_EXPERTS_MAX = 2048 };

/* Receives the matrix of one layer. count: [experts][experts], valid until the function returns; it may be modified. */
typedef int route_pairs_function(void *context, int layer, int64_t *count, struct err *err);

/* Calls the function once for each layer, in ascending order. counts and spool must contain the same tokens. Errors: no
 * tokens; more experts than PAIRS_EXPERTS_MAX; any error of the function. */
int route_pairs_each(struct route_spool *spool, const struct route_counts *counts, route_pairs_function *each, void *context,
                     struct err *err);

#endif
