/* The co-activation matrices of all layers, or of one layer, with their experts ordered by a clustering (cluster.h).
 *
 * All matrices are in memory, 8 bytes for each pair and layer; at most 2^26 pairs (today's largest models have 9 million).
 * Callers that need one layer at a time use route_pairs_each.
 *
 *   count[a][b]   tokens that selected both
 *   lift[a][b]    count over tokens x (share that selected a) x (share that selected b) */
#ifndef MOE_ROUTE_MATRIX_H
#define MOE_ROUTE_MATRIX_H

#include "common/base/err.h"
#include "common/route/pairs.h"
#include "common/route/put.h"
#include "common/stream/coact.h"

struct matrix_layer {
    struct coact_stats stats;
    int32_t *order;             /* [experts] */
    int64_t *count;             /* [experts][experts], indexed by expert, not by order */
};

struct matrix {
    int moe_layers, experts;
    int64_t tokens;
    struct matrix_layer *layers;        /* [moe_layers]; order and count of layers not requested are NULL */
};

/* Makes the matrix of one layer, or with layer -1 of all. Errors: no tokens, too many pairs. */
int matrix_make(struct matrix **out, const struct route_counts *counts, struct route_spool *spool, int layer,
                struct err *err);
void matrix_free(struct matrix **matrix);

double matrix_lift(const struct matrix *matrix, const struct matrix_layer *layer, int a, int b);

/* Writes one `matrix` record per layer. */
int matrix_put(const struct matrix *matrix, record_put *put, void *context, struct err *err);

#endif
