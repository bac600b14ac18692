/* The host's kernels: one source, compiled once for each instruction set, with equal bits from all of them.
 *
 * Work runs at once, on the team of threads that is the queue's state (struct team *). A buffer's address is the host pointer. */
#ifndef MOE_KERNELS_CPU_CPU_H
#define MOE_KERNELS_CPU_CPU_H

#include "common/base/team.h"
#include "kernels/ops.h"

struct cpu_isa {
    const char *name;                    /* "avx512", "avx2", "plain" */
    struct device_ops ops;
};

/* The instruction sets that this build has and this processor runs, best first, ended by NULL. */
const struct cpu_isa *const *cpu_isas(void);

#endif
