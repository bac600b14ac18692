/* The matrices of pairs of all layers, or of one, with the order in which a clustering puts their experts.
 *
 * Held whole, 8 bytes a pair and layer; 2^26 of them at most, today's largest models have 9 million. (What can
 * do with one layer at a time takes route_pairs_each.) Counts and lift:
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
    int64_t *count;             /* [experts][experts], by expert */
};

struct matrix {
    int moe_layers, experts;
    int64_t tokens;
    struct matrix_layer *layers;        /* [moe_layers]; of layers that were not asked for, order and count are NULL */
};

/* layer: that one only; -1: all. Errors: no tokens, too many pairs. */
int matrix_make(struct matrix **out, const struct route_counts *counts, struct route_spool *spool, int layer,
                struct err *err);
void matrix_free(struct matrix **matrix);

double matrix_lift(const struct matrix *matrix, const struct matrix_layer *layer, int a, int b);

/* A `matrix` record a layer. */
int matrix_put(const struct matrix *matrix, record_put *put, void *context, struct err *err);

#endif
