/* kernels/mix.h: log_add. One thread per float. */
#include "kernels/cuda/cuda.h"
#include "kernels/plain/math.h"

__global__ void log_add_kernel(struct log_add_args a, const int32_t *live)
{
    pdl_begin();
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int64_t row = blockIdx.y;
    if (i >= a.width || not_live(live, row))
        return;
    device_pointer<float>(a.out)[row * a.out_stride + i] =
        plain_log_add(device_pointer<float>(a.in)[row * a.in_stride + i],
                      device_pointer<float>(a.add)[row * a.add_stride + i]);
}

void cuda_log_add(struct queue *queue, const struct log_add_args *args)
{
    struct log_add_args a = *args;
    a.in_stride = row_stride(a.in_stride, a.width);
    a.add_stride = row_stride(a.add_stride, a.width);
    a.out_stride = row_stride(a.out_stride, a.width);
    if (a.rows > 0)
        LAUNCH_PDL(log_add_kernel, dim3(blocks_for(a.width, 256), (unsigned)a.rows), dim3(256), 0, cuda_stream(queue), a,
                   cuda_live(queue));
}
