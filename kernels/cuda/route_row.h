/* route_score and route_select of kernels/route.h for one row, by one warp, shared by the kernels of the router. Each slot
 * selects the best remaining expert: a lane scans its own experts in ascending order, then the lanes compare the best of each;
 * the larger value wins, then the lower expert, and a NaN loses. Sums are added in the contract's order, by every lane or by
 * one. */
#ifndef MOE_KERNELS_CUDA_ROUTE_ROW_H
#define MOE_KERNELS_CUDA_ROUTE_ROW_H

#include "kernels/cuda/cuda.h"
#include "kernels/plain/math.h"
#include "kernels/plain/route.h"

/* A row's shared memory: arrays with one element per expert. */
struct route_memory {
    float *share, *value, *group;
    int *natural, *chosen;
    uint8_t *left, *some, *kept;
};

/* Returns the bytes of a row's memory, a multiple of 16. */
__host__ __device__ constexpr size_t route_bytes(int experts)
{
    return ((5 * sizeof(float) + 3) * (size_t)experts + 15) / 16 * 16;
}

/* Returns the arrays in a row's memory. The memory is aligned to 16 bytes, and so is `share`. */
DEVICE struct route_memory route_memory_at(unsigned char *memory, int experts)
{
    float *floats = (float *)memory;
    int *numbers = (int *)(floats + 3 * experts);
    uint8_t *bytes = (uint8_t *)(numbers + 2 * experts);
    return {floats, floats + experts, floats + 2 * experts, numbers, numbers + experts,
            bytes, bytes + experts, bytes + 2 * experts};
}

/* Computes the scores of a row. Each lane adds all shares itself, and loads sixteen of them before it adds them. */
DEVICE void score_row(const struct route_score_args &a, int64_t row, float *share)
{
    const float *logits = device_pointer<float>(a.logits) + row * a.experts;
    float *score = device_pointer<float>(a.score) + row * a.experts;
    float max = -INFINITY, sum = 0;
    if (a.kind == ROUTER_SIGMOID) {
        for (int e = lane_id(); e < a.experts; e += WARP)
            score[e] = plain_sigmoid(logits[e]);
        return;
    }
    for (int e = lane_id(); e < a.experts; e += WARP)
        max = fmaxf(max, logits[e]);
    max = warp_max(max);
    for (int e = lane_id(); e < a.experts; e += WARP)
        share[e] = plain_exp(logits[e] - max);
    __syncwarp();
    int e = 0;
    for (; e + 16 <= a.experts; e += 16) {
        float4 some[4];
        UNROLL for (int i = 0; i < 4; i++)
            some[i] = ((const float4 *)(share + e))[i];
        UNROLL for (int i = 0; i < 4; i++) {
            sum = sum + some[i].x;
            sum = sum + some[i].y;
            sum = sum + some[i].z;
            sum = sum + some[i].w;
        }
    }
    for (; e < a.experts; e++)
        sum = sum + share[e];
    for (int i = lane_id(); i < a.experts; i += WARP)
        score[i] = share[i] / sum;
}

/* Returns the index of the best value[e] with left[e] set; -1: none is left. All lanes receive it. */
DEVICE int best_left(const float *value, const uint8_t *left, int count)
{
    int best = -1;
    float max = 0;
    for (int e = lane_id(); e < count; e += WARP)
        if (left[e] && (best < 0 || plain_larger(value[e], max))) {
            best = e;
            max = value[e];
        }
    for (int step = WARP / 2; step > 0; step /= 2) {
        int other = __shfl_xor_sync(FULL_MASK, best, step);
        float more = __shfl_xor_sync(FULL_MASK, max, step);
        bool ahead = plain_larger(more, max) || (!plain_larger(max, more) && other < best);
        if (other >= 0 && (best < 0 || ahead)) {
            best = other;
            max = more;
        }
    }
    return best;
}

/* Returns the index of the best value with left[] set, and clears left[] for it. */
DEVICE int take_best(const float *value, uint8_t *left, int count)
{
    int best = best_left(value, left, count);
    __syncwarp();
    if (best >= 0 && lane_id() == 0)
        left[best] = 0;
    __syncwarp();
    return best;
}

/* Sets m.kept[g] = 1 for the best groups, judged by the experts that the mask allows. One lane per group. */
DEVICE void keep_groups(const struct route_select_args &a, const uint8_t *mask, const struct route_memory &m)
{
    int size = a.experts / a.groups;
    for (int g = lane_id(); g < a.groups; g += WARP) {
        int best = -1, second = -1;
        for (int e = g * size; e < (g + 1) * size; e++) {
            if (mask && !mask[e])
                continue;
            if (best < 0 || plain_larger(m.value[e], m.value[best])) {
                second = best;
                best = e;
            } else if (second < 0 || plain_larger(m.value[e], m.value[second])) {
                second = e;
            }
        }
        m.some[g] = best >= 0;
        m.kept[g] = 0;
        m.group[g] = best < 0 ? 0 : a.group_rank > 1 && second >= 0 ? m.value[best] + m.value[second] : m.value[best];
    }
    for (int i = 0; i < a.groups_kept; i++) {
        int g = take_best(m.group, m.some, a.groups);
        if (g >= 0 && lane_id() == 0)
            m.kept[g] = 1;
    }
    __syncwarp();
}

