/* kernels/mix.h: blend. One thread adds all slots of one float of a row, in their order. */
#include "kernels/cuda/cuda.h"

__global__ void blend_kernel(struct blend_args a, const int32_t *live)
{
    pdl_begin();
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int64_t row = blockIdx.y;
    if (i >= a.width || not_live(live, row))
        return;
    float sum = a.in.address ? device_pointer<float>(a.in)[row * a.in_stride + i] : 0.0f;
    for (int64_t slot = row * a.slot_stride; slot < row * a.slot_stride + a.slots; slot++)
        sum = fmaf(device_pointer<float>(a.weight)[slot], device_pointer<float>(a.part)[slot * a.part_stride + i], sum);
    device_pointer<float>(a.out)[row * a.out_stride + i] = sum;
}

void cuda_blend(struct queue *queue, const struct blend_args *args)
{
    struct blend_args a = *args;
    a.in_stride = row_stride(a.in_stride, a.width);
    a.part_stride = row_stride(a.part_stride, a.width);
    a.slot_stride = row_stride(a.slot_stride, a.slots);
    a.out_stride = row_stride(a.out_stride, a.width);
    if (a.rows > 0)
        LAUNCH_PDL(blend_kernel, dim3(blocks_for(a.width, 256), (unsigned)a.rows), dim3(256), 0, cuda_stream(queue), a,
                   cuda_live(queue));
}
