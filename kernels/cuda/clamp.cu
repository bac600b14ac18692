/* kernels/rows.h: clamp. One thread per float. */
#include "kernels/cuda/cuda.h"

__global__ void clamp_kernel(struct clamp_args a, const int32_t *live)
{
    pdl_begin();
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float *x = device_pointer<float>(a.x) + (int64_t)blockIdx.y * a.stride + i;
    if (i >= a.width || not_live(live, blockIdx.y))
        return;
    float value = *x;
    value = value > -a.limit || value != value ? value : -a.limit;
    *x = value < a.limit || value != value ? value : a.limit;
}

void cuda_clamp(struct queue *queue, const struct clamp_args *args)
{
    if (args->rows > 0)
        LAUNCH_PDL(clamp_kernel, dim3(blocks_for(args->width, 256), (unsigned)args->rows), dim3(256), 0, cuda_stream(queue),
                   *args, cuda_live(queue));
}
