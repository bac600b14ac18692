/* Activations rounded to bf16 for products with bf16 weights (kernels/linear.h). A row has 2 bytes for each input, up to a
 * multiple of 32 inputs; missing inputs are 0. An empty line follows, so that rows do not compete for the same sets of a
 * cache. */
#ifndef MOE_KERNELS_CPU_ROUNDED_H
#define MOE_KERNELS_CPU_ROUNDED_H

#include "kernels/cpu/isa.h"
#include "kernels/formats.h"
#include "kernels/ops.h"

struct operand_rows;

#define cpu_round ISA_NAME(cpu_round)

/* Rounds all rows on the queue's pool, into the scratch, rounded_bytes per row. */
void cpu_round(struct queue *queue, struct operand_rows *rows);

/* Returns the bytes of a rounded row, at most operand_bytes. */
static inline size_t rounded_bytes(int inputs) { return ((size_t)quantised_blocks(inputs) + 1) * PARTS_LINE; }

#endif
