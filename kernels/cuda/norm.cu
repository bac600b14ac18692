/* kernels/rows.h: norm. A block of 128 threads loads one part of one row into shared memory; sixteen lanes sum it in the
 * contract's order, and all threads scale it. A block's shape is the same for any number of rows. The weights, which are needed
 * last, are prefetched first, while the previous launch still runs. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/norm.h"

__global__ void norm_kernel(struct norm_args a, const int32_t *live)
{
    SHARED_DYN(float, x);
    SHARED(float, sum, 2);
    if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) {
        prefetch_floats(device_pointer<float>(a.weight), a.weight.address ? a.width : 0);
        prefetch_floats(device_pointer<float>(a.bias), a.center && a.bias.address ? a.width : 0);
    }
    pdl_begin();
    int64_t row = blockIdx.y, part = blockIdx.x;
    const float *in = device_pointer<float>(a.in) + row * a.in_stride + part * a.width;
    const float *weight = device_pointer<float>(a.weight) + (a.apart ? part * a.width : 0);
    float *out = device_pointer<float>(a.out) + row * a.out_stride + part * a.width;
    if (not_live(live, row))
        return;
    for (int i = (int)threadIdx.x; i < a.width; i += NORM_THREADS)
        x[i] = in[i];
    __syncthreads();
    if (a.center) {
        if (warp_id() == 0) {
            const float total = norm_chain<false>(x, a.width);
            float mean = sum_chains(total) / (float)a.width;
            if (lane_id() == 0)
                sum[0] = mean;
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < a.width; i += NORM_THREADS)
            x[i] = x[i] - sum[0];
        __syncthreads();
    }
    if (warp_id() == 0) {
        float factor = norm_factor(x, a.width, a.epsilon);
        if (lane_id() == 0)
            sum[1] = factor;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < a.width; i += NORM_THREADS) {
        float y = a.weight.address ? x[i] * sum[1] * weight[i] : x[i] * sum[1];
        out[i] = a.center && a.bias.address ? y + device_pointer<float>(a.bias)[i] : y;
    }
}

void cuda_norm(struct queue *queue, const struct norm_args *args)
{
    if (args->rows > 0)
        LAUNCH_PDL(norm_kernel, dim3((unsigned)args->parts, (unsigned)args->rows), dim3(NORM_THREADS),
               (size_t)args->width * sizeof(float), cuda_stream(queue), *args, cuda_live(queue));
}
