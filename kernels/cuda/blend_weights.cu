/* kernels/mix.h: blend_weights. One thread per row, with the loop of the host over its few slots. */
#include "kernels/cuda/cuda.h"

__global__ void blend_weights_kernel(struct blend_weights_args a, const int32_t *live)
{
    pdl_begin();
    int64_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < a.rows && !not_live(live, row))
        plain_blend_weights(a.rule, device_pointer<float>(a.logits) + row * a.logits_stride,
                            a.column.address ? device_pointer<int32_t>(a.column) + row * a.column_stride : nullptr, a.slots,
                            device_pointer<float>(a.weight) + row * a.weight_stride);
}

void cuda_blend_weights(struct queue *queue, const struct blend_weights_args *args)
{
    struct blend_weights_args a = *args;
    a.logits_stride = row_stride(a.logits_stride, a.slots);
    a.weight_stride = row_stride(a.weight_stride, a.slots);
    a.column_stride = row_stride(a.column_stride, a.slots);
    if (a.rows > 0)
        LAUNCH_PDL(blend_weights_kernel, dim3(blocks_for(a.rows, 32)), dim3(32), 0, cuda_stream(queue), a, cuda_live(queue));
}
