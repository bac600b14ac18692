#include "common/predict/union.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"

static const double memory = 0.97;

void union_init(struct union_predictor *predictor, int max, int experts, int top_k)
{
    if (experts > UNION_EXPERTS_MAX || top_k > experts)
        experts = 0;
    *predictor = (struct union_predictor){.max = max, .experts = experts, .top_k = top_k};
}

void union_free(struct union_predictor *predictor)
{
    mem_free(&predictor->last);
}

void union_begin(struct union_predictor *predictor)
{
    predictor->tokens = 0;
}

/* Counts the distinct experts of the last 1, 2, ... tokens in one layer, and adds them to sum. */
static void add_layer(const struct union_predictor *predictor, int layer, int known, double *sum)
{
    const int64_t *last = predictor->last + (size_t)layer * (size_t)predictor->experts;
    int count[UNION_TOKENS] = {0}, distinct = 0;
    for (int expert = 0; expert < predictor->experts; expert++) {
        const int64_t age = predictor->clock - last[expert];
        if (last[expert] && age < known)
            count[age]++;
    }
    for (int back = 0; back < known; back++)
        sum[back] += distinct += count[back];
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
    if (!predictor->layers) {
        predictor->last = mem_alloc((size_t)layers * (size_t)predictor->experts, sizeof *predictor->last, NULL);
        predictor->layers = predictor->last ? layers : 0;
    }
    if (predictor->layers != layers)
        return;
    for (int at = 0; at < count; at++) {
        predictor->tokens++;
        predictor->clock++;
        for (int slot = 0; slot < layers * predictor->top_k; slot++, expert++)
            if (*expert >= 0 && *expert < predictor->experts)
                predictor->last[slot / predictor->top_k * predictor->experts + *expert] = predictor->clock;
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
