/* 16-bit and 8-bit floats: exact widening, and narrowing to nearest, ties to even. Pure bit arithmetic, so that host and GPU
 * sources share it and every machine agrees. */
#ifndef MOE_BASE_FLOAT_H
#define MOE_BASE_FLOAT_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define FLOAT_INLINE static __host__ __device__ inline
#else
#define FLOAT_INLINE static inline
#endif

FLOAT_INLINE float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

FLOAT_INLINE uint32_t float_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

FLOAT_INLINE float bf16_to_f32(uint16_t half) { return float_from_bits((uint32_t)half << 16); }

FLOAT_INLINE uint16_t f32_to_bf16(float value)
{
    uint32_t bits = float_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);                  /* keeps a NaN a NaN */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

FLOAT_INLINE float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0x1f)
        return float_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent)
        return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f;               /* subnormal: exact in f32 */
    return float_from_bits(sign | float_to_bits(magnitude));
}

FLOAT_INLINE uint16_t f32_to_f16(float value)
{
    uint32_t bits = float_to_bits(value), sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (bits >= 0x477ff000u)                                    /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (bits >= 0x38800000u) {                                  /* normal in f16 */
        bits += 0xfffu + (bits >> 13 & 1);
        return (uint16_t)(sign | ((bits - 0x38000000u) >> 13));
    }
    /* Subnormal: adding 0.5 puts the f16 unit in the last place of the f32 sum, whose rounding is the wanted one. */
    return (uint16_t)(sign | (float_to_bits(float_from_bits(bits) + 0.5f) - 0x3f000000u));
}

/* E4M3FN: sign, 4 bits of exponent (bias 7), 3 of fraction; no infinities; 0x7f and 0xff are NaNs (OCP 8-bit Floating Point
 * 1.0). */
FLOAT_INLINE float e4m3_to_f32(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24, magnitude = code & 0x7fu;
    if (magnitude == 0x7f)
        return float_from_bits(sign | 0x7fc00000u);
    if (magnitude >= 8)
        return float_from_bits(sign | ((magnitude << 20) + (120u << 23)));
    return float_from_bits(sign | float_to_bits((float)magnitude * 0x1p-9f));
}

/* Values above 448 become 448. Undefined for NaNs. */
FLOAT_INLINE uint8_t f32_to_e4m3(float value)
{
    uint32_t bits = float_to_bits(value), sign = bits >> 24 & 0x80u;
    bits &= 0x7fffffffu;
    if (bits >= 0x43e00000u)
        return (uint8_t)(sign | 0x7eu);
    if (bits >= 0x3c800000u) {                                  /* normal: 2^-6 and above */
        bits += 0x7ffffu + (bits >> 20 & 1);
        uint32_t code = (bits - (120u << 23)) >> 20;
        return (uint8_t)(sign | (code < 0x7e ? code : 0x7e));
    }
    /* Subnormal: the unit in the last place of a sum near 2^14 is 2^-9. */
    return (uint8_t)(sign | (float_to_bits(float_from_bits(bits) + 0x1p14f) - 0x46800000u));
}

#endif
