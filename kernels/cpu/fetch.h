/* Weights are asked for twice on their way: from memory into the second-level cache, and from there into the first. Asked for
 * once, into the first, they come up to a fifth slower (docs/benchmarks.md).
 *
 * A request must be between the products that it shall overlap: a core has few entries for requests on their way, and while
 * it waits for one nothing after it is finished. Several in a row, such as compilers like to make of them, stop it each time.
 * So the instruction is written out where there is one, volatile. */
#ifndef MOE_KERNELS_CPU_FETCH_H
#define MOE_KERNELS_CPU_FETCH_H

#include <stddef.h>
#include <stdint.h>

#define FETCH_INLINE static inline __attribute__((always_inline))

enum { FETCH_FAR = 5120, FETCH_NEAR = 2048 };

/* The lines that lie so many bytes after this one; beyond the weights' end they are addresses that are only asked for. */
FETCH_INLINE void fetch_after(const void *line, size_t near, size_t far)
{
    const char *first = (const char *)((uintptr_t)line + near), *second = (const char *)((uintptr_t)line + far);
#if defined(__x86_64__)
    __asm__ volatile("prefetcht0 %0\n\tprefetcht1 %1" ::"m"(*first), "m"(*second));
#else
    __builtin_prefetch(first, 0, 3);
    __builtin_prefetch(second, 0, 2);
#endif
}

/* In a stream that is read forward once. */
FETCH_INLINE void fetch_ahead(const void *line) { fetch_after(line, FETCH_NEAR, FETCH_FAR); }

#endif
