/* kernels/linear.h. A block takes a unit of 32 outputs and up to 16 rows (tile.h): grid (units, passes over the rows, parts of
 * the inputs). The weights of a unit are read once a pass; passes run side by side and share them in the second-level cache,
 * into which the first one calls them, beginning while the launch in front still runs.
 *
 * A narrow matrix (the output projection of attention, a router) has too few units for all processors: there each unit has
 * several blocks, each a run of its slices, as far as the context's scratch goes. A block that has read its weights prefetches
 * its part of what a later launch reads (`ahead`). Slabs go another way (slab_linear.cu). */
#include "kernels/cuda/slab.h"
#include "kernels/cuda/tile.h"

template <int FORMAT, bool FEW>
__global__ void __launch_bounds__(TILE_THREADS, tile_resident<FORMAT, FEW>())
    linear_kernel(struct linear_args a, struct tile_cut cut, const int32_t *live)
{
    SHARED_DYN(struct tile_memory, memory);
    const unsigned char *weight = device_pointer<unsigned char>(a.weight);
    weight += unit_bytes_of(FORMAT, a.inputs) * (size_t)blockIdx.x;
    if (blockIdx.y == 0)
        tile_prefetch<FORMAT>(weight, a.inputs, cut, spread_slice(cut));
    in_turn();
    int unit = (int)blockIdx.x, first = (int)blockIdx.y * cut.rows, left = live_rows(live, a.rows) - first;
    int o = unit * UNIT_OUTPUTS + lane_id();
    struct tile_in in = {device_pointer<float>(a.in), device_pointer<struct quantised>(a.operand), a.in_stride, a.inputs,
                         left < cut.rows ? left : cut.rows, blockIdx.y == 0};
    if (left < 1)
        return;
    if (threadIdx.x < TILE_TOKENS_MAX)
        memory->row[threadIdx.x] = first + (int)threadIdx.x;
    __syncthreads();
    const bool joins = tile_product<FORMAT, true, FEW>::run(weight, in, cut, memory);
    if (blockIdx.y == 0)
        prefetch_part(a.ahead, blockIdx.z * gridDim.x + blockIdx.x, gridDim.x * gridDim.z);
    if (!joins)
        return;
    for (int token = warp_id(); token < in.count && o < a.outputs; token += TILE_WARPS) {
        float *out = device_pointer<float>(a.out) + (int64_t)(first + token) * a.out_stride + o;
        float y = memory->sums[token * UNIT_OUTPUTS + lane_id()];
        if (a.bias.address)
            y = y + device_pointer<float>(a.bias)[o];
        if (a.scale != 0)
            y = y * a.scale;
        *out = a.add ? y + *out : y;
    }
}

static_assert((int)CONTEXT_TICKETS >= (int)TILE_NARROW, "a ticket for each unit that is spread");

/* Chooses the blocks for each unit of a pass: as many as make TILE_NARROW in all, with at least one round of slices each. */
static int spread(const struct cuda_context *context, const struct linear_args *a, int units, int passes, struct tile_cut *cut)
{
    int slices = (a->inputs + cut->width - 1) / cut->width, rounds = (slices + TILE_WARPS - 1) / TILE_WARPS;
    int64_t tiles = (int64_t)units * passes, blocks = (TILE_NARROW + tiles - 1) / tiles;
    uint64_t bytes = (uint64_t)tiles * (unsigned)slices * (unsigned)cut->rows * UNIT_OUTPUTS * sizeof(float);
    if (a->format == FORMAT_F32 || format_quantised(a->format) || blocks < 2 || rounds < 2 || !context->tickets ||
        bytes > context->scratch.bytes)
        return 1;
    int each = (rounds + (int)blocks - 1) / (int)blocks;
    cut->slices = each * TILE_WARPS;
    cut->parts = device_pointer<float>(context->scratch);
    cut->tickets = context->tickets;
    return (rounds + each - 1) / each;
}

void cuda_linear(struct queue *queue, const struct linear_args *args)
{
    struct linear_args a = *args;
    const struct cuda_context *context = (const struct cuda_context *)queue->state;
    int units = (int)blocks_for(args->outputs, UNIT_OUTPUTS);
    struct tile_cut cut = tile_whole(args->format, args->inputs, tile_rows(args->format, args->rows));
    if (args->rows < 1)
        return;
    if (slab_takes(queue, args->slab, args->format)) {
        slab_linear(queue, args);
        return;
    }
    if (format_quantised(args->format))
        cuda_quantise(queue, args->in, args->in_stride, args->rows, 1, args->inputs, (struct buffer){0, 0},
                      args->operand);
    int passes = (int)blocks_for(args->rows, cut.rows);
    cut.width = tile_width(args->format, args->inputs, units);
    int blocks = spread(context, args, units, passes, &cut);
    dim3 grid((unsigned)units, (unsigned)passes, (unsigned)blocks);
    a.ahead = cuda_ahead(queue, a.ahead);
    TILE_LAUNCH(linear_kernel, a.format, cut.rows, cuda_does(queue, CUDA_FEW), grid, cuda_stream(queue), a, cut,
                cuda_live(queue));
}
