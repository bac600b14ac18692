/* Products of activations that are rounded to bf16 (kernels/linear.h), with the bits of x86's vdpbf16ps on every machine. */
#ifndef MOE_KERNELS_PLAIN_BF16_H
#define MOE_KERNELS_PLAIN_BF16_H

#include <stdint.h>

#include "common/base/float.h"
#include "kernels/plain/math.h"

/* Returns the value with a subnormal number replaced by a zero of its sign. */
PLAIN float plain_flush(float value)
{
    const uint32_t bits = plain_to_bits(value);
    return bits & 0x7f800000u ? value : plain_from_bits(bits & 0x80000000u);
}

/* Returns fma(weight, in, sum), flushed to zero if its magnitude would be below 2^-126 after rounding to 24 bits with an
 * unbounded exponent. No argument is subnormal. Just below 2^-126 fmaf rounds to fewer bits, so that sums there are computed
 * again, 2^64 times as large: the smaller factor is below 2^-51 then, because the sum nearly cancels. */
PLAIN float plain_fma_flushed(float weight, float in, float sum)
{
    const float result = fmaf(weight, in, sum);
    if (!(fabsf(result) <= 0x1p-126f) || result == 0)
        return result;
    const float larger = fabsf(weight) > fabsf(in) ? weight : in, smaller = fabsf(weight) > fabsf(in) ? in : weight;
    return fabsf(fmaf(larger, smaller * 0x1p64f, sum * 0x1p64f)) < 0x1p-62f ? copysignf(0, result) : result;
}

/* Adds the products of two neighbouring inputs: the second one first. */
PLAIN float plain_pair(const uint16_t *weight, const uint16_t *in, float sum)
{
    sum = plain_fma_flushed(plain_flush(bf16_to_f32(weight[1])), plain_flush(bf16_to_f32(in[1])), sum);
    return plain_fma_flushed(plain_flush(bf16_to_f32(weight[0])), plain_flush(bf16_to_f32(in[0])), sum);
}

#endif
