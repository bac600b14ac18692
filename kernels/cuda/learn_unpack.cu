/* kernels/learn.h: unpack. A block of 8 warps unpacks a unit of 32 outputs and 32 inputs. A warp reads four inputs of all
 * outputs, one output per lane, in the order of the unit, and writes rows of four outputs, one input per lane, through shared
 * memory. The writes limit the speed. */
#include "kernels/cuda/learn.h"
#include "kernels/cuda/weight_at.h"

enum { UNPACK_INPUTS = 32, UNPACK_EACH = UNPACK_INPUTS / LEARN_WARPS };

__global__ void __launch_bounds__(LEARN_THREADS) learn_unpack_kernel(struct learn_unpack_args u, size_t unit_bytes)
{
    SHARED(float, value, UNIT_OUTPUTS * (UNPACK_INPUTS + 1));
    const int row = (int)blockIdx.y * UNIT_OUTPUTS, input = (int)blockIdx.x * UNPACK_INPUTS;
    const unsigned char *unit = device_pointer<unsigned char>(u.matrix) + unit_bytes * (size_t)((u.first + row) / UNIT_OUTPUTS);
    for (int i = warp_id() * UNPACK_EACH; i < (warp_id() + 1) * UNPACK_EACH && input + i < u.inputs; i++)
        value[lane_id() * (UNPACK_INPUTS + 1) + i] = weight_at(u.format, unit, lane_id(), input + i);
    __syncthreads();
    for (int o = warp_id() * UNPACK_EACH; o < (warp_id() + 1) * UNPACK_EACH && row + o < u.rows; o++)
        if (input + lane_id() < u.inputs)
            device_pointer<float>(u.out)[(int64_t)(row + o) * u.inputs + input + lane_id()] =
                value[o * (UNPACK_INPUTS + 1) + lane_id()];
}

void cuda_learn_unpack(struct queue *queue, const struct learn_unpack_args *u)
{
    if (u->rows && u->inputs)
        LAUNCH(learn_unpack_kernel, dim3(blocks_for(u->inputs, UNPACK_INPUTS), blocks_for(u->rows, UNIT_OUTPUTS)),
               dim3(LEARN_THREADS), 0, cuda_stream(queue), *u, unit_bytes_of(u->format, u->inputs));
}
