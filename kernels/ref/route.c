#include <math.h>
#include <string.h>

#include "kernels/ref/ref_internal.h"

void ref_route_score(struct queue *queue, const struct route_score_args *a)
{
    const float *logits = ref_floats(queue, a->logits, (int64_t)a->rows * a->experts);
    float *score = ref_floats(queue, a->score, (int64_t)a->rows * a->experts);
    for (int r = 0; r < a->rows; r++) {
        const float *x = logits + (int64_t)r * a->experts;
        double max = -INFINITY, sum = 0;
        if (a->kind == ROUTER_SIGMOID) {
            for (int e = 0; e < a->experts; e++)
                score[(int64_t)r * a->experts + e] = (float)(1 / (1 + exp(-(double)x[e])));
            continue;
        }
        for (int e = 0; e < a->experts; e++)
            max = fmax(max, x[e]);
        for (int e = 0; e < a->experts; e++)
            sum += exp(x[e] - max);
        for (int e = 0; e < a->experts; e++)
            score[(int64_t)r * a->experts + e] = (float)(exp(x[e] - max) / sum);
    }
}

/* Returns whether expert a, of value x, ranks before expert b, of value y: the larger value, then the lower expert. */
static int before(float x, int a, float y, int b)
{
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y) ? a < b : isnan(y);
    return x > y || (x == y && a < b);
}

/* Returns the `rank`-th best of the allowed experts; -1 if there are too few. */
static int ranked(const float *value, const uint8_t *mask, int experts, int rank)
{
    for (int e = 0; e < experts; e++) {
        int ahead = 0;
        for (int other = 0; other < experts; other++)
            ahead += (!mask || mask[other]) && before(value[other], other, value[e], e);
        if ((!mask || mask[e]) && ahead == rank)
            return e;
    }
    return -1;
}

void ref_route_shortlist(struct queue *queue, const struct route_shortlist_args *a)
{
    const float *score = ref_floats(queue, a->score, (int64_t)a->rows * a->experts);
    const float *bias = a->bias.address ? ref_floats(queue, a->bias, a->experts) : NULL;
    const float *weight = a->weight.address ? ref_floats(queue, a->weight, a->rows) : NULL;
    uint8_t *mask = ref_bytes(queue, a->mask, (uint64_t)a->experts);
    float sum[ROUTE_EXPERTS_MAX] = {0};
    for (int r = 0; r < a->rows; r++)
        for (int e = 0; e < a->experts; e++) {
            float value = score[(int64_t)r * a->experts + e] + (bias ? bias[e] : 0);
            sum[e] += weight ? weight[r] * value : value;
        }
    memset(mask, 0, (size_t)a->experts);
    for (int rank = 0; rank < a->budget; rank++)
        mask[ranked(sum, NULL, a->experts, rank)] = 1;
}

/* Sets open[e]: e is allowed and belongs to one of the best groups. */
static void mark_allowed_experts(const struct route_select_args *a, const float *value, const uint8_t *mask, uint8_t *open)
{
    float sum[ROUTE_EXPERTS_MAX];
    uint8_t some[ROUTE_EXPERTS_MAX];
    int groups = a->groups > 1 ? a->groups : 1, size = a->experts / groups;
    for (int g = 0; g < groups; g++) {
        const uint8_t *allowed = mask ? mask + g * size : NULL;
        sum[g] = 0;
        some[g] = ranked(value + g * size, allowed, size, 0) >= 0;
        for (int rank = 0; rank < a->group_rank && ranked(value + g * size, allowed, size, rank) >= 0; rank++)
            sum[g] += value[g * size + ranked(value + g * size, allowed, size, rank)];
    }
    for (int e = 0; e < a->experts; e++) {
        open[e] = (!mask || mask[e]) && groups == 1;
        for (int rank = 0; rank < a->groups_kept && groups > 1; rank++)
            open[e] |= (!mask || mask[e]) && ranked(sum, some, groups, rank) == e / size;
    }
}

