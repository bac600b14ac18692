/* kernels/expert_ffn.h in three launches: grouping; gate and up with their activation; down, whose last block of a unit adds
 * the slots (not with `apart`). Where there are too few tickets, the sum is a launch of its own. With q8 and q4 a further
 * launch before each product quantises its inputs. slab_expert_ffn.cu computes slabs.
 *
 * An ITEM is up to 16 pairs (row * slots + slot) that request the same expert: the rows of a block. Scratch `group` holds the
 * items, as one 16-byte load each, then the pairs in the order of their experts, ascending within one, then the number of
 * items. Results do not depend on which pairs share an item (tile.h).
 *
 * The number of items is known on the device alone: live rows may be far fewer than the maximum, and rows share experts. So a
 * grid is as wide as one row's items need and wide enough to fill a GPU, and blocks process item after item. Blocks of down
 * that have read their weights prefetch the weights of a later launch (`ahead`). */
#include "kernels/cuda/slab.h"
#include "kernels/cuda/tile.h"
#include "kernels/plain/glu.h"

enum { GROUP_THREADS = 256, GROUP_WARPS = GROUP_THREADS / WARP };

/* Minimum number of blocks of an experts' product, if there can be items for them: two for each block that fits on the
 * processors of a large GPU. */
enum { EXPERT_BLOCKS = 512 };

/* Pairs first .. first + count - 1 in order, and the address of their expert's block. */
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

/* Replaces the counts in next [GROUP_WARPS][experts] by the index of each warp's first pair of each expert, in the order of
 * experts, then of warps, and writes the items. Returns the number of items. One thread per expert; sums hold items in their
 * upper half, pairs in their lower half. */
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

/* One block. Each warp reads its run of pairs twice, 32 at a time: first it counts the pairs of each expert; after put_items
 * turned the counts into indices it writes the pairs there. */
