#include "common/route/matrix.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/route/cluster.h"
#include "common/route/skew.h"

enum { MATRIX_PAIRS_MAX = 1 << 26 };

struct matrix_build {
    struct matrix *matrix;
    const struct route_counts *counts;
    int layer;
};

static int build_layer(void *context, int layer, int64_t *count, struct err *err)
{
    const struct matrix_build *build = context;
    struct matrix_layer *of = &build->matrix->layers[layer];
    size_t n = (size_t)build->counts->experts;
    if (build->layer >= 0 && layer != build->layer)
        return 0;
    if (!(of->order = mem_alloc(n, sizeof *of->order, err)) ||
        !(of->count = mem_copy(count, n * n * sizeof *count, err)))
        return -1;
    return cluster_order(of->order, count, (int)n, err) || skew_layer(&of->stats, build->counts, layer, count, err) ? -1 : 0;
}

int matrix_make(struct matrix **out, const struct route_counts *counts, struct route_spool *spool, int layer, struct err *err)
{
    struct matrix *matrix = mem_alloc(1, sizeof *matrix, err);
    struct matrix_build build = { matrix, counts, layer };
    int rc = -1;
    if ((double)counts->experts * counts->experts * (layer < 0 ? counts->moe_layers : 1) > MATRIX_PAIRS_MAX) {
        err_set(err, ERR_INPUT, "there are too many pairs to show, in %d layers with %d experts; give one --layer, and "
                "--json, --csv or --svg", counts->moe_layers, counts->experts);
        goto done;
    }
    if (!matrix || !(matrix->layers = mem_alloc((size_t)counts->moe_layers, sizeof *matrix->layers, err)))
        goto done;
    matrix->moe_layers = counts->moe_layers;
    matrix->experts = counts->experts;
    matrix->tokens = counts->tokens;
    if (route_pairs_each(spool, counts, build_layer, &build, err))
        goto done;
    *out = matrix;
    matrix = NULL;
    rc = 0;
done:
    matrix_free(&matrix);
    return rc;
}

void matrix_free(struct matrix **matrix)
{
    if (!*matrix)
        return;
    for (int l = 0; (*matrix)->layers && l < (*matrix)->moe_layers; l++) {
        mem_free(&(*matrix)->layers[l].order);
        mem_free(&(*matrix)->layers[l].count);
    }
    mem_free(&(*matrix)->layers);
    mem_free(matrix);
}

double matrix_lift(const struct matrix *matrix, const struct matrix_layer *layer, int a, int b)
{
    size_t n = (size_t)matrix->experts;
    double one = (double)layer->count[(size_t)a * n + (size_t)a], two = (double)layer->count[(size_t)b * n + (size_t)b];
    return one > 0 && two > 0 ? (double)layer->count[(size_t)a * n + (size_t)b] * (double)matrix->tokens / (one * two) : NAN;
}

int matrix_put(const struct matrix *matrix, record_put *put, void *context, struct err *err)
{
    size_t n = (size_t)matrix->experts;
    int32_t *first = mem_alloc(n * n, sizeof *first, err), *second = mem_alloc(n * n, sizeof *second, err);
    int64_t *count = mem_alloc(n * n, sizeof *count, err);
    double *lift = mem_alloc(n * n, sizeof *lift, err);
    int rc = first && second && count && lift ? 0 : -1;
    for (int l = 0; !rc && l < matrix->moe_layers; l++) {
        const struct matrix_layer *layer = &matrix->layers[l];
        if (!layer->count)
            continue;
        for (size_t i = 0; i < n * n; i++) {
            first[i] = layer->order[i / n];
            second[i] = layer->order[i % n];
            count[i] = layer->count[(size_t)first[i] * n + (size_t)second[i]];
            lift[i] = matrix_lift(matrix, layer, first[i], second[i]);
        }
        struct coact_matrix record = { .layer = l, .tokens = matrix->tokens, .points = (int)(n * n), .first = first,
                                       .second = second, .count = count, .lift = lift };
        rc = put(context, &coact_matrix_kind, &record, err);
    }
    mem_free(&first);
    mem_free(&second);
    mem_free(&count);
    mem_free(&lift);
    return rc;
}
