/* Activations for matrix tiles: each f32 as the exact sum of three bf16: its upper 8 significant bits, the next 8, and the last
 * 8. (Tiles treat subnormal parts as zeros, which occur in activations below 2^-103; values that are not finite become
 * NaNs.)
 *
 * A row of parts has, for each step of 32 inputs, three lines of 64 bytes: the upper parts of these inputs, the middle and the
 * lower ones; missing inputs are 0. An empty line follows, so that rows do not compete for the same sets of a cache. */
#ifndef MOE_KERNELS_CPU_PARTS_H
#define MOE_KERNELS_CPU_PARTS_H

#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

struct operand_rows;

#define cpu_parts ISA_NAME(cpu_parts)

/* Converts all rows on the queue's pool, into the 64-byte aligned scratch, operand_bytes per row. */
void cpu_parts(struct queue *queue, struct operand_rows *rows);

#endif
