/* kernels/attention.h: rope. One thread per pair of floats. */
#include "kernels/cuda/cuda.h"

__global__ void rope_kernel(struct rope_args a, const int32_t *live)
{
    pdl_begin();
    int half = a.rotary / 2, at = (int)(blockIdx.x * blockDim.x + threadIdx.x), head = at / half, i = at % half;
    if (head >= a.heads || not_live(live, blockIdx.y))
        return;
    float *x = device_pointer<float>(a.x) + (int64_t)blockIdx.y * a.stride + (int64_t)head * a.head_dim + i;
    int64_t position = device_pointer<int32_t>(a.position)[blockIdx.y];
    const float *turn = device_pointer<float>(a.table) + (position * half + i) * 2;
    float low = x[0], high = x[half], cosine = turn[0], sine = turn[1];
    x[0] = low * cosine - high * sine;
    x[half] = high * cosine + low * sine;
}

void cuda_rope(struct queue *queue, const struct rope_args *args)
{
    int64_t pairs = (int64_t)args->heads * (args->rotary / 2);
    if (args->rows > 0 && pairs > 0)
        LAUNCH_PDL(rope_kernel, dim3(blocks_for(pairs, 256), (unsigned)args->rows), dim3(256), 0, cuda_stream(queue), *args,
               cuda_live(queue));
}
