/* Quantisation of activations to integers before a product with weights in a quantised format (formats.h). */
#ifndef MOE_KERNELS_CPU_QUANTISE_H
#define MOE_KERNELS_CPU_QUANTISE_H

#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

struct operand_rows;

#define cpu_quantise ISA_NAME(cpu_quantise)

/* Quantises all rows on the queue's pool, into struct quantised [rows][quantised_blocks(inputs)] in the scratch. */
void cpu_quantise(struct queue *queue, struct operand_rows *rows);

#endif
