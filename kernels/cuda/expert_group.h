/* Pairs (row * slots + slot) of kernels/expert_ffn.h grouped by their experts, for products of experts.
 *
 * An ITEM is up to 16 pairs that request the same expert: the rows of a block. Scratch `group` contains the items, one 16-byte
 * load each; then the pairs, ordered by expert and ascending within an expert; then the number of items. */
#ifndef MOE_KERNELS_CUDA_EXPERT_GROUP_H
#define MOE_KERNELS_CUDA_EXPERT_GROUP_H

#include "kernels/cuda/cuda.h"

enum { GROUP_THREADS = 256, GROUP_WARPS = GROUP_THREADS / WARP };

/* Pairs first .. first + count - 1 in that order, and the address of their expert's block. */
struct expert_item {
    const unsigned char *block;
    int first, expert, count;
};

DEVICE uint4 *items_of(const struct expert_ffn_args &a) { return device_pointer<uint4>(a.group); }
DEVICE int32_t *pairs_of(const struct expert_ffn_args &a) { return (int32_t *)(items_of(a) + (int64_t)a.rows * a.slots); }

DEVICE int32_t *item_count(const struct expert_ffn_args &a) { return pairs_of(a) + (int64_t)a.rows * a.slots; }

DEVICE uint4 item_put(uint64_t block, int first, int expert, int count)
{
    return make_uint4((uint32_t)block, (uint32_t)(block >> 32), (uint32_t)first, (uint32_t)expert << 16 | (uint32_t)count);
}

DEVICE struct expert_item item_at(const struct expert_ffn_args &a, int item)
{
    uint4 raw = items_of(a)[item];
    const unsigned char *block = (const unsigned char *)(uintptr_t)((uint64_t)raw.y << 32 | raw.x);
    return {block, (int)raw.z, (int)(raw.w >> 16), (int)(raw.w & 0xffffu)};
}

/* Returns the expert that a pair selects; -1: none, or no such pair. *alike: the lanes of the warp whose pairs select the same
 * expert. */
DEVICE int wanted_at(const struct expert_ffn_args &a, int pair, int end, unsigned *alike)
{
    const int32_t *expert = device_pointer<int32_t>(a.expert);
    int e = pair >= end ? -1 : expert ? expert[pair] : 0;
    *alike = __match_any_sync(FULL_MASK, (unsigned)e);
    return e;
}

/* Replaces the counts in next [GROUP_WARPS][experts] by the index of each warp's first pair of each expert, ordered by expert,
 * then by warp, and writes the items. Returns the number of items. One thread per expert; sums store items in their upper half,
 * pairs in their lower half. */
DEVICE int put_items(const struct expert_ffn_args &a, int tokens, int *next)
{
    SHARED(uint64_t, of_warp, GROUP_WARPS);
    uint64_t before = 0;
    for (int round = 0; round < a.experts; round += GROUP_THREADS) {
        int e = round + (int)threadIdx.x, count = 0;
        for (int w = 0; w < GROUP_WARPS && e < a.experts; w++)
            count += next[w * a.experts + e];
        uint64_t own = (uint64_t)((count + tokens - 1) / tokens) << 32 | (unsigned)count, sum = own, all = before;
        for (int step = 1; step < WARP; step *= 2) {
            uint64_t lower = __shfl_up_sync(FULL_MASK, sum, (unsigned)step);
            sum += lane_id() < step ? 0 : lower;
        }
        if (lane_id() == WARP - 1)
            of_warp[warp_id()] = sum;
        __syncthreads();
        sum += before - own;
        for (int w = 0; w < GROUP_WARPS; w++) {
            sum += w < warp_id() ? of_warp[w] : 0;
            all += of_warp[w];
        }
        int pair = (int)(uint32_t)sum, item = (int)(sum >> 32);
        uint64_t block = count ? device_pointer<uint64_t>(a.table)[e] : 0;
        for (int i = 0; i < count; i += tokens)
            items_of(a)[item++] = item_put(block, pair + i, e, min(tokens, count - i));
        for (int w = 0; w < GROUP_WARPS && e < a.experts; w++) {
            int first = pair;
            pair += next[w * a.experts + e];
            next[w * a.experts + e] = first;
        }
        before = all;
        __syncthreads();
    }
    return (int)(before >> 32);
}

/* Groups the pairs of the live rows, in one block. Each warp reads its range of pairs twice, 32 at a time: first it counts the
 * pairs of each expert; after put_items has replaced the counts by indices, it writes the pairs there. next
 * [GROUP_WARPS][experts], in shared memory. */
DEVICE void group_pairs(const struct expert_ffn_args &a, int tokens, int *next, const int32_t *live)
{
    int pairs = live_rows(live, a.rows) * a.slots, lane = lane_id();
    int each = (pairs + GROUP_THREADS - 1) / GROUP_THREADS * WARP, first = each * warp_id(), end = min(first + each, pairs);
    int *own = next + warp_id() * a.experts;
    unsigned alike;
    for (int i = (int)threadIdx.x; i < GROUP_WARPS * a.experts; i += GROUP_THREADS)
        next[i] = 0;
    __syncthreads();
    for (int i = first; i < end; i += WARP) {
        int e = wanted_at(a, i + lane, end, &alike);
        if (e >= 0 && lane == __ffs((int)alike) - 1)
            own[e] += __popc(alike);
        __syncwarp();
    }
    __syncthreads();
    int items = put_items(a, tokens, next);
    if (threadIdx.x == 0)
        *item_count(a) = items;
    for (int i = first; i < end; i += WARP) {
        int e = wanted_at(a, i + lane, end, &alike), rank = __popc(alike & ((1u << lane) - 1));
        if (e >= 0)
            pairs_of(a)[own[e] + rank] = i + lane;
        __syncwarp();
        if (e >= 0 && rank == 0)
            own[e] += __popc(alike);
        __syncwarp();
    }
}

/* expert_ffn.cu: return the pairs of an item, and queue both products of grouped pairs and the sum of slots. */
int expert_item_pairs(const struct expert_ffn_args *args);
void expert_products(struct queue *queue, const struct expert_ffn_args *args);

#endif
