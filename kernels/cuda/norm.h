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

/* Returns the reciprocal root mean square of x[0 .. width-1], computed by one warp. */
DEVICE float norm_factor(const float *x, int width, float epsilon)
{
    float total = 0;
    for (int i = lane_id() % NORM_CHAINS; i < width; i += NORM_CHAINS)
        total = fmaf(x[i], x[i], total);
    return 1.0f / sqrtf(sum_chains(total) / (float)width + epsilon);
}

#endif
