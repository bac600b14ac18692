/* The host's kernels: one source, compiled once for each instruction set. All sets give the same bits, except those with matrix
 * tiles for bf16 weights (linear.h).
 *
 * Operations run at once, on the thread pool in queue->state (struct thread_pool *). A buffer's address is the host pointer. */
#ifndef MOE_KERNELS_CPU_CPU_H
#define MOE_KERNELS_CPU_CPU_H

#include "common/base/thread_pool.h"
#include "kernels/ops.h"

struct cpu_isa {
    const char *name;                    /* "amx", "avx512vnni", "avx512", "avx2", "dotprod", "plain" */
    bool tiles;                         /* products with bf16 weights have the order that linear.h specifies for matrix tiles */
    struct device_ops ops;

    /* Measures memory bandwidth: loads every byte of data (64-byte aligned, a multiple of 4096 * streams bytes) once, in
     * `streams` equal parts side by side (1, 2 or 4). Returns a value that depends on all bytes, so that the compiler keeps all
     * loads. */
    uint64_t (*read)(const void *data, size_t bytes, int streams);

    /* Measures arithmetic: multiplies and adds in registers only, as products with f32 weights do, or those with q8 (integers).
     * Returns the number of products; 0: not measurable. `sink` (16 floats) provides the factors and receives the sums, so that
     * the compiler keeps the arithmetic. */
    double (*multiply)(bool integers, long rounds, float *sink);
};

/* Returns the instruction sets that this build has and this processor supports, best first, terminated by NULL. */
const struct cpu_isa *const *cpu_isas(void);

#endif
