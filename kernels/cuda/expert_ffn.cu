/* kernels/expert_ffn.h in four launches: grouping; gate and up with their activation; down; the sum over slots. With q8 and q4
 * one goes before each product, which quantises what it takes. Slabs go another way (slab_expert_ffn.cu).
 *
 * An ITEM is up to 16 places (row * slots + slot) that want the same expert: a block's rows. Scratch `group` holds start
 * [experts + 1], then the places in the order of their experts, ascending within one, then the items: where in that order each
 * begins, -1 behind the last. Who stands in an item with whom changes no bit (tile.h). */
#include "kernels/cuda/slab.h"
#include "kernels/cuda/tile.h"
#include "kernels/plain/glu.h"

enum { GROUP_THREADS = 256 };

struct expert_scratch {
    int32_t *start, *place, *item;
};

DEVICE struct expert_scratch scratch_of(const struct expert_ffn_args &a)
{
    int32_t *start = device_pointer<int32_t>(a.group), *place = start + a.experts + 1;
    return {start, place, place + (int64_t)a.rows * a.slots};
}

/* One block: a thread an expert counts its places, sums those of all before it, and puts its own in ascending order. */
__global__ void expert_group_kernel(struct expert_ffn_args a, int tokens, const int32_t *live)
{
    in_turn();
    SHARED(int, count, ROUTE_EXPERTS_MAX);
    struct expert_scratch to = scratch_of(a);
    const int32_t *expert = device_pointer<int32_t>(a.expert);
    int places = live_rows(live, a.rows) * a.slots;
    for (int i = (int)threadIdx.x; i < a.rows * a.slots; i += GROUP_THREADS)
        to.item[i] = -1;
    for (int e = (int)threadIdx.x; e < a.experts; e += GROUP_THREADS) {
        int mine = 0;
        for (int i = 0; i < places; i++)
            mine += (expert ? expert[i] : 0) == e;
        count[e] = mine;
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < a.experts; e += GROUP_THREADS) {
        int before = 0, items = 0;
        for (int other = 0; other < e; other++) {
            before += count[other];
            items += (count[other] + tokens - 1) / tokens;
        }
        to.start[e] = before;
        if (e == a.experts - 1)
            to.start[a.experts] = before + count[e];
        for (int i = 0; i < count[e]; i += tokens)
            to.item[items++] = before + i;
        for (int i = 0; i < places && count[e] > 0; i++)
            if ((expert ? expert[i] : 0) == e)
                to.place[before++] = i;
    }
}

/* The block's item: its expert and, in memory->row, its places; -1: none. */
template <int FORMAT, int T>
DEVICE int take_item(const struct expert_ffn_args &a, int tokens, tile_memory<FORMAT, T> *memory, int *count)
{
    struct expert_scratch from = scratch_of(a);
    int first = from.item[blockIdx.y];
    if (first < 0)
        return -1;
    int e = a.expert.address ? device_pointer<int32_t>(a.expert)[from.place[first]] : 0;
    int left = from.start[e + 1] - first;
    *count = left < tokens ? left : tokens;
    if ((int)threadIdx.x < *count)
        memory->row[threadIdx.x] = from.place[first + (int)threadIdx.x];
    __syncthreads();
    return e;
}

/* inner = glu(gate, up): grid (units of 16 inner widths, items). A unit holds gate and up of the same widths. */
template <int FORMAT, int T>
__global__ void __launch_bounds__(TILE_THREADS, 1) expert_gate_up_kernel(struct expert_ffn_args a, int tokens)
{
    in_turn();
    typedef tile_memory<FORMAT, T> memory_type;
    SHARED_DYN(memory_type, memory);
    SHARED(int, place, TILE_TOKENS_MAX);
    int count, unit = (int)blockIdx.x, e = take_item<FORMAT, T>(a, tokens, memory, &count);
    if (e < 0)
        return;
    size_t bytes = unit_bytes_of(FORMAT, a.hidden);
    const unsigned char *block = (const unsigned char *)(uintptr_t)device_pointer<uint64_t>(a.table)[e];
    tile_prefetch(block + bytes * (size_t)unit, bytes);
    if ((int)threadIdx.x < count) {
        place[threadIdx.x] = memory->row[threadIdx.x];
        memory->row[threadIdx.x] = place[threadIdx.x] / a.slots;
    }
    __syncthreads();
    struct tile_in in = {device_pointer<float>(a.in), device_pointer<struct quantised>(a.operand), a.hidden, a.hidden, count};
    tile_product<FORMAT, T>::run(block + bytes * (size_t)unit, in, memory);
    int token = (int)threadIdx.x / UNIT_INNER, i = (int)threadIdx.x % UNIT_INNER, at = unit * UNIT_INNER + i;
    if (token >= count || at >= a.inner_width)
        return;
    float gate = memory->sums[token * UNIT_OUTPUTS + i], up = memory->sums[token * UNIT_OUTPUTS + UNIT_INNER + i];
    if (a.gate_up_bias.address) {
        const float *bias = device_pointer<float>(a.gate_up_bias) + (int64_t)e * 2 * a.inner_width;
        gate = gate + bias[at];
        up = up + bias[a.inner_width + at];
    }
    device_pointer<float>(a.inner)[(int64_t)place[token] * a.inner_width + at] = plain_glu(gate, up, a.limit, a.alpha);
}

