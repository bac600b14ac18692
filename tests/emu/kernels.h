/* The kernels of kernels/cuda as tests/kernel sees an instruction set: the same tests, on the emulator. A queue of n "threads"
 * is one of three ways to run them, which must give the same bits: 1, forward, all inputs of a product in one block, and
 * attention through the least scratch; 2, reverse, parts of inputs in blocks of their own, rows share attention's chunks; 3,
 * a random order, another for each queue, the chunks of a few rows at a time, and the inputs of small products in several
 * blocks. 4, 5 and 6 are the same without a library for products. Included by tests/kernel/support.h. */
#ifndef MOE_TESTS_EMU_KERNELS_H
#define MOE_TESTS_EMU_KERNELS_H

#include "kernels/learn.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct device_ops cuda_ops;
extern const struct learn_ops cuda_learn_ops;

/* A queue's state; it stays valid. Its tensor core is a Hopper's; an Ampere's where races are looked for. */
void *emu_queue(int way);

/* Memory that kernels may touch, for the race detector; it also sees accesses past its end. */
void emu_region(const void *memory, size_t bytes);
void emu_region_end(const void *memory);

/* Launches since the program began. */
int emu_launches(void);

/* Bytes that cp_async has copied to shared memory since the program began. */
size_t emu_copied(void);

/* Counts the prefetched bytes of one piece of memory from now on, each byte once, and returns them; SIZE_MAX: one was
 * prefetched twice. */
void emu_prefetch_watch(const void *memory, size_t bytes);
size_t emu_prefetched(void);

#ifdef __cplusplus
}
#endif

#endif
