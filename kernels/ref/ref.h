/* The reference kernels: plain C, double accumulation, one thread. They are the specification and are never optimised.
 *
 * They run behind memory of their own: the queue's state is a struct ref_memory, which resolves an address and checks that the
 * bytes a kernel is about to touch lie in the buffer and in a live allocation. So a kernel or an engine that takes a device's
 * address for a pointer, or reads past a buffer, is found. */
#ifndef MOE_KERNELS_REF_REF_H
#define MOE_KERNELS_REF_REF_H

#include "kernels/learn.h"
#include "kernels/ops.h"

struct ref_memory {
    /* Aborts with a message when out of bounds. */
    void *(*resolve)(struct ref_memory *memory, struct buffer buffer, uint64_t bytes);
};

extern const struct device_ops ref_ops;
extern const struct learn_ops ref_learn_ops;

#endif
