/* The host's operations of training (kernels/learn.h), in place, on the thread pool that is the queue's state: one body for all
 * instruction sets, and OpenBLAS for products. They are beside kernels/cpu, as most commands do without that library. */
#ifndef MOE_KERNELS_HOST_LEARN_H
#define MOE_KERNELS_HOST_LEARN_H

#include "kernels/learn.h"
#include "kernels/ops.h"

/* Before the first operation of a process: one thread of the library a call. */
void host_learn_open(void);

extern const struct learn_ops host_learn_ops;

#endif
