/* exp, silu and sigmoid in f32, the same bits on every machine: only correctly rounded operations (fmaf, +, *, /) and integer
 * arithmetic, no branches, so that a compiler may vectorise a loop over them without changing a result.
 *
 * plain_exp: within 1.1 units in the last place for every f32; exp(-inf) = 0, exp(+inf) and overflow = +inf, NaN stays NaN,
 * results below the normal range are rounded once. Method: x = n ln 2 + r, |r| <= ln 2 / 2; polynomial for e^r (interpolation
 * in the Chebyshev nodes, relative error 1.1e-8), times 2^n in two steps. */
#ifndef MOE_KERNELS_PLAIN_MATH_H
#define MOE_KERNELS_PLAIN_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/plain/plain.h"

PLAIN float plain_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

PLAIN uint32_t plain_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

PLAIN float plain_exp(float x)
{
    const float magic = 12582912.0f;                            /* 1.5 * 2^23: adding it rounds to an integer */
    x = x > 100.0f ? 100.0f : x;                                /* both far outside; a NaN passes both */
    x = x < -110.0f ? -110.0f : x;
    float shifted = fmaf(x, 0x1.715476p+0f, magic);
    float n = shifted - magic;
    float r = fmaf(n, -0x1.62e4p-1f, x);
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float q = 0x1.6d11fep-10f;
    q = fmaf(q, r, 0x1.120c62p-7f);
    q = fmaf(q, r, 0x1.555518p-5f);
    q = fmaf(q, r, 0x1.5554dcp-3f);
    q = fmaf(q, r, 0.5f);
    float power = 1.0f + fmaf(r * r, q, r);
    /* 2^n as 2^(n/2) * 2^(n - n/2), so that neither factor leaves the normal range. */
    uint32_t exponent = plain_to_bits(shifted) - plain_to_bits(magic) + 1024u;      /* n + 1024, never negative */
    uint32_t half = exponent >> 1, rest = exponent - half;
    return power * plain_from_bits((half - 512u + 127u) << 23) * plain_from_bits((rest - 512u + 127u) << 23);
}

PLAIN float plain_silu(float x) { return x / (1.0f + plain_exp(-x)); }

PLAIN float plain_sigmoid(float x) { return 1.0f / (1.0f + plain_exp(-x)); }

#endif
