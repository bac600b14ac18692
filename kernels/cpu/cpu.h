/* The host's kernels: one source, compiled once for each instruction set, with equal bits from all of them
 * but those that have tiles, for bf16 weights (linear.h).
 *
 * Work runs at once, on the thread pool that is the queue's state (struct thread_pool *). A buffer's address is the host
 * pointer. */
#ifndef MOE_KERNELS_CPU_CPU_H
#define MOE_KERNELS_CPU_CPU_H

#include "common/base/thread_pool.h"
#include "kernels/ops.h"

struct cpu_isa {
    const char *name;                    /* "amx", "avx512vnni", "avx512", "avx2", "plain" */
    bool tiles;                          /* its products with bf16 weights are those of linear.h for matrix tiles */
    struct device_ops ops;

    /* Loads every byte of data (64-byte aligned, a multiple of 4096 * streams bytes) once, walking `streams` equal parts side
     * by side (1, 2 or 4): the yardstick of memory speed. Answers a value that depends on all bytes, so that no load is left
     * out. */
    uint64_t (*read)(const void *data, size_t bytes, int streams);

    /* Multiplies and adds in registers alone, as products with weights of f32 do, or with those of q8 (integers): the
     * yardstick of arithmetic. Answers how many products it made; 0: there is no such yardstick. `sink` (16 floats) gives
     * what is multiplied and takes the sums, so that nothing is left out. */
    double (*multiply)(bool integers, long rounds, float *sink);
};

/* The instruction sets that this build has and this processor runs, best first, ended by NULL. */
const struct cpu_isa *const *cpu_isas(void);

#endif
