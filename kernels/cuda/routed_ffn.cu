/* kernels/expert_ffn.h: routed_ffn. Scores, choice and grouping are one launch, whose blocks have eight warps, one for each of
 * eight rows (route_row.h); the block that ends last groups all pairs (expert_group.h). The products of expert_ffn.cu follow.
 * Bits are those of the single operations, which compute slabs and rows whose memory does not fit.
 *
 * For 1 and 2 rows, the same launch also computes the router's product, after the norm of its input (norm_linear.cu). All
 * blocks store the sums of their slices; the block that ends last adds them for all outputs, and routes. All blocks share one
 * ticket: one ticket per unit, and then one for the units, would take nearly as long as a launch. */
#include "kernels/cuda/expert_group.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/route_row.h"
#include "kernels/cuda/slab.h"

static const size_t ROUTE_SHARED_MAX = 48 * 1024;

__global__ void __launch_bounds__(GROUP_THREADS) route_group_kernel(struct routed_ffn_args a, int pairs, unsigned *tickets,
                                                                      const int32_t *live)
{
    pdl_begin();
    SHARED_DYN(unsigned char, memory);
    const int experts = a.select.experts;
    const int64_t row = (int64_t)blockIdx.x * GROUP_WARPS + warp_id();
    if (row < live_rows(live, a.select.rows)) {
        const struct route_memory own = route_memory_at(memory + (size_t)warp_id() * route_bytes(experts), experts);
        score_row(a.score, row, own.share);
        __syncwarp();
        select_row(a.select, row, own);
    }
    if (gridDim.x > 1 && !spread_last(tickets, gridDim.x))
        return;
    __syncthreads();
    group_pairs(a.ffn, pairs, (int *)memory, live);
}

static_assert((int)GROUP_THREADS == (int)TILE_THREADS, "the block of a product routes");

/* Adds the slices of all outputs, one thread per output of a row, with several loads in flight. Reads cut.parts. */
template <int FORMAT> DEVICE void join_logits(const struct linear_args &a, const struct tile_cut &cut, int count)
{
    enum { AHEAD = 16 };
    const int slices = (a.inputs + cut.width - 1) / cut.width, each = count * UNIT_OUTPUTS;
    for (int i = (int)threadIdx.x; i < (int)gridDim.x * each; i += TILE_THREADS) {
        const int unit = i / each, at = i % each;
        const float *part = cut.parts + (int64_t)unit * slices * cut.rows * UNIT_OUTPUTS + at;
        const unsigned char *weight = device_pointer<unsigned char>(a.weight) + unit_bytes_of(FORMAT, a.inputs) * (size_t)unit;
        float total = 0, some[AHEAD];
        int slice = 0;
        for (; slice + AHEAD <= slices; slice += AHEAD) {
            UNROLL for (int n = 0; n < AHEAD; n++)
                some[n] = part[(slice + n) * each];
            UNROLL for (int n = 0; n < AHEAD; n++)
                total = tile_add<FORMAT>(weight, slice + n, some[n], total);
        }
        for (; slice < slices; slice++)
            total = tile_add<FORMAT>(weight, slice, part[slice * each], total);
        const int o = unit * UNIT_OUTPUTS + at % UNIT_OUTPUTS;
        if (o < a.outputs)
            product_put(a, at / UNIT_OUTPUTS, o, total);
    }
}

/* Computes the router's product, and routes in the last block. Grid (units, 1, blocks of a unit). cut.tickets is NULL. */
template <int FORMAT>
__global__ void __launch_bounds__(TILE_THREADS, tile_resident<FORMAT, true>())
    router_kernel(struct routed_ffn_args a, struct tile_cut cut, int pairs, unsigned *ticket, const int32_t *live)
{
    SHARED_DYN(struct tile_memory, memory);
    const struct linear_args &linear = a.logits.linear;
    tile_prefetch<FORMAT>(product_weights<FORMAT>(linear), linear.inputs, cut, spread_slice(cut));
    normed_prefetch(a.logits.norm);
    pdl_begin();
    const int count = live_rows(live, linear.rows), experts = a.select.experts;
    struct tile_in in = {device_pointer<float>(linear.in), nullptr, linear.in_stride, linear.inputs, count, true};
    if (a.logits.norm.rows) {
        float *x = normed_at<FORMAT>(memory);
        normed_rows(a.logits.norm, count, normed_writes(), x);
        in.x = x;
        in.stride = linear.inputs;
    }
    product_run<FORMAT, true>(linear, product_weights<FORMAT>(linear), in, cut, 0, memory);
    if (!spread_last(ticket, gridDim.x * gridDim.z))
        return;
    join_logits<FORMAT>(linear, cut, count);
    __syncthreads();
    if (warp_id() < count) {
        const size_t offset = (size_t)warp_id() * route_bytes(experts);
        const struct route_memory own = route_memory_at((unsigned char *)memory + offset, experts);
        score_row(a.score, warp_id(), own.share);
        __syncwarp();
        select_row(a.select, warp_id(), own);
    }
    __syncthreads();
    group_pairs(a.ffn, pairs, (int *)memory, live);
}

