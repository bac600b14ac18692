/* The kernels of kernels/cuda as tests/kernel sees an instruction set: the same tests, on the emulator. A queue of n "threads"
 * is one of three ways to run them, which must give the same bits: 1, forward, attention's chunks in one block; 2, reverse,
 * chunks in blocks of their own; 3, a random order, another for each queue. Included by tests/kernel/support.h. */
#ifndef MOE_TESTS_EMU_KERNELS_H
#define MOE_TESTS_EMU_KERNELS_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct device_ops cuda_ops;

/* A queue's state; valid to the end of the process. */
void *emu_queue(int way);

#ifdef __cplusplus
}
#endif

#endif
