/* Keys of tokens: integers in the order of the logits. choose.cu and top.cu search for the largest keys. */
#ifndef MOE_KERNELS_CUDA_RANK_H
#define MOE_KERNELS_CUDA_RANK_H

#include "kernels/cuda/dev.h"

enum { RANK_THREADS = 256, RANK_TOKEN_BITS = 20, RANK_TOKENS = 1 << RANK_TOKEN_BITS };

typedef unsigned long long rank_type;

/* Returns a key that is larger for a larger logit, and for equal logits larger for the lower token. Never 0 for a logit that
 * is a number. */
DEVICE rank_type rank_key(float logit, int token)
{
    return (rank_type)float_key(logit == 0 ? 0.0f : logit) << RANK_TOKEN_BITS | (unsigned)(RANK_TOKENS - 1 - token);
}

DEVICE int token_of(rank_type key) { return RANK_TOKENS - 1 - (int)(key & (RANK_TOKENS - 1)); }

/* Returns the largest key of a block of RANK_THREADS threads to all threads. */
DEVICE rank_type largest_key(rank_type key)
{
    SHARED(rank_type, of_warp, RANK_THREADS / WARP);
    for (int step = WARP / 2; step > 0; step /= 2) {
        rank_type other = __shfl_xor_sync(FULL_MASK, key, step);
        key = other > key ? other : key;
    }
    __syncthreads();
    if (lane_id() == 0)
        of_warp[warp_id()] = key;
    __syncthreads();
    for (int w = 0; w < RANK_THREADS / WARP; w++)
        key = of_warp[w] > key ? of_warp[w] : key;
    return key;
}

#endif
