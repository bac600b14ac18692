/* PLAIN marks code shared by the host and GPUs: pure functions over plain arrays, without memory of their own. */
#ifndef MOE_KERNELS_PLAIN_H
#define MOE_KERNELS_PLAIN_H

#include <stdint.h>

#ifdef __CUDACC__
#define PLAIN static __host__ __device__ inline
#else
#define PLAIN static inline
#endif

#endif