/* partial = down(inner): grid (units of 32 outputs, items). `offset`: of down in an expert's block. */
template <int FORMAT, int T>
__global__ void __launch_bounds__(TILE_THREADS, 1) expert_down_kernel(struct expert_ffn_args a, int tokens, size_t offset)
{
    in_turn();
    typedef tile_memory<FORMAT, T> memory_type;
    SHARED_DYN(memory_type, memory);
    int count, unit = (int)blockIdx.x, o = unit * UNIT_OUTPUTS + lane_id(), e = take_item<FORMAT, T>(a, tokens, memory, &count);
    if (e < 0)
        return;
    size_t bytes = unit_bytes_of(FORMAT, a.inner_width);
    const unsigned char *block = (const unsigned char *)(uintptr_t)device_pointer<uint64_t>(a.table)[e] + offset;
    tile_prefetch(block + bytes * (size_t)unit, bytes);
    struct tile_in in = {device_pointer<float>(a.inner), device_pointer<struct quantised>(a.operand), a.inner_width,
                         a.inner_width, count};
    tile_product<FORMAT, T>::run(block + bytes * (size_t)unit, in, memory);
    for (int token = warp_id(); token < count && o < a.hidden; token += TILE_WARPS) {
        float y = memory->sums[token * UNIT_OUTPUTS + lane_id()];
        if (a.down_bias.address)
            y = y + device_pointer<float>(a.down_bias)[(int64_t)e * a.hidden + o];
        device_pointer<float>(a.partial)[(int64_t)memory->row[token] * a.hidden + o] = y;
    }
}

/* A thread adds all slots of one float of a row, in their order. */
__global__ void expert_sum_kernel(struct expert_ffn_args a, const int32_t *live)
{
    in_turn();
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = (int)blockIdx.y;
    if (i >= a.hidden || not_live(live, r))
        return;
    float *out = device_pointer<float>(a.out) + (int64_t)r * a.hidden + i, sum = *out;
    for (int64_t place = (int64_t)r * a.slots; place < (int64_t)(r + 1) * a.slots; place++) {
        if (a.expert.address && device_pointer<int32_t>(a.expert)[place] < 0)
            continue;
        float weight = a.weight.address ? device_pointer<float>(a.weight)[place] : 1.0f;
        if (a.scale != 0)
            weight = weight * a.scale;
        sum = fmaf(weight, device_pointer<float>(a.partial)[place * a.hidden + i], sum);
    }
    *out = sum;
}

void cuda_expert_sum(struct queue *queue, const struct expert_ffn_args *a)
{
    LAUNCH_PDL(expert_sum_kernel, dim3(blocks_for(a->hidden, 256), (unsigned)a->rows), dim3(256), 0, cuda_stream(queue), *a,
               cuda_live(queue));
}

void cuda_expert_ffn(struct queue *queue, const struct expert_ffn_args *a)
{
    int gate_rows = tile_rows(a->format, a->rows), down_rows = tile_rows(a->down_format, a->rows);
    int tokens = gate_rows < down_rows ? gate_rows : down_rows, places = a->rows * a->slots;
    /* Each item but the last of an expert is full. */
    int items = a->experts + places / tokens < places ? a->experts + places / tokens : places;
    dim3 wide(blocks_for(a->inner_width, UNIT_INNER), (unsigned)items);
    dim3 deep(blocks_for(a->hidden, UNIT_OUTPUTS), (unsigned)items);
    dev_stream stream = cuda_stream(queue);
    struct buffer in = {a->in.address, a->in.bytes}, none = {0, 0};
    size_t offset = unit_bytes_of(a->format, a->hidden) * blocks_for(a->inner_width, UNIT_INNER);
    if (a->rows < 1)
        return;
    if (slab_takes(queue, a->slab, a->format) && slab_takes(queue, a->slab, a->down_format)) {
        slab_expert_ffn(queue, a);
        return;
    }
    LAUNCH_PDL(expert_group_kernel, dim3(1), dim3(GROUP_THREADS), 0, stream, *a, tokens, cuda_live(queue));
    if (format_quantised(a->format))
        cuda_quantise(queue, in, a->hidden, a->rows, 1, a->hidden, none, a->operand);
    TILE_LAUNCH(expert_gate_up_kernel, a->format, tokens, wide, stream, *a, tokens);
    if (format_quantised(a->down_format))
        cuda_quantise(queue, a->inner, a->inner_width, places, a->slots, a->inner_width, a->expert, a->operand);
    TILE_LAUNCH(expert_down_kernel, a->down_format, tokens, deep, stream, *a, tokens, offset);
    cuda_expert_sum(queue, a);
}
