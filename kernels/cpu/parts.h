/* Activations for matrix tiles: each f32 as three bf16 whose sum it is, exactly: its upper 8 significant bits, the next 8, and
 * the last 8. (Tiles take subnormal parts for zeros, some of activations below 2^-103; what is not finite becomes a NaN.)
 *
 * A row of parts is, for each step of 32 inputs, three lines of 64 bytes: the upper parts of these inputs, the middle and the
 * lower ones; inputs after the last are 0. Then comes an empty line, so that rows do not meet in the same sets of a cache. */
#ifndef MOE_KERNELS_CPU_PARTS_H
#define MOE_KERNELS_CPU_PARTS_H

#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

struct operand_rows;

#define cpu_parts ISA_NAME(cpu_parts)

/* A step of the queue's pool: rows of operand_bytes, aligned to a line, into the scratch. */
void cpu_parts(struct queue *queue, struct operand_rows *rows);

#endif
