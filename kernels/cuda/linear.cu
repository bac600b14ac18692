/* kernels/linear.h. A block computes a unit of 32 outputs for up to 16 rows (tile.h): grid (units, passes over the rows, parts
 * of the inputs). The weights of a unit are read once per pass. Passes run side by side and share the weights in the
 * second-level cache; the first pass prefetches them, starting while the previous launch still runs.
 *
 * A narrow matrix (the output projection of attention, a router) has too few units for all multiprocessors. Each of its units
 * is divided among several blocks, each of which computes a range of slices, as far as the context's scratch permits. A block
 * that has read its weights prefetches its part of the memory that a later launch reads (`ahead`). slab_linear.cu computes
 * slabs. */
#include "kernels/cuda/product.h"
#include "kernels/cuda/slab.h"

template <int FORMAT, bool FEW>
__global__ void __launch_bounds__(TILE_THREADS, tile_resident<FORMAT, FEW>())
    linear_kernel(struct linear_args a, struct tile_cut cut, const int32_t *live)
{
    SHARED_DYN(struct tile_memory, memory);
    const unsigned char *weight = product_weights<FORMAT>(a);
    if (blockIdx.y == 0)
        tile_prefetch<FORMAT>(weight, a.inputs, cut, spread_slice(cut));
    pdl_begin();
    int first = (int)blockIdx.y * cut.rows, left = live_rows(live, a.rows) - first, o = product_output();
    struct tile_in in = {device_pointer<float>(a.in), device_pointer<struct quantised>(a.operand), a.in_stride, a.inputs,
                         left < cut.rows ? left : cut.rows, blockIdx.y == 0};
    if (left < 1)
        return;
    if (product_run<FORMAT, FEW>(a, weight, in, cut, first, memory))
        product_write(a, first, in.count, o, memory);
}

static_assert((int)CONTEXT_TICKETS >= (int)TILE_NARROW, "a ticket for each unit that is spread");

bool product_leaves_parts(const struct cuda_context *context, const struct linear_args *a, int64_t tiles, struct tile_cut *cut)
{
    int slices = (a->inputs + cut->width - 1) / cut->width;
    uint64_t bytes = (uint64_t)tiles * (unsigned)slices * (unsigned)cut->rows * UNIT_OUTPUTS * sizeof(float);
    if (a->format == FORMAT_F32 || format_quantised(a->format) || !context->tickets || bytes > context->scratch.bytes)
        return false;
    cut->parts = device_pointer<float>(context->scratch);
    cut->tickets = context->tickets;
    return true;
}

/* Chooses the number of blocks per unit of a pass, so that there are TILE_NARROW blocks in all, with at least one round of
 * slices each. */
static int spread(const struct cuda_context *context, const struct linear_args *a, int units, int passes, struct tile_cut *cut)
{
    int slices = (a->inputs + cut->width - 1) / cut->width, rounds = (slices + TILE_WARPS - 1) / TILE_WARPS;
    int64_t tiles = (int64_t)units * passes, blocks = (TILE_NARROW + tiles - 1) / tiles;
    if (blocks < 2 || rounds < 2 || !product_leaves_parts(context, a, tiles, cut))
        return 1;
    int each = (rounds + (int)blocks - 1) / (int)blocks;
    cut->slices = each * TILE_WARPS;
    return (rounds + each - 1) / each;
}

struct tile_cut product_cut(const struct cuda_context *context, const struct linear_args *a, dim3 *grid)
{
    struct tile_cut cut = tile_whole(a->format, a->inputs, tile_rows(a->format, a->rows));
    int units = (int)blocks_for(a->outputs, UNIT_OUTPUTS), passes = (int)blocks_for(a->rows, cut.rows);
    cut.width = tile_width(a->format, a->inputs, units);
    *grid = dim3((unsigned)units, (unsigned)passes, (unsigned)spread(context, a, units, passes, &cut));
    return cut;
}

void cuda_linear(struct queue *queue, const struct linear_args *args)
{
    struct linear_args a = *args;
    dim3 grid;
    if (args->rows < 1)
        return;
    if (slab_takes(queue, args->slab, args->format)) {
        slab_linear(queue, args);
        return;
    }
    if (format_quantised(args->format))
        cuda_quantise(queue, args->in, args->in_stride, args->rows, 1, args->inputs, (struct buffer){0, 0},
                      args->operand);
    const struct tile_cut cut = product_cut((const struct cuda_context *)queue->state, args, &grid);
    a.ahead = cuda_ahead(queue, a.ahead);
    TILE_LAUNCH(linear_kernel, a.format, cut.rows, cuda_enabled(queue, CUDA_FEW), grid, cuda_stream(queue), a, cut,
                cuda_live(queue));
}
