/* kernels/expert_ffn.h: routed_ffn. Scores, choice and grouping are one launch, whose blocks have eight warps, one for each of
 * eight rows (route_row.h); the block that ends last groups all pairs (expert_group.h). The products of expert_ffn.cu follow.
 * Bits are those of the single operations, which compute slabs and rows whose memory does not fit. */
#include "kernels/cuda/expert_group.h"
#include "kernels/cuda/route_row.h"
#include "kernels/cuda/slab.h"
#include "kernels/cuda/tile.h"

static const size_t ROUTE_SHARED_MAX = 48 * 1024;

__global__ void __launch_bounds__(GROUP_THREADS) route_group_kernel(struct routed_ffn_args a, int pairs, unsigned *tickets,
                                                                      const int32_t *live)
{
    in_turn();
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

/* Returns the shared memory of a block, for its rows first and then for grouping. */
static size_t shared_bytes(const struct routed_ffn_args *a)
{
    const size_t rows = GROUP_WARPS * route_bytes(a->select.experts);
    const size_t group = (size_t)(GROUP_WARPS * a->ffn.experts) * sizeof(int);
    return rows > group ? rows : group;
}

void cuda_routed_ffn(struct queue *queue, const struct routed_ffn_args *a)
{
    const struct cuda_context *context = (const struct cuda_context *)queue->state;
    const unsigned blocks = blocks_for(a->ffn.rows, GROUP_WARPS);
    const size_t shared = shared_bytes(a);
    const bool slab = slab_takes(queue, a->ffn.slab, a->ffn.format) && slab_takes(queue, a->ffn.slab, a->ffn.down_format);
    if (a->ffn.rows < 1)
        return;
    if (slab || shared > ROUTE_SHARED_MAX || (blocks > 1 && !context->tickets) || !cuda_does(queue, CUDA_ROUTE)) {
        ops_routed_ffn_in_turn(&cuda_ops, queue, a);
        return;
    }
    LAUNCH_PDL(route_group_kernel, dim3(blocks), dim3(GROUP_THREADS), shared, cuda_stream(queue), *a,
               expert_item_pairs(&a->ffn), context->tickets, cuda_live(queue));
    expert_products(queue, &a->ffn);
}
