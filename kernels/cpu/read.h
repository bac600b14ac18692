/* The memory yardstick of each instruction set: see struct cpu_isa in cpu.h. */
#ifndef MOE_KERNELS_CPU_READ_H
#define MOE_KERNELS_CPU_READ_H

#include <stddef.h>
#include <stdint.h>

uint64_t cpu_read_avx512(const void *data, size_t bytes, int streams);
uint64_t cpu_read_avx2(const void *data, size_t bytes, int streams);
uint64_t cpu_read_plain(const void *data, size_t bytes, int streams);

#endif