/* Chooses the top_k experts by value, within a mask (NULL: none) and the group limit. Writes them to index and returns their
 * number. */
DEVICE int choose(const struct route_select_args &a, const uint8_t *mask, const struct route_memory &m, int *index)
{
    int found = 0, size = a.groups > 1 ? a.experts / a.groups : 1;
    if (a.groups > 1)
        keep_groups(a, mask, m);
    for (int e = lane_id(); e < a.experts; e += WARP)
        m.left[e] = (!mask || mask[e]) && (a.groups <= 1 || m.kept[e / size]);
    for (; found < a.top_k; found++) {
        int best = take_best(m.value, m.left, a.experts);
        if (best < 0)
            break;
        if (lane_id() == 0)
            index[found] = best;
    }
    return found;
}

/* Chooses in the same way for a sparsemixer, whose values are logits; also writes the weight of each expert to m.share. */
DEVICE int choose_mixed(const struct route_select_args &a, const uint8_t *mask, const struct route_memory &m, int *index)
{
    int found = 0;
    for (int e = lane_id(); e < a.experts; e += WARP)
        m.left[e] = !mask || mask[e];
    __syncwarp();
    for (; found < a.top_k; found++) {
        int best = best_left(m.value, m.left, a.experts);
        if (best < 0)
            break;
        float max = m.value[best], sum = 0;
        for (int e = 0; e < a.experts; e++) {
            float x = m.value[e], size = fabsf(x) > max ? fabsf(x) : max;
            if (m.left[e] && !((max - x) / size > 2 * a.jitter))
                sum = sum + plain_exp(x - max);
        }
        __syncwarp();
        if (lane_id() == 0) {
            index[found] = best;
            m.share[found] = 1 / sum * a.scale;
            m.left[best] = 0;
        }
        __syncwarp();
    }
    return found;
}

/* Writes the slots of a row: `chosen` with substitution, else the natural choice without the experts that the mask forbids. */
DEVICE void write_choice(const struct route_select_args &a, int64_t row, const float *score, const uint8_t *mask,
                         bool substitute, int found, const struct route_memory &m)
{
    int32_t *wanted = device_pointer<int32_t>(a.wanted) + row * a.top_k;
    int32_t *expert = device_pointer<int32_t>(a.expert) + row * a.top_k;
    float *weight = device_pointer<float>(a.weight) + row * a.top_k, sum = 0;
    const int *chosen = substitute ? m.chosen : m.natural;
    int kept = 0;
    for (int s = 0; s < found && a.kind != ROUTER_SPARSEMIXER; s++)
        sum = sum + score[chosen[s]];
    for (int s = 0; s < found; s++)
        if (substitute || !mask || mask[chosen[s]]) {
            float own = a.kind == ROUTER_SPARSEMIXER ? m.share[s]
                        : (a.renormalise ? score[chosen[s]] / (sum + 1e-20f) : score[chosen[s]]) * a.scale;
            if (a.expert_scale.address && a.kind != ROUTER_SPARSEMIXER)
                own = own * device_pointer<float>(a.expert_scale)[chosen[s]];
            weight[kept] = own;
            expert[kept++] = chosen[s];
        }
    for (int s = 0; s < a.top_k; s++)
        wanted[s] = m.natural[s];
    for (; kept < a.top_k; kept++) {
        expert[kept] = -1;
        weight[kept] = 0;
    }
    if (a.zero)
        device_pointer<float>(a.zero_weight)[row] = plain_take_zero(a.experts - a.zero, a.top_k, wanted, expert, weight);
}

/* Selects the experts of a row. */
DEVICE void select_row(const struct route_select_args &a, int64_t row, const struct route_memory &m)
{
    const bool mixed = a.kind == ROUTER_SPARSEMIXER;
    const float *score = device_pointer<float>(mixed ? a.logits : a.score) + row * a.experts;
    const float *bias = mixed ? nullptr : device_pointer<float>(a.bias);
    const uint8_t *mask = device_pointer<uint8_t>(a.mask);
    const bool substitute = mask && a.mode == BUDGET_SUBSTITUTE;
    for (int e = lane_id(); e < a.experts; e += WARP)
        m.value[e] = bias ? score[e] + bias[e] : score[e];
    __syncwarp();
    int found = mixed ? choose_mixed(a, nullptr, m, m.natural) : choose(a, nullptr, m, m.natural);
    if (substitute)
        found = mixed ? choose_mixed(a, mask, m, m.chosen) : choose(a, mask, m, m.chosen);
    if (lane_id() == 0)
        write_choice(a, row, score, mask, substitute, found, m);
}

#endif
