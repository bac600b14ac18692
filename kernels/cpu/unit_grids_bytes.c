/* Formats that gain from look-ups and shifts of bytes, with quantised activations, on processors with AVX512-VNNI, VBMI and
 * GFNI. Only this file is compiled for them: unit_integers.c asks the processor before it calls a function of this file. */
#include "kernels/cpu/isa.h"

#if defined(ISA_AVX512)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512vnni,avx512vbmi,gfni"))), apply_to = function)
#else
#pragma GCC target("avx512vnni,avx512vbmi,gfni")
#endif
#define ISA_VNNI 1
#define ISA_VBMI 1

#include "kernels/cpu/unit_grids.h"

const struct functions *byte_functions(enum weight_format format) { return &TABLE[format]; }

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
