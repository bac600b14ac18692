/* Prefetch of weights in two stages: from memory into the second-level cache, and from there into the first-level cache. With a
 * single prefetch into the first level, weights arrive up to a fifth slower (docs/benchmarks.md).
 *
 * Prefetches must be placed between the products that they should overlap: a core has few entries for outstanding requests, and
 * while it waits for an entry no later instruction retires. Several prefetches in a row, which compilers like to form, stall it
 * each time. Therefore the instruction is written as volatile assembly where the processor has it. */
#ifndef MOE_KERNELS_CPU_FETCH_H
#define MOE_KERNELS_CPU_FETCH_H

#include <stddef.h>
#include <stdint.h>

#define FETCH_INLINE static inline __attribute__((always_inline))

enum { FETCH_FAR = 5120, FETCH_NEAR = 2048 };

/* Prefetches a line into the first-level cache, and another one into the second-level cache. Addresses beyond the end of an
 * array are harmless: they are only prefetched. */
FETCH_INLINE void fetch_two(uintptr_t near, uintptr_t far)
{
    const char *first = (const char *)near, *second = (const char *)far;
#if defined(__x86_64__)
    __asm__ volatile("prefetcht0 %0\n\tprefetcht1 %1" ::"m"(*first), "m"(*second));
#else
    __builtin_prefetch(first, 0, 3);
    __builtin_prefetch(second, 0, 2);
#endif
}

/* Prefetches the lines at these distances in bytes. */
FETCH_INLINE void fetch_after(const void *line, size_t near, size_t far)
{
    fetch_two((uintptr_t)line + near, (uintptr_t)line + far);
}

/* Prefetches for a stream that is read forward once. */
FETCH_INLINE void fetch_ahead(const void *line) { fetch_after(line, FETCH_NEAR, FETCH_FAR); }

#endif