/* Returns the bytes of shared memory of a block that routes `rows` rows, and afterwards groups pairs in the same memory. */
static size_t shared_bytes(const struct routed_ffn_args *a, int rows)
{
    const size_t route = (size_t)rows * route_bytes(a->select.experts);
    const size_t group = (size_t)(GROUP_WARPS * a->ffn.experts) * sizeof(int);
    return route > group ? route : group;
}

/* Queues the router's product with norm, scores, choice and grouping in one launch; returns false if that is not possible.
 * Routers have no formats with codes (role_unquantised of model/layout.c), so the kernel exists for bf16 only. */
static bool router_launch(struct queue *queue, const struct routed_ffn_args *args)
{
    const struct cuda_context *context = (const struct cuda_context *)queue->state;
    struct routed_ffn_args a = *args;
    struct linear_args *linear = &a.logits.linear;
    dim3 grid;
    if (linear->format != FORMAT_BF16 || linear->rows > TILE_FEW || !context->tickets || !cuda_enabled(queue, CUDA_LOGITS) ||
        !cuda_enabled(queue, CUDA_FEW) || slab_takes(queue, linear->slab, linear->format))
        return false;
    struct tile_cut cut = product_cut(context, linear, &grid);
    if (!cut.parts && !product_leaves_parts(context, linear, grid.x, &cut))
        return false;
    cut.tickets = nullptr;
    if (a.logits.norm.rows && (!cuda_enabled(queue, CUDA_NORM) || !normed_fits(&a.logits.norm, linear))) {
        cuda_norm(queue, &a.logits.norm);
        a.logits.norm.rows = 0;
    }
    size_t bytes = tile_bytes(linear->format, cut.rows) + (a.logits.norm.rows ? normed_bytes(&a.logits.norm) : 0);
    const size_t route = shared_bytes(&a, linear->rows);
    bytes = bytes > route ? bytes : route;
    linear->ahead = cuda_ahead(queue, linear->ahead);
    LAUNCH_PDL(router_kernel<FORMAT_BF16>, grid, dim3(TILE_THREADS), bytes, cuda_stream(queue), a, cut,
               expert_item_pairs(&a.ffn), context->tickets, cuda_live(queue));
    return true;
}

void cuda_routed_ffn(struct queue *queue, const struct routed_ffn_args *a)
{
    const struct cuda_context *context = (const struct cuda_context *)queue->state;
    const unsigned blocks = blocks_for(a->ffn.rows, GROUP_WARPS);
    const size_t shared = shared_bytes(a, GROUP_WARPS);
    const bool slab = slab_takes(queue, a->ffn.slab, a->ffn.format) && slab_takes(queue, a->ffn.slab, a->ffn.down_format);
    if (a->ffn.rows < 1)
        return;
    if (slab || shared > ROUTE_SHARED_MAX || (blocks > 1 && !context->tickets) || !cuda_enabled(queue, CUDA_ROUTE)) {
        ops_routed_ffn_in_turn(&cuda_ops, queue, a);
        return;
    }
    const bool product = a->logits.linear.rows > 0;
    if (!product || !router_launch(queue, a)) {
        if (product)
            cuda_norm_linear(queue, &a->logits);
        LAUNCH_PDL(route_group_kernel, dim3(blocks), dim3(GROUP_THREADS), shared, cuda_stream(queue), *a,
                   expert_item_pairs(&a->ffn), context->tickets, cuda_live(queue));
    }
    expert_products(queue, &a->ffn);
}