static void select_row(const struct route_select_args *a, const float *score, const float *bias, const float *own,
                       const uint8_t *mask, int32_t *wanted, int32_t *expert, float *weight)
{
    int substitute = mask && a->mode == BUDGET_SUBSTITUTE, kept = 0;
    uint8_t natural[ROUTE_EXPERTS_MAX], allowed[ROUTE_EXPERTS_MAX];
    float value[ROUTE_EXPERTS_MAX], sum = 0;
    for (int e = 0; e < a->experts; e++)
        value[e] = bias ? score[e] + bias[e] : score[e];
    mark_allowed_experts(a, value, NULL, natural);
    mark_allowed_experts(a, value, mask, allowed);
    for (int s = 0; s < a->top_k; s++) {
        wanted[s] = ranked(value, natural, a->experts, s);
        expert[s] = -1;
        weight[s] = 0;
    }
    for (int s = 0; s < a->top_k; s++) {
        int chosen = substitute ? ranked(value, allowed, a->experts, s) : wanted[s];
        if (chosen < 0)
            continue;
        sum += score[chosen];
        if (substitute || !mask || mask[chosen])
            expert[kept++] = chosen;
    }
    for (int s = 0; s < kept; s++)
        weight[s] = (a->renormalise ? score[expert[s]] / (sum + 1e-20f) : score[expert[s]]) * a->scale *
                    (own ? own[expert[s]] : 1);
}

/* Returns the weight that a sparsemixer gives expert `chosen` after `before` others were selected. */
static double mixed_share(const struct route_select_args *a, const float *x, const uint8_t *mask, const int32_t *taken,
                          int before, int chosen)
{
    double sum = 0;
    for (int e = 0; e < a->experts; e++) {
        int left = !mask || mask[e];
        for (int s = 0; s < before; s++)
            left &= taken[s] != e;
        if (left && !((x[chosen] - x[e]) / fmaxf(fabsf(x[e]), x[chosen]) > 2 * a->jitter))
            sum += exp((double)x[e] - x[chosen]);
    }
    return (double)a->scale / sum;
}

static void select_mixed(const struct route_select_args *a, const float *x, const uint8_t *mask, int32_t *wanted,
                         int32_t *expert, float *weight)
{
    const uint8_t *rule = mask && a->mode == BUDGET_SUBSTITUTE ? mask : NULL;
    int32_t chosen[ROUTE_EXPERTS_MAX];
    int kept = 0;
    for (int s = 0; s < a->top_k; s++) {
        wanted[s] = ranked(x, NULL, a->experts, s);
        chosen[s] = ranked(x, rule, a->experts, s);
        expert[s] = -1;
        weight[s] = 0;
    }
    for (int s = 0; s < a->top_k && chosen[s] >= 0; s++)
        if (!mask || mask[chosen[s]]) {
            weight[kept] = (float)mixed_share(a, x, rule, chosen, s, chosen[s]);
            expert[kept++] = chosen[s];
        }
}

/* Moves the slots of zero experts to the end, as -1, and sets *sum to the sum of their weights. */
static void take_zero(const struct route_select_args *a, int32_t *wanted, int32_t *expert, float *weight, float *sum)
{
    *sum = 0;
    for (int s = 0, left = a->top_k; left > 0; left--) {
        if (expert[s] < a->experts - a->zero) {
            s++;
            continue;
        }
        *sum += weight[s];
        for (int i = s; i + 1 < a->top_k; i++) {
            wanted[i] = wanted[i + 1];
            expert[i] = expert[i + 1];
            weight[i] = weight[i + 1];
        }
        wanted[a->top_k - 1] = expert[a->top_k - 1] = -1;
        weight[a->top_k - 1] = 0;
    }
}

void ref_route_select(struct queue *queue, const struct route_select_args *a)
{
    const float *score = ref_floats(queue, a->score, (int64_t)a->rows * a->experts);
    const float *bias = a->bias.address ? ref_floats(queue, a->bias, a->experts) : NULL;
    const float *own = a->expert_scale.address ? ref_floats(queue, a->expert_scale, a->experts) : NULL;
    const uint8_t *mask = a->mask.address ? ref_bytes(queue, a->mask, (uint64_t)a->experts) : NULL;
    int32_t *wanted = ref_integers(queue, a->wanted, (int64_t)a->rows * a->top_k);
    int32_t *expert = ref_integers(queue, a->expert, (int64_t)a->rows * a->top_k);
    float *weight = ref_floats(queue, a->weight, (int64_t)a->rows * a->top_k);
    for (int r = 0; r < a->rows; r++) {
        int64_t slot = (int64_t)r * a->top_k;
        if (a->kind == ROUTER_SPARSEMIXER) {
            const float *logits = ref_floats(queue, a->logits, (int64_t)a->rows * a->experts);
            select_mixed(a, logits + (int64_t)r * a->experts, mask, wanted + slot, expert + slot, weight + slot);
            continue;
        }
        select_row(a, score + (int64_t)r * a->experts, bias, own, mask, wanted + slot, expert + slot, weight + slot);
        if (a->zero)
            take_zero(a, wanted + slot, expert + slot, weight + slot, ref_floats(queue, a->zero_weight, a->rows) + r);
    }
}
