/* kernels/linear.h. A block takes a unit of 32 outputs and up to 16 rows (tile.h): grid (units, passes over the rows). The
 * weights of a unit are read once a pass; passes run side by side and share them in the second-level cache, into which the
 * first one calls them, beginning while the launch in front still runs. Slabs go another way (slab_linear.cu). */
#include "kernels/cuda/slab.h"
#include "kernels/cuda/tile.h"

template <int FORMAT>
__global__ void __launch_bounds__(TILE_THREADS, tile_resident<FORMAT>())
    linear_kernel(struct linear_args a, int tokens, const int32_t *live)
{
    SHARED_DYN(struct tile_memory, memory);
    const unsigned char *weight = device_pointer<unsigned char>(a.weight);
    weight += unit_bytes_of(FORMAT, a.inputs) * (size_t)blockIdx.x;
    if (blockIdx.y == 0)
        tile_prefetch<FORMAT>(weight, a.inputs);
    in_turn();
    int unit = (int)blockIdx.x, first = (int)blockIdx.y * tokens, left = live_rows(live, a.rows) - first;
    int o = unit * UNIT_OUTPUTS + lane_id();
    struct tile_in in = {device_pointer<float>(a.in), device_pointer<struct quantised>(a.operand), a.in_stride, a.inputs,
                         left < tokens ? left : tokens, tokens, blockIdx.y == 0};
    if (left < 1)
        return;
    if (threadIdx.x < TILE_TOKENS_MAX)
        memory->row[threadIdx.x] = first + (int)threadIdx.x;
    __syncthreads();
    tile_product<FORMAT>::run(weight, in, memory);
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

void cuda_linear(struct queue *queue, const struct linear_args *args)
{
    int tokens = tile_rows(args->format, args->rows);
    dim3 grid(blocks_for(args->outputs, UNIT_OUTPUTS), blocks_for(args->rows, tokens));
    if (args->rows < 1)
        return;
    if (slab_takes(queue, args->slab, args->format)) {
        slab_linear(queue, args);
        return;
    }
    if (format_quantised(args->format))
        cuda_quantise(queue, args->in, args->in_stride, args->rows, 1, args->inputs, (struct buffer){0, 0},
                      args->operand);
    TILE_LAUNCH(linear_kernel, args->format, tokens, grid, cuda_stream(queue), *args, tokens,
                cuda_live(queue));
}
