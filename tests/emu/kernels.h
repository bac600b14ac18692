/* The kernels of kernels/cuda as an instruction set of tests/kernel: the same tests on the emulator. A queue of n "threads"
 * selects one of three variants, which must give the same bits. 1: forward order, all inputs of a product in one block,
 * attention with the least scratch. 2: reverse order, parts of inputs in separate blocks, rows share attention's chunks. 3:
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

/* A queue's state; the pointer stays valid. Its tensor core is a Hopper's, or an Ampere's if races are detected. */
void *emu_queue(int way);

/* Registers memory that kernels may access with the race detector, which also detects accesses beyond its end. */
void emu_region(const void *memory, size_t bytes);
void emu_region_end(const void *memory);

/* Launches since the start of the program. */
int emu_launches(void);

/* Bytes that cp_async has copied to shared memory since the start of the program. */
size_t emu_copied(void);

/* Counts the prefetched bytes of one piece of memory from now on, each byte once, and returns them; SIZE_MAX: a byte was
 * prefetched twice. */
void emu_prefetch_watch(const void *memory, size_t bytes);
size_t emu_prefetched(void);

#ifdef __cplusplus
}
#endif

#endif