__global__ void __launch_bounds__(GROUP_THREADS) expert_group_kernel(struct expert_ffn_args a, int tokens,
                                                                       const int32_t *live)
{
    in_turn();
    SHARED_DYN(int, next);
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

/* inner = glu(gate, up) of an item, for 16 inner widths: a unit has gate and up of the same widths. */
template <int FORMAT, bool FEW>
DEVICE void gate_up_item(const struct expert_ffn_args &a, const struct tile_cut &cut, const struct expert_item &item,
                         struct tile_memory *memory)
{
    SHARED(int, pair, TILE_TOKENS_MAX);
    const unsigned char *weight = item.block + unit_bytes_of(FORMAT, a.hidden) * (size_t)blockIdx.x;
    tile_prefetch<FORMAT>(weight, a.hidden, cut, 0);
    if ((int)threadIdx.x < item.count) {
        pair[threadIdx.x] = pairs_of(a)[item.first + (int)threadIdx.x];
        memory->row[threadIdx.x] = pair[threadIdx.x] / a.slots;
    }
    __syncthreads();
    struct tile_in in = {device_pointer<float>(a.in), device_pointer<struct quantised>(a.operand), a.hidden, a.hidden,
                         item.count, true};
    tile_product<FORMAT, false, FEW>::run(weight, in, cut, memory);
    int token = (int)threadIdx.x / UNIT_INNER, i = (int)threadIdx.x % UNIT_INNER, at = (int)blockIdx.x * UNIT_INNER + i;
    if (token >= item.count || at >= a.inner_width)
        return;
    float gate = memory->sums[token * UNIT_OUTPUTS + i], up = memory->sums[token * UNIT_OUTPUTS + UNIT_INNER + i];
    if (a.gate_up_bias.address) {
        const float *bias = device_pointer<float>(a.gate_up_bias) + (int64_t)item.expert * 2 * a.inner_width;
        gate = gate + bias[at];
        up = up + bias[a.inner_width + at];
    }
    device_pointer<float>(a.inner)[(int64_t)pair[token] * a.inner_width + at] = plain_glu(a.glu, gate, up, a.limit, a.alpha);
}

/* partial = down(inner) of an item, for 32 outputs. `offset`: of down in an expert's block. */
template <int FORMAT, bool FEW>
DEVICE void down_item(const struct expert_ffn_args &a, const struct tile_cut &cut, const struct expert_item &item,
                      size_t offset, struct tile_memory *memory)
{
    const unsigned char *weight = item.block + offset + unit_bytes_of(FORMAT, a.inner_width) * (size_t)blockIdx.x;
    tile_prefetch<FORMAT>(weight, a.inner_width, cut, 0);
    if ((int)threadIdx.x < item.count)
        memory->row[threadIdx.x] = pairs_of(a)[item.first + (int)threadIdx.x];
    __syncthreads();
    struct tile_in in = {device_pointer<float>(a.inner), device_pointer<struct quantised>(a.operand), a.inner_width,
                         a.inner_width, item.count, true};
    tile_product<FORMAT, false, FEW>::run(weight, in, cut, memory);
    int o = (int)blockIdx.x * UNIT_OUTPUTS + lane_id();
    for (int token = warp_id(); token < item.count && o < a.hidden; token += TILE_WARPS) {
        float y = memory->sums[token * UNIT_OUTPUTS + lane_id()];
        if (a.down_bias.address)
            y = y + device_pointer<float>(a.down_bias)[(int64_t)item.expert * a.hidden + o];
        device_pointer<float>(a.partial)[(int64_t)memory->row[token] * a.hidden + o] = y;
    }
}

/* Returns a float of a row of `out` with the slots added in their order. */
DEVICE float sum_of_slots(const struct expert_ffn_args &a, int row, int i, float sum)
{
    for (int64_t pair = (int64_t)row * a.slots; pair < (int64_t)(row + 1) * a.slots; pair++) {
        if (a.expert.address && device_pointer<int32_t>(a.expert)[pair] < 0)
            continue;
        float weight = a.weight.address ? device_pointer<float>(a.weight)[pair] : 1.0f;
        if (a.scale != 0)
            weight = weight * a.scale;
        sum = fmaf(weight, device_pointer<float>(a.partial)[pair * a.hidden + i], sum);
    }
    return sum;
}

/* Both products: grid (units, items at a time). */
template <int FORMAT, bool FEW>
__global__ void __launch_bounds__(TILE_THREADS, tile_resident<FORMAT, FEW>())
    expert_gate_up_kernel(struct expert_ffn_args a, struct tile_cut cut)
{
    in_turn();
    SHARED_DYN(struct tile_memory, memory);
    for (int i = (int)blockIdx.y; i < *item_count(a); i += (int)gridDim.y) {
        gate_up_item<FORMAT, FEW>(a, cut, item_at(a, i), memory);
        __syncthreads();
    }
}

/* With tickets, one for each unit, the last block of a unit adds the slots of all rows for its 32 outputs. */
template <int FORMAT, bool FEW>
__global__ void __launch_bounds__(TILE_THREADS, tile_resident<FORMAT, FEW>())
    expert_down_kernel(struct expert_ffn_args a, struct tile_cut cut, size_t offset, const int32_t *live)
{
    in_turn();
    SHARED_DYN(struct tile_memory, memory);
    for (int i = (int)blockIdx.y; i < *item_count(a); i += (int)gridDim.y) {
        down_item<FORMAT, FEW>(a, cut, item_at(a, i), offset, memory);
        __syncthreads();
    }
    prefetch_part(a.ahead, blockIdx.y * gridDim.x + blockIdx.x, gridDim.x * gridDim.y);
    int o = (int)blockIdx.x * UNIT_OUTPUTS + lane_id();
    if (!cut.tickets || !spread_last(cut.tickets + blockIdx.x, gridDim.y) || o >= a.hidden)
        return;
    for (int row = warp_id(); row < live_rows(live, a.rows); row += TILE_WARPS) {
        float *out = device_pointer<float>(a.out) + (int64_t)row * a.hidden + o;
        *out = sum_of_slots(a, row, o, *out);
    }
}

/* One thread adds all slots of one float of a row, in their order. */
__global__ void expert_sum_kernel(struct expert_ffn_args a, const int32_t *live)
{
    in_turn();
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = (int)blockIdx.y;
    if (i >= a.hidden || not_live(live, r))
        return;
    float *out = device_pointer<float>(a.out) + (int64_t)r * a.hidden + i;
    *out = sum_of_slots(a, r, i, *out);
}

void cuda_expert_sum(struct queue *queue, const struct expert_ffn_args *a)
{
    LAUNCH_PDL(expert_sum_kernel, dim3(blocks_for(a->hidden, 256), (unsigned)a->rows), dim3(256), 0, cuda_stream(queue), *a,
               cuda_live(queue));
}

/* Returns a grid with at least as many items at a time as one row has, increased to EXPERT_BLOCKS blocks, and at most the
 * number of possible items. */
static dim3 expert_grid(const struct expert_ffn_args *a, unsigned units, int items)
{
    int wanted = (int)blocks_for(EXPERT_BLOCKS, (int)units);
    wanted = wanted < a->slots ? a->slots : wanted;
    return dim3(units, (unsigned)(wanted < items ? wanted : items));
}

void cuda_expert_ffn(struct queue *queue, const struct expert_ffn_args *a)
{
    const struct cuda_context *context = (const struct cuda_context *)queue->state;
    struct expert_ffn_args down = *a;
    int gate_rows = tile_rows(a->format, a->rows), down_rows = tile_rows(a->down_format, a->rows);
    int tokens = gate_rows < down_rows ? gate_rows : down_rows, pairs = a->rows * a->slots;
    /* Each item but the last of an expert is full. */
    int items = a->experts + pairs / tokens < pairs ? a->experts + pairs / tokens : pairs;
    dim3 wide = expert_grid(a, blocks_for(a->inner_width, UNIT_INNER), items);
    dim3 deep = expert_grid(a, blocks_for(a->hidden, UNIT_OUTPUTS), items);
    dev_stream stream = cuda_stream(queue);
    struct buffer in = {a->in.address, a->in.bytes}, none = {0, 0};
    const bool few = cuda_does(queue, CUDA_FEW);
    size_t offset = unit_bytes_of(a->format, a->hidden) * blocks_for(a->inner_width, UNIT_INNER);
    if (a->rows < 1)
        return;
    if (slab_takes(queue, a->slab, a->format) && slab_takes(queue, a->slab, a->down_format)) {
        slab_expert_ffn(queue, a);
        return;
    }
    LAUNCH_PDL(expert_group_kernel, dim3(1), dim3(GROUP_THREADS), (size_t)(GROUP_WARPS * a->experts) * sizeof(int), stream, *a,
               tokens, cuda_live(queue));
    if (format_quantised(a->format))
        cuda_quantise(queue, in, a->hidden, a->rows, 1, a->hidden, none, a->operand);
    TILE_LAUNCH(expert_gate_up_kernel, a->format, tokens, few, wide, stream, *a, tile_whole(a->format, a->hidden, tokens));
    if (format_quantised(a->down_format))
        cuda_quantise(queue, a->inner, a->inner_width, pairs, a->slots, a->inner_width, a->expert, a->operand);
    down.ahead = cuda_ahead(queue, a->ahead);
    struct tile_cut cut = tile_whole(a->down_format, a->inner_width, tokens);
    if (!a->apart && context->tickets && deep.x <= CONTEXT_TICKETS && cuda_does(queue, CUDA_SUM))
        cut.tickets = context->tickets;
    TILE_LAUNCH(expert_down_kernel, a->down_format, tokens, few, deep, stream, down, cut, offset, cuda_live(queue));
    if (!a->apart && !cut.tickets)
        cuda_expert_sum(queue, a);
}
