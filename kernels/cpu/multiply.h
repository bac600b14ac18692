/* The arithmetic measurement of each instruction set; see struct cpu_isa in cpu.h. */
#ifndef MOE_KERNELS_CPU_MULTIPLY_H
#define MOE_KERNELS_CPU_MULTIPLY_H

#include <stdbool.h>

#include "kernels/cpu/isa.h"

#define cpu_multiply ISA_NAME(cpu_multiply)

double cpu_multiply(bool whole, long rounds, float *sink);

#endif
