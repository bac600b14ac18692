/* Weights are asked for twice on their way: from memory into the second-level cache, and from there into the first. Asked for
 * once, into the first, they come up to a fifth slower (BENCHMARKS.md). */
#ifndef MOE_KERNELS_CPU_FETCH_H
#define MOE_KERNELS_CPU_FETCH_H

#include <stdint.h>

enum { FETCH_FAR = 5120, FETCH_NEAR = 2048 };

/* The lines that lie behind this one in a stream that is read forward once. */
static inline __attribute__((always_inline)) void fetch_ahead(const void *line)
{
    __builtin_prefetch((const void *)((uintptr_t)line + FETCH_FAR), 0, 2);
    __builtin_prefetch((const void *)((uintptr_t)line + FETCH_NEAR), 0, 3);
}

#endif
