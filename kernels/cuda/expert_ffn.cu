/* kernels/expert_ffn.h in three launches: grouping (expert_group.h); gate and up with their activation; down, whose last block
 * of a unit adds the slots (not with `apart`). If there are too few tickets, the sum is a separate launch. With q8 and q4,
 * another launch before each product quantises its inputs. slab_expert_ffn.cu computes slabs.
 *
 * Results do not depend on which pairs share an item (tile.h).
 *
 * The number of items is known on the device only: live rows may be far fewer than the maximum, and rows share experts. So a
 * grid is as wide as the items of one row require and wide enough to fill a GPU, and blocks process item after item. Blocks of
 * down that have read their weights prefetch the weights of a later launch (`ahead`). */
#include "kernels/cuda/expert_group.h"
#include "kernels/cuda/slab.h"
#include "kernels/cuda/tile.h"
#include "kernels/plain/glu.h"

/* Minimum number of blocks of an experts' product, if there can be items for them: twice the number that run at a time on a
 * large GPU. */
enum { EXPERT_BLOCKS = 512 };

__global__ void __launch_bounds__(GROUP_THREADS) expert_group_kernel(struct expert_ffn_args a, int tokens,
                                                                       const int32_t *live)
{
    pdl_begin();
    SHARED_DYN(int, next);
    group_pairs(a, tokens, next, live);
}

/* Computes inner = glu(gate, up) of an item, for 16 inner widths: a unit contains gate and up of the same widths. */
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

/* Computes partial = down(inner) of an item, for 32 outputs. `offset`: of down in an expert's block. */
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

/* Returns one float of a row of `out` with the slots added in slot order. */
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

/* Computes the inner activations, from gate and up. Grid of this kernel and of the next one: (units, items at a time). */
template <int FORMAT, bool FEW>
__global__ void __launch_bounds__(TILE_THREADS, tile_resident<FORMAT, FEW>())
    expert_gate_up_kernel(struct expert_ffn_args a, struct tile_cut cut)
{
    pdl_begin();
    SHARED_DYN(struct tile_memory, memory);
    for (int i = (int)blockIdx.y; i < *item_count(a); i += (int)gridDim.y) {
        gate_up_item<FORMAT, FEW>(a, cut, item_at(a, i), memory);
        __syncthreads();
    }
}

/* Computes the product with down. With tickets, one per unit, the last block of a unit adds the slots of all rows for its 32
 * outputs. */
template <int FORMAT, bool FEW>
__global__ void __launch_bounds__(TILE_THREADS, tile_resident<FORMAT, FEW>())
    expert_down_kernel(struct expert_ffn_args a, struct tile_cut cut, size_t offset, const int32_t *live)
{
    pdl_begin();
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

/* One thread adds all slots of one float of a row, in slot order. */
__global__ void expert_sum_kernel(struct expert_ffn_args a, const int32_t *live)
{
    pdl_begin();
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

/* Returns a grid with at least as many items at a time as one row requires, increased to EXPERT_BLOCKS blocks, but at most the
 * number of possible items. */
static dim3 expert_grid(const struct expert_ffn_args *a, unsigned units, int items)
{
    int wanted = (int)blocks_for(EXPERT_BLOCKS, (int)units);
    wanted = wanted < a->slots ? a->slots : wanted;
    return dim3(units, (unsigned)(wanted < items ? wanted : items));
}

int expert_item_pairs(const struct expert_ffn_args *a)
{
    const int gate_rows = tile_rows(a->format, a->rows), down_rows = tile_rows(a->down_format, a->rows);
    return gate_rows < down_rows ? gate_rows : down_rows;
}

void expert_products(struct queue *queue, const struct expert_ffn_args *a)
{
    const struct cuda_context *context = (const struct cuda_context *)queue->state;
    struct expert_ffn_args down = *a;
    int tokens = expert_item_pairs(a), pairs = a->rows * a->slots;
    /* All items of an expert are full except the last one. */
    int items = a->experts + pairs / tokens < pairs ? a->experts + pairs / tokens : pairs;
    dim3 wide = expert_grid(a, blocks_for(a->inner_width, UNIT_INNER), items);
    dim3 deep = expert_grid(a, blocks_for(a->hidden, UNIT_OUTPUTS), items);
    dev_stream stream = cuda_stream(queue);
    struct buffer in = {a->in.address, a->in.bytes}, none = {0, 0};
    const bool few = cuda_enabled(queue, CUDA_FEW);
    size_t offset = unit_bytes_of(a->format, a->hidden) * blocks_for(a->inner_width, UNIT_INNER);
    if (format_quantised(a->format))
        cuda_quantise(queue, in, a->hidden, a->rows, 1, a->hidden, none, a->operand);
    TILE_LAUNCH(expert_gate_up_kernel, a->format, tokens, few, wide, stream, *a, tile_whole(a->format, a->hidden, tokens));
    if (format_quantised(a->down_format))
        cuda_quantise(queue, a->inner, a->inner_width, pairs, a->slots, a->inner_width, a->expert, a->operand);
    down.ahead = cuda_ahead(queue, a->ahead);
    struct tile_cut cut = tile_whole(a->down_format, a->inner_width, tokens);
    if (!a->apart && context->tickets && deep.x <= CONTEXT_TICKETS && cuda_enabled(queue, CUDA_SUM))
        cut.tickets = context->tickets;
    TILE_LAUNCH(expert_down_kernel, a->down_format, tokens, few, deep, stream, down, cut, offset, cuda_live(queue));
    if (!a->apart && !cut.tickets)
        cuda_expert_sum(queue, a);
}

void cuda_expert_ffn(struct queue *queue, const struct expert_ffn_args *a)
{
    if (a->rows < 1)
        return;
    if (slab_takes(queue, a->slab, a->format) && slab_takes(queue, a->slab, a->down_format)) {
        slab_expert_ffn(queue, a);
        return;
    }
    LAUNCH_PDL(expert_group_kernel, dim3(1), dim3(GROUP_THREADS), (size_t)(GROUP_WARPS * a->experts) * sizeof(int),
               cuda_stream(queue), *a, expert_item_pairs(a), cuda_live(queue));
    expert_products(queue, a);
}
