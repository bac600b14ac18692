/* kernels/learn.h: norm, norm_back, norm_weight_back. All are memory-bound.
 *
 * norm and norm_back: one block of 256 threads per row, which is read twice, the second time from the first-level cache. A
 *     row's sum is that of 256 chains, added as learn_block_sum does (learn.h of this folder).
 * norm_weight_back: one block of 1024 threads per 32 columns; each warp reads every 32nd row of them; a column's 32 chains are
 *     added by halves, then to the previous gradient. Rows are read once. */
#include "kernels/cuda/learn.h"

__global__ void __launch_bounds__(LEARN_THREADS) learn_norm_kernel(struct learn_norm_args n)
{
    SHARED(float, part, LEARN_WARPS);
    const int64_t at = (int64_t)blockIdx.x * n.width;
    const float *x = device_pointer<float>(n.x) + at, *weight = device_pointer<float>(n.weight);
    float squares = 0;
    for (int i = (int)threadIdx.x; i < n.width; i += LEARN_THREADS)
        squares = fmaf(x[i], x[i], squares);
    const float inverse = 1.0f / sqrtf(learn_block_sum(squares, part) / (float)n.width + n.epsilon);
    for (int i = (int)threadIdx.x; i < n.width; i += LEARN_THREADS)
        device_pointer<float>(n.out)[at + i] = weight[i] * (x[i] * inverse);
    if (threadIdx.x == 0)
        device_pointer<float>(n.inverse)[blockIdx.x] = inverse;
}

void cuda_learn_norm(struct queue *queue, const struct learn_norm_args *n)
{
    if (n->rows && n->width)
        LAUNCH(learn_norm_kernel, dim3((unsigned)n->rows), dim3(LEARN_THREADS), 0, cuda_stream(queue), *n);
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_norm_back_kernel(struct learn_norm_args n)
{
    SHARED(float, part, LEARN_WARPS);
    const int64_t at = (int64_t)blockIdx.x * n.width;
    const float *x = device_pointer<float>(n.x) + at, *g = device_pointer<float>(n.gradient) + at;
    const float *weight = device_pointer<float>(n.weight), inverse = device_pointer<float>(n.inverse)[blockIdx.x];
    float *to = device_pointer<float>(n.gradient_to) + at, sum = 0;
    for (int i = (int)threadIdx.x; i < n.width; i += LEARN_THREADS)
        sum = fmaf(weight[i] * g[i], x[i], sum);
    const float share = learn_block_sum(sum, part) / (float)n.width * inverse * inverse;
    for (int i = (int)threadIdx.x; i < n.width; i += LEARN_THREADS)
        to[i] += inverse * (weight[i] * g[i] - x[i] * share);
}

void cuda_learn_norm_back(struct queue *queue, const struct learn_norm_args *n)
{
    if (n->rows && n->width)
        LAUNCH(learn_norm_back_kernel, dim3((unsigned)n->rows), dim3(LEARN_THREADS), 0, cuda_stream(queue), *n);
}

__global__ void __launch_bounds__(LEARN_CHAIN_THREADS) learn_norm_weight_kernel(struct learn_norm_args n)
{
    SHARED(float, part, LEARN_CHAIN_THREADS);
    const float *x = device_pointer<float>(n.x), *g = device_pointer<float>(n.gradient);
    const int i = (int)blockIdx.x * WARP + lane_id();
    float sum = 0;
    for (int r = warp_id(); i < n.width && r < n.rows; r += LEARN_CHAINS) {
        const int64_t at = (int64_t)r * n.width + i;
        sum = fmaf(g[at], x[at] * device_pointer<float>(n.inverse)[r], sum);
    }
    sum = learn_join_chains(part, sum);
    if (warp_id() == 0 && i < n.width)
        device_pointer<float>(n.gradient_to)[i] += sum;
}

void cuda_learn_norm_weight_back(struct queue *queue, const struct learn_norm_args *n)
{
    if (n->rows && n->width)
        LAUNCH(learn_norm_weight_kernel, dim3(blocks_for(n->width, WARP)), dim3(LEARN_CHAIN_THREADS), 0,
               cuda_stream(queue), *n);
}
