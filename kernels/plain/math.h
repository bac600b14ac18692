/* exp, log, erf, silu, sigmoid, gelu and log_add in f32, with the same bits on every machine: they use only correctly rounded
 * operations (fmaf, +, *, /) and integer arithmetic, and no branches, so that a compiler may vectorise loops over them without
 * changing a result.
 *
 * plain_exp: within 1.1 units in the last place for every f32; exp(-inf) = 0, exp(+inf) and overflow = +inf, NaN stays NaN,
 * results below the normal range are rounded once. Method: x = n ln 2 + r, |r| <= ln 2 / 2; polynomial for e^r (interpolation
 * in the Chebyshev nodes, relative error 1.1e-8), times 2^n in two steps.
 *
 * plain_erf: within 7e-8 and 1.8 units in the last place for every f32; odd; NaN stays NaN. Method: up to 0.9 x + x P(x^2), P
 * of least error in erf (5.2e-9); above it 1 - e^(x Q(x)), Q likewise up to 4 (8e-10); beyond 4, Q keeps falling, and erf is
 * 1.
 *
 * plain_log: only for positive numbers in the normal range, within 1.1 units in the last place. Method: x = 2^n (1 + f), f from
 * sqrt(1/2) - 1 to sqrt 2 - 1; n ln 2 + f + f^2 Q(f), Q of least error in the logarithm (4.2e-9).
 *
 * plain_log_add: log(e^a + e^b), computed as the larger one plus the logarithm of 1 + e^-(difference), which is within 6e-8 of
 * the exact one. Swapping a and b gives the same bits. For two -inf it is -inf; NaN stays NaN.
 *
 * plain_gelu_tanh: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); within 3e-7 |x|, and -inf gives NaN. plain_tanh: within
 * 2e-7, odd; NaN stays NaN.
 *
 * plain_gelu: 0.5 x (1 + erf(x / sqrt 2)) from left to right, the exact form of arXiv 1606.08415; within 1.2e-7 |x|. -inf gives
 * NaN, as in silu. */
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
    x = x > 100.0f ? 100.0f : x;                                /* both limits are far outside the range; a NaN passes both */
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

PLAIN float plain_erf(float x)
{
    float t = fabsf(x), s = x * x;
    float p = -0x1.3757a0p-11f;
    p = fmaf(p, s, 0x1.4639a0p-8f);
    p = fmaf(p, s, -0x1.b6497cp-6f);
    p = fmaf(p, s, 0x1.ce1344p-4f);
    p = fmaf(p, s, -0x1.812696p-2f);
    p = fmaf(p, s, 0x1.06eb9ep-3f);
    float q = -0x1.6926ccp-17f;
    q = fmaf(q, t, 0x1.4d8274p-12f);
    q = fmaf(q, t, -0x1.dadcf6p-9f);
    q = fmaf(q, t, 0x1.84a1aap-6f);
    q = fmaf(q, t, -0x1.b2f1c8p-4f);
    q = fmaf(q, t, -0x1.453682p-1f);
    q = fmaf(q, t, -0x1.20ee9ep+0f);
    float near = fmaf(p, x, x), far = copysignf(1.0f - plain_exp(q * t), x);
    /* A selection by bits, all ones for t > 0.9, because GCC would turn a comparison into a branch. */
    uint32_t is_far = 0u - ((plain_to_bits(0.9f) - plain_to_bits(t)) >> 31);
    return plain_from_bits((plain_to_bits(far) & is_far) | (plain_to_bits(near) & ~is_far));
}

PLAIN float plain_log(float x)
{
    int32_t n = (int32_t)(plain_to_bits(x) - 0x3f3504f3u) >> 23;
    float f = plain_from_bits(plain_to_bits(x) - ((uint32_t)n << 23)) - 1.0f;
    float q = -0x1.40723ap-4f;
    q = fmaf(q, f, 0x1.0a56e0p-3f);
    q = fmaf(q, f, -0x1.0e8424p-3f);
    q = fmaf(q, f, 0x1.22115cp-3f);
    q = fmaf(q, f, -0x1.543244p-3f);
    q = fmaf(q, f, 0x1.99a96ap-3f);
    q = fmaf(q, f, -0x1.0003fep-2f);
    q = fmaf(q, f, 0x1.555544p-2f);
    q = fmaf(q, f, -0x1.fffff8p-2f);
    float low = fmaf((float)n, 0x1.7f7d1cp-20f, fmaf(f * f, q, f));
    return fmaf((float)n, 0x1.62e4p-1f, low);
}

PLAIN float plain_log_add(float a, float b)
{
    const float max = a > b ? a : b, min = a > b ? b : a;       /* if one is NaN, max or min is NaN */
    const float share = plain_exp(min == max ? 0.0f : min - max);
    return max + plain_log(1.0f + share) + 0.0f * share;       /* the last term restores a NaN, which plain_log does not keep */
}

/* Uses 0.5 (1 + tanh z) = sigmoid 2z, with z = sqrt(2 / pi) (x + 0.044715 x^3). */
PLAIN float plain_gelu_tanh(float x)
{
    return x / (1.0f + plain_exp(-0x1.988454p+0f * fmaf(0x1.6e4e26p-5f * x * x, x, x)));
}

PLAIN float plain_tanh(float x)
{
    const float e = plain_exp(-2.0f * fabsf(x));
    return copysignf((1.0f - e) / (1.0f + e), x);
}

PLAIN float plain_gelu(float x) { return 0.5f * x * (1.0f + plain_erf(x * 0x1.6a09e6p-1f)); }

#endif
