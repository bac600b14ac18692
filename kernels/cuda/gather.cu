/* kernels/rows.h: gather. One thread per float. */
#include "kernels/cuda/cuda.h"

__global__ void gather_kernel(struct gather_args a, const int32_t *live)
{
    pdl_begin();
    if (not_live(live, blockIdx.y))
        return;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int64_t to = blockIdx.y, from = device_pointer<int32_t>(a.index)[to];
    if (i < a.width)
        device_pointer<float>(a.out)[to * a.out_stride + i] = device_pointer<float>(a.in)[from * a.in_stride + i];
}

void cuda_gather(struct queue *queue, const struct gather_args *args)
{
    struct gather_args a = *args;
    a.in_stride = row_stride(a.in_stride, a.width);
    a.out_stride = row_stride(a.out_stride, a.width);
    if (a.count > 0)
        LAUNCH_PDL(gather_kernel, dim3(blocks_for(a.width, 256), (unsigned)a.count), dim3(256), 0, cuda_stream(queue), a,
                   cuda_live(queue));
}
