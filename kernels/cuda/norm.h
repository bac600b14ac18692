/* The sum of squares of kernels/rows.h, shared by the kernels that scale rows by it. */
#ifndef MOE_KERNELS_CUDA_NORM_H
#define MOE_KERNELS_CUDA_NORM_H

#include "kernels/cuda/dev.h"

enum { NORM_THREADS = 128, NORM_CHAINS = 16 };

/* Adds 8+8, 4+4, 2+2, 1+1 over sixteen neighbouring lanes; all of them receive the sum. */
DEVICE float sum_chains(float value)
{
    for (int step = NORM_CHAINS / 2; step > 0; step /= 2)
        value = value + __shfl_xor_sync(FULL_MASK, value, step);
    return value;
}

/* Returns a lane's chain: the sum of every sixteenth float from the lane's own on, or of their squares. Eight loads are in
 * flight at a time, so that the chain waits for arithmetic only. */
template <bool SQUARES> DEVICE float norm_chain(const float *x, int width)
{
    enum { AHEAD = 8 };
    float total = 0, some[AHEAD];
    int i = lane_id() % NORM_CHAINS;
    for (; i + (AHEAD - 1) * NORM_CHAINS < width; i += AHEAD * NORM_CHAINS) {
        UNROLL for (int n = 0; n < AHEAD; n++)
            some[n] = x[i + n * NORM_CHAINS];
        UNROLL for (int n = 0; n < AHEAD; n++)
            total = SQUARES ? fmaf(some[n], some[n], total) : total + some[n];
    }
    for (; i < width; i += NORM_CHAINS)
        total = SQUARES ? fmaf(x[i], x[i], total) : total + x[i];
    return total;
}

/* Returns the reciprocal root mean square of x[0 .. width-1], computed by one warp. */
DEVICE float norm_factor(const float *x, int width, float epsilon)
{
    const float total = norm_chain<true>(x, width);
    return 1.0f / sqrtf(sum_chains(total) / (float)width + epsilon);
}

#endif
