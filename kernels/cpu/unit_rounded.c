/* Products of bf16 weights with activations that are rounded to bf16 (linear.h), by fused multiply-adds that flush subnormal
 * factors and results, for processors without instructions for such products. On x86 a control register lets the vector unit
 * flush; NEON would detect a subnormal result before rounding, so it uses the form of plain processors. */
#include <string.h>

#include "kernels/cpu/unit.h"
#include "kernels/plain/bf16.h"

#if defined(ISA_AVX512) || defined(ISA_AVX2)

#include <immintrin.h>

#include "kernels/cpu/vector.h"

#define INLINE static inline __attribute__((always_inline))

typedef struct { vector even, odd; } factors;

INLINE factors factors_weights(const unsigned char *at)
{
    factors pair;
    vector_bf16(at, &pair.even, &pair.odd);
    return pair;
}

INLINE factors factors_all(const uint16_t *in)
{
    uint32_t both;
    memcpy(&both, in, sizeof both);
    return (factors){vector_all(plain_from_bits(both << 16)), vector_all(plain_from_bits(both & 0xffff0000u))};
}

INLINE vector factors_add(factors weight, factors in, vector sum)
{
    return vector_fma(weight.even, in.even, vector_fma(weight.odd, in.odd, sum));
}

#include "kernels/cpu/rounded_sets.h"

void unit_product_flushed(const void *unit, int inputs, int rows, const void *const *in, float *out)
{
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    run_sets(unit, inputs, rows, in, out);
    _mm_setcsr(control);
}

#else

void unit_product_flushed(const void *unit, int inputs, int rows, const void *const *in, float *out)
{
    memset(out, 0, (size_t)rows * UNIT_OUTPUTS * sizeof *out);
    for (int pair = 0; pair < (inputs + 1) / 2; pair++) {
        const uint16_t *weight = (const uint16_t *)unit + (size_t)pair * UNIT_STEP_BYTES / sizeof *weight;
        for (int i = 0; i < rows * UNIT_OUTPUTS; i++) {
            const uint16_t *x = (const uint16_t *)in[i / UNIT_OUTPUTS] + 2 * pair;
            out[i] = plain_pair(weight + 2 * (i % UNIT_OUTPUTS), x, out[i]);
        }
    }
}

#endif
