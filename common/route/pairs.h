/* How often two experts of a layer were selected by the same token: the co-activation matrix (MoE-Spec appendix D).
 *
 *   count[a][b]    tokens that selected both a and b; on the diagonal those that selected a. Symmetric.
 *
 * Made from a spool, as many layers at a time as fit into PAIRS_BYTES, so that memory does not grow with the model; one
 * layer's matrix is handed out at a time. Counts are integers: the same tokens give the same matrix in any order. */
#ifndef MOE_ROUTE_PAIRS_H
#define MOE_ROUTE_PAIRS_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/route/counts.h"
#include "common/route/spool.h"

enum { PAIRS_BYTES = 1 << 26, PAIRS_EXPERTS_MAX = 2048 };

/* count: [experts][experts], the receiver's to change, until it returns. */
typedef int route_pairs_function(void *context, int layer, int64_t *count, struct err *err);

/* For each layer once, ascending. counts and spool hold the same tokens. Errors: no tokens; more experts than
 * PAIRS_EXPERTS_MAX; those of the function. */
int route_pairs_each(struct route_spool *spool, const struct route_counts *counts, route_pairs_function *each, void *context,
                     struct err *err);

#endif
