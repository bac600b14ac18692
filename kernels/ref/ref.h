/* The reference kernels: plain C, double accumulation, one thread. They are the specification and are never optimised.
 *
 * They use simulated device memory: the queue's state is a struct ref_memory, which resolves an address and checks that the
 * bytes a kernel will touch are within the buffer and within a live allocation. So it detects a kernel or an engine that uses a
 * device address as a pointer or reads beyond a buffer. */
#ifndef MOE_KERNELS_REF_REF_H
#define MOE_KERNELS_REF_REF_H

#include "kernels/learn.h"
#include "kernels/ops.h"

struct ref_memory {
    /* Returns the host pointer; aborts with a message if the bytes are out of bounds. */
    void *(*resolve)(struct ref_memory *memory, struct buffer buffer, uint64_t bytes);
};

extern const struct device_ops ref_ops;
extern const struct learn_ops ref_learn_ops;

#endif
