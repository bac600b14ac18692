/* Products of bf16 weights with activations that are rounded to bf16 (linear.h), by vdpbf16ps. Only this file is compiled for
 * processors with AVX512-BF16: unit_product_rounded asks the processor before it calls it. */
#if defined(ISA_VNNI)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16"))), apply_to = function)
#else
#pragma GCC target("avx512bf16")
#endif

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/vector.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m512i factors;

INLINE factors factors_weights(const unsigned char *at) { return _mm512_loadu_si512((const void *)at); }

INLINE factors factors_all(const uint16_t *in)
{
    int32_t both;
    memcpy(&both, in, sizeof both);
    return _mm512_set1_epi32(both);
}

INLINE vector factors_add(factors weight, factors in, vector sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)weight, (__m512bh)in);
}

#include "kernels/cpu/rounded_sets.h"

void unit_product_dot(const void *unit, int inputs, int rows, const void *const *in, float *out)
{
    run_sets(unit, inputs, rows, in, out);
}

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
