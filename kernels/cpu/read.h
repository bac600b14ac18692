/* The memory measurement of each instruction set; see struct cpu_isa in cpu.h. */
#ifndef MOE_KERNELS_CPU_READ_H
#define MOE_KERNELS_CPU_READ_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa.h"

#define cpu_read ISA_NAME(cpu_read)

uint64_t cpu_read(const void *data, size_t bytes, int streams);

#endif
