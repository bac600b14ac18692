/* The host's training operations (kernels/learn.h), which run at once on the thread pool in queue->state: one source for all
 * instruction sets, and OpenBLAS for products. They are separate from kernels/cpu because most commands do not link
 * OpenBLAS. */
#ifndef MOE_KERNELS_HOST_LEARN_H
#define MOE_KERNELS_HOST_LEARN_H

#include "kernels/learn.h"
#include "kernels/ops.h"

/* Sets OpenBLAS to one thread per call. Must be called before the first operation of a process. */
void host_learn_open(void);

extern const struct learn_ops host_learn_ops;

#endif
