#include "common/predict/union.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"

static const double memory = 0.97;

int union_init(struct union_predictor *predictor, int max, int experts, int top_k, struct err *err)
{
    if (experts > UNION_EXPERTS_MAX || top_k > experts)
        experts = 0;
    *predictor = (struct union_predictor){.max = max, .experts = experts, .top_k = top_k};
    if (!experts)
        return 0;
    predictor->seen = mem_alloc(((size_t)experts + 63) / 64, sizeof *predictor->seen, err);
    return predictor->seen ? 0 : -1;
}

void union_free(struct union_predictor *predictor)
{
    mem_free(&predictor->recent);
    mem_free(&predictor->seen);
}

void union_begin(struct union_predictor *predictor)
{
    predictor->tokens = 0;
}

/* Counts the distinct experts of the last 1, 2, ... tokens in one layer, and adds them to sum. */
static void add_layer(const struct union_predictor *predictor, int layer, int known, double *sum)
{
    int distinct = 0;
    memset(predictor->seen, 0, ((size_t)predictor->experts + 63) / 64 * sizeof *predictor->seen);
    for (int back = 0; back < known; back++) {
        size_t slot = (size_t)((predictor->tokens - 1 - back) % predictor->max);
        const int32_t *expert = predictor->recent +
            (slot * (size_t)predictor->layers + (size_t)layer) * (size_t)predictor->top_k;
        for (int k = 0; k < predictor->top_k; k++) {
            uint64_t bit = expert[k] < 0 || expert[k] >= predictor->experts ? 0 : (uint64_t)1 << (expert[k] % 64);
            uint64_t *word = &predictor->seen[bit ? expert[k] / 64 : 0];
            distinct += bit && !(*word & bit);
            *word |= bit;
        }
        sum[back] += distinct;
    }
}

static void measure(struct union_predictor *predictor)
{
    double sum[UNION_TOKENS] = {0};
    int known = predictor->tokens < predictor->max ? (int)predictor->tokens : predictor->max;
    for (int layer = 0; layer < predictor->layers; layer++)
        add_layer(predictor, layer, known, sum);
    for (int back = 0; back < known; back++) {
        double now = sum[back] / predictor->layers;
        double weight = fmax(1 - memory, 1 / (double)++predictor->measured[back]);
        predictor->mean[back] += weight * (now - predictor->mean[back]);
    }
}

void union_learn(struct union_predictor *predictor, const int32_t *expert, int count, int layers)
{
    if (!predictor->experts || !expert || layers < 1)
        return;
    size_t row = (size_t)layers * (size_t)predictor->top_k;
    if (!predictor->layers) {
        predictor->recent = mem_alloc((size_t)predictor->max * row, sizeof *predictor->recent, NULL);
        predictor->layers = predictor->recent ? layers : 0;
    }
    if (predictor->layers != layers)
        return;
    for (int at = 0; at < count; at++) {
        size_t slot = (size_t)(predictor->tokens++ % predictor->max);
        memcpy(predictor->recent + slot * row, expert + (size_t)at * row, row * sizeof *expert);
        measure(predictor);
    }
}

double union_independent(int experts, int top_k, double tokens)
{
    return experts ? experts * (1 - pow(1 - (double)top_k / experts, tokens)) : NAN;
}

double union_of(const struct union_predictor *predictor, int M)
{
    if (predictor->experts && predictor->measured[M - 1])
        return predictor->mean[M - 1];
    return union_independent(predictor->experts, predictor->top_k, M);
}
