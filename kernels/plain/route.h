/* The selections of kernels/route.h over plain arrays, for host and GPU. All in f32, so the bits are the same everywhere. */
#ifndef MOE_KERNELS_PLAIN_ROUTE_H
#define MOE_KERNELS_PLAIN_ROUTE_H

#include <stddef.h>

#include "kernels/plain/math.h"

/* Returns whether x ranks before y: it is larger. A NaN is smaller than every other value. */
PLAIN int plain_larger(float x, float y) { return x > y || (y != y && x == x); }

/* Writes the indices of the `count` largest of value[0 .. experts-1] whose mask is 1 (NULL: all), largest first, the lower
 * index first among equals. Returns their number, which is less than count if the mask allows fewer. */
PLAIN int plain_top(const float *value, const uint8_t *mask, int experts, int count, int32_t *index)
{
    int found = 0;
    for (int e = 0; e < experts; e++) {
        if (mask && !mask[e])
            continue;
        if (found == count && !plain_larger(value[e], value[index[found - 1]]))
            continue;
        int at = found < count ? found++ : count - 1;
        for (; at > 0 && plain_larger(value[e], value[index[at - 1]]); at--)
            index[at] = index[at - 1];
        index[at] = e;
    }
    return found;
}

enum { PLAIN_EXPERTS_MAX = 1024 };

/* Parameters of route_select for one row; bias, expert_scale NULL: none. With `substitute` a row selects among the experts that
 * its mask allows; without, forbidden experts are dropped from its selection. */
struct plain_router {
    const float *bias, *expert_scale, *logits;      /* logits: of the row, for a sparsemixer; NULL: another kind */
    int experts, top_k, groups, groups_kept, group_rank, substitute, renormalise;
    float scale, jitter;
};

/* Sets open[e] = 1 for experts whose mask is 1 (NULL: all) and that belong to one of the best groups, else 0. */
PLAIN void plain_groups(const struct plain_router *r, const float *value, const uint8_t *mask, uint8_t *open)
{
    float sum[PLAIN_EXPERTS_MAX];
    uint8_t any[PLAIN_EXPERTS_MAX];
    int32_t best[PLAIN_EXPERTS_MAX];
    int size = r->experts / r->groups;
    for (int g = 0; g < r->groups; g++) {
        int first = g * size, found = plain_top(value + first, mask ? mask + first : NULL, size, r->group_rank, best);
        any[g] = found > 0;
        sum[g] = found > 0 ? value[first + best[0]] : 0;
        if (found > 1)
            sum[g] += value[first + best[1]];
    }
    int kept = plain_top(sum, any, r->groups, r->groups_kept, best);
    for (int e = 0; e < r->experts; e++)
        open[e] = 0;
    for (int i = 0; i < kept; i++)
        for (int e = best[i] * size; e < (best[i] + 1) * size; e++)
            open[e] = !mask || mask[e];
}

/* Selects the top_k by value under the mask, with groups. Returns their number. */
PLAIN int plain_choose(const struct plain_router *r, const float *value, const uint8_t *mask, int32_t *index)
{
    uint8_t open[PLAIN_EXPERTS_MAX];
    if (r->groups <= 1)
        return plain_top(value, mask, r->experts, r->top_k, index);
    plain_groups(r, value, mask, open);
    return plain_top(value, open, r->experts, r->top_k, index);
}

/* Fills the slots of a sparsemixer under the mask, with their weights. Returns their number. */
PLAIN int plain_sparsemixer(const struct plain_router *r, const uint8_t *mask, int32_t *index, float *weight)
{
    const float *x = r->logits;
    uint8_t left[PLAIN_EXPERTS_MAX];
    int found = 0;
    for (int e = 0; e < r->experts; e++)
        left[e] = !mask || mask[e];
    for (; found < r->top_k && plain_top(x, left, r->experts, 1, index + found); found++) {
        float max = x[index[found]], sum = 0;
        for (int e = 0; e < r->experts; e++) {
            float size = fabsf(x[e]) > max ? fabsf(x[e]) : max;
            if (left[e] && !((max - x[e]) / size > 2 * r->jitter))
                sum += plain_exp(x[e] - max);
        }
        weight[found] = 1 / sum * r->scale;
        left[index[found]] = 0;
    }
    return found;
}

/* Computes one row of route_select for a sparsemixer. */
PLAIN void plain_select_mixed(const struct plain_router *r, const uint8_t *mask, int32_t *wanted, int32_t *expert,
                              float *weight)
{
    int kept = 0;
    plain_sparsemixer(r, NULL, wanted, weight);
    if (mask && r->substitute) {
        kept = plain_sparsemixer(r, mask, expert, weight);
    } else {
        for (int s = 0; s < r->top_k; s++)
            if (!mask || mask[wanted[s]]) {
                weight[kept] = weight[s];
                expert[kept++] = wanted[s];
            }
    }
    for (int s = kept; s < r->top_k; s++) {
        expert[s] = -1;
        weight[s] = 0;
    }
}

/* Takes the slots of experts from `first` on, which are zero experts, out of a row. Returns the sum of their weights. */
PLAIN float plain_take_zero(int first, int top_k, int32_t *wanted, int32_t *expert, float *weight)
{
    float sum = 0;
    int kept = 0;
    for (int s = 0; s < top_k; s++)
        if (expert[s] >= first) {
            sum += weight[s];
        } else {
            weight[kept] = weight[s];
            wanted[kept] = expert[kept] = expert[s];
            kept++;
        }
    for (; kept < top_k; kept++) {
        wanted[kept] = expert[kept] = -1;
        weight[kept] = 0;
    }
    return sum;
}

/* Computes one row of route_select for all other kinds. */
PLAIN void plain_select(const struct plain_router *r, const float *score, const uint8_t *mask, int32_t *wanted, int32_t *expert,
                        float *weight)
{
    float biased[PLAIN_EXPERTS_MAX], sum = 0;
    const float *value = score;
    int kept = 0;
    if (r->bias) {
        for (int e = 0; e < r->experts; e++)
            biased[e] = score[e] + r->bias[e];
        value = biased;
    }
    plain_choose(r, value, NULL, wanted);
    if (mask && r->substitute) {
        kept = plain_choose(r, value, mask, expert);
        for (int s = 0; s < kept; s++)
            sum += score[expert[s]];
    } else {
        for (int s = 0; s < r->top_k; s++) {
            sum += score[wanted[s]];
            if (!mask || mask[wanted[s]])
                expert[kept++] = wanted[s];
        }
    }
    for (int s = 0; s < kept; s++)
        weight[s] = (r->renormalise ? score[expert[s]] / (sum + 1e-20f) : score[expert[s]]) * r->scale;
    for (int s = 0; r->expert_scale && s < kept; s++)
        weight[s] *= r->expert_scale[expert[s]];
    for (int s = kept; s < r->top_k; s++) {
        expert[s] = -1;
        weight[s] = 0;
    }
}

#endif
