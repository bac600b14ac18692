/* kernels/mix.h: activate. One thread per float. */
#include "kernels/cuda/cuda.h"
#include "kernels/plain/math.h"

__global__ void activate_kernel(struct activate_args a, const int32_t *live)
{
    pdl_begin();
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int64_t row = blockIdx.y;
    if (i >= a.width || not_live(live, row))
        return;
    float x = device_pointer<float>(a.in)[row * a.in_stride + i];
    float y = a.activation == ACTIVATION_NONE ? x : a.activation == ACTIVATION_TANH ? plain_tanh(x)
              : a.activation == ACTIVATION_GELU ? plain_gelu(x) : plain_silu(x);
    if (a.scale != 0)
        y = a.scale * y;
    if (a.add.address)
        y = device_pointer<float>(a.add)[row * a.add_stride + i] + y;
    device_pointer<float>(a.out)[row * a.out_stride + i] = y;
}

void cuda_activate(struct queue *queue, const struct activate_args *args)
{
    struct activate_args a = *args;
    a.in_stride = row_stride(a.in_stride, a.width);
    a.add_stride = row_stride(a.add_stride, a.width);
    a.out_stride = row_stride(a.out_stride, a.width);
    if (a.rows > 0)
        LAUNCH_PDL(activate_kernel, dim3(blocks_for(a.width, 256), (unsigned)a.rows), dim3(256), 0, cuda_stream(queue), a,
                   cuda_live(queue));
}
