/* The operations of training (kernels/learn.h) on a CUDA device: declarations that their files share.
 *
 * BITS. Each number is computed by one thread, or by one block that adds in an order which the shape alone determines; no sum
 * uses atomics, and no sum is divided according to the number of multiprocessors. Products are computed by cuBLAS if it is
 * present (gemm.h: one stream, a workspace of its own, no atomics), else by learn_product.cu: the same call is bit-identical on
 * one kind of GPU with one version of the library. Arithmetic is f32; sums over losses and over gradients are f64.
 *
 * Functions are those of kernels/plain/math.h, as on the host. */
#ifndef MOE_KERNELS_CUDA_LEARN_H
#define MOE_KERNELS_CUDA_LEARN_H

#include "kernels/cuda/cuda.h"
#include "kernels/learn.h"
#include "kernels/plain/math.h"

enum { LEARN_THREADS = 256, LEARN_WARPS = LEARN_THREADS / WARP, LEARN_GRID_ROWS = 65535 };

/* Return the number of blocks with one thread per element, and the element of this thread. */
static inline unsigned learn_blocks(size_t count) { return (unsigned)((count + LEARN_THREADS - 1) / LEARN_THREADS); }
DEVICE size_t learn_element(void) { return (size_t)blockIdx.x * LEARN_THREADS + threadIdx.x; }

/* Returns a grid with one thread per column, for the rows blockIdx.y, blockIdx.y + gridDim.y, ... */
static inline dim3 learn_grid(int rows, int width)
{
    return dim3(blocks_for(width, LEARN_THREADS), (unsigned)(rows < LEARN_GRID_ROWS ? rows : LEARN_GRID_ROWS));
}
DEVICE int learn_column(void) { return (int)(blockIdx.x * LEARN_THREADS + threadIdx.x); }

/* Returns a sum over the LEARN_THREADS threads of a block to all of them: by halves within a warp, then warps in their order.
 * `part` is shared, [LEARN_WARPS], and may be reused when this returns. */
template <typename T> DEVICE T learn_warp_sum(T value)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(FULL_MASK, value, step);
    return value;
}

template <typename T> DEVICE T learn_block_sum(T value, T *part)
{
    value = learn_warp_sum(value);
    if (lane_id() == 0)
        part[warp_id()] = value;
    __syncthreads();
    value = part[0];
    for (int w = 1; w < LEARN_WARPS; w++)
        value += part[w];
    __syncthreads();
    return value;
}

/* Returns the sum of each column's chains, added by halves, in a block of LEARN_CHAINS warps with one column per lane. Only the
 * first warp receives valid sums. */
enum { LEARN_CHAINS = 32, LEARN_CHAIN_THREADS = LEARN_CHAINS * WARP };
DEVICE float learn_join_chains(float *part, float sum)       /* part: shared, [LEARN_CHAIN_THREADS] */
{
    part[threadIdx.x] = sum;
    for (int half = LEARN_CHAINS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (warp_id() < half)
            part[threadIdx.x] += part[(int)threadIdx.x + half * WARP];
    }
    return part[threadIdx.x];
}

/* Returns the logarithm of a sum of exponentials; NaN if the sum is NaN or 0. */
DEVICE float learn_log(float sum) { return sum > 0 ? plain_log(sum) : NAN; }

void cuda_learn_product(struct queue *, const struct learn_product_args *);
void cuda_learn_unpack(struct queue *, const struct learn_unpack_args *);
void cuda_learn_clear(struct queue *, const struct learn_clear_args *);
void cuda_learn_add(struct queue *, const struct learn_add_args *);
void cuda_learn_copy(struct queue *, const struct learn_copy_args *);
void cuda_learn_accumulate(struct queue *, const struct learn_copy_args *);
void cuda_learn_add_row(struct queue *, const struct learn_row_args *);
void cuda_learn_sum_rows(struct queue *, const struct learn_row_args *);
void cuda_learn_select(struct queue *, const struct learn_select_args *);
void cuda_learn_scatter(struct queue *, const struct learn_select_args *);
void cuda_learn_norm(struct queue *, const struct learn_norm_args *);
void cuda_learn_norm_back(struct queue *, const struct learn_norm_args *);
void cuda_learn_norm_weight_back(struct queue *, const struct learn_norm_args *);
void cuda_learn_function(struct queue *, const struct learn_function_args *);
void cuda_learn_function_back(struct queue *, const struct learn_function_args *);
void cuda_learn_gated(struct queue *, const struct learn_gated_args *);
void cuda_learn_gated_back(struct queue *, const struct learn_gated_args *);
void cuda_learn_mix(struct queue *, const struct learn_mix_args *);
void cuda_learn_mix_back(struct queue *, const struct learn_mix_args *);
void cuda_learn_rotate(struct queue *, const struct learn_rotate_args *);
void cuda_learn_rotate_back(struct queue *, const struct learn_rotate_args *);
size_t cuda_learn_attention_scratch(struct queue *, const struct learn_attention_args *);
void cuda_learn_attention(struct queue *, const struct learn_attention_args *);
void cuda_learn_attention_back(struct queue *, const struct learn_attention_args *);
void cuda_learn_smooth(struct queue *, const struct learn_smooth_args *);
void cuda_learn_target(struct queue *, const struct learn_target_args *);
void cuda_learn_judge(struct queue *, const struct learn_judge_args *);
void cuda_learn_total(struct queue *, const struct learn_total_args *);
void cuda_learn_measure(struct queue *, const struct learn_measure_args *);
void cuda_learn_adam(struct queue *, const struct learn_adam_args *);

extern "C" const struct learn_ops cuda_learn_ops;

#endif
