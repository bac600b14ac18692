/* The sum that a tensor core gives for bf16 products, bit for bit (models of Li et al., arXiv 2511.10909, and Khattak and
 * Mikaitis, arXiv 2512.07004). The products of a group are exact; they and c are shifted to the largest exponent among them
 * and cut to F bits behind the point, added as integers, and the sum is cut to f32.
 *     Hopper, Blackwell: one group of 16, F = 25;  Ampere, Ada: two groups of 8 in turn, F = 24
 * An exponent is the sum of the factors', not the product's. */
#include "tests/emu/inside.h"

namespace emu {

/* A bf16 or f32 as a whole number times a power of two: value = sign * whole * 2^(exponent - bits), bits of the fraction. */
struct parts {
    int64_t whole;
    int exponent;
};

static parts parts_of(uint32_t magnitude, int bits)
{
    int field = (int)(magnitude >> bits);
    int64_t fraction = magnitude & ((1u << bits) - 1);
    return field ? parts{fraction | (int64_t)1 << bits, field - 127} : parts{fraction, -126};
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* sum * 2^(exponent - fraction) toward zero. */
static float cut(int64_t sum, int exponent, int fraction)
{
    if (!sum)
        return 0.0f;
    uint32_t sign = sum < 0 ? 0x80000000u : 0;
    uint64_t magnitude = sum < 0 ? (uint64_t)-sum : (uint64_t)sum;
    int top = 63 - __builtin_clzll(magnitude);
    int e = top + exponent - fraction;                           /* the exponent of the result */
    if (e > 127)
        return of_bits(sign | 0x7f800000u);
    int keep = e < -126 ? -149 : e - 23;                         /* of the last bit that stays */
    int shift = keep - (exponent - fraction);
    uint64_t mantissa = shift > 63 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
    return of_bits(sign | (e < -126 ? (uint32_t)mantissa : (uint32_t)(e + 126) * 0x800000u + (uint32_t)mantissa));
}

static float group(const uint16_t *a, const uint16_t *b, float c, int terms, int fraction, int least)
{
    int64_t whole[17];
    int exponent[17], most = -1000, special = 0;
    for (int i = 0; i < terms; i++) {
        special |= (a[i] & 0x7f80) == 0x7f80 || (b[i] & 0x7f80) == 0x7f80;
        parts x = parts_of(a[i] & 0x7fffu, 7), y = parts_of(b[i] & 0x7fffu, 7);
        whole[i] = x.whole * y.whole << 9;                       /* from 14 to 23 bits of fraction */
        exponent[i] = whole[i] ? x.exponent + y.exponent : least;
        if ((a[i] ^ b[i]) & 0x8000)
            whole[i] = -whole[i];
        most = exponent[i] > most ? exponent[i] : most;
    }
    uint32_t bits = bits_of(c);
    special |= (bits & 0x7f800000u) == 0x7f800000u;
    if (special) {                                               /* infinities and NaNs: as arithmetic has them */
        double sum = c;
        for (int i = 0; i < terms; i++)
            sum += (double)of_bits((uint32_t)a[i] << 16) * (double)of_bits((uint32_t)b[i] << 16);
        return sum != sum ? of_bits(0x7fffffffu) : (float)sum;
    }
    parts z = parts_of(bits & 0x7fffffffu, 23);
    whole[terms] = bits >> 31 ? -z.whole : z.whole;
    exponent[terms] = z.whole ? z.exponent : least;
    most = exponent[terms] > most ? exponent[terms] : most;
    int64_t sum = 0;
    for (int i = 0; i <= terms; i++) {
        int shift = most - exponent[i];                          /* whole << (F - 23) >> shift, toward zero */
        if (shift > 60)
            continue;
        int64_t m = (whole[i] < 0 ? -whole[i] : whole[i]) << (fraction - 23) >> shift;
        sum += whole[i] < 0 ? -m : m;
    }
    return cut(sum, most, fraction);
}

float tensor_core_sum(const uint16_t *a, const uint16_t *b, float c, int tensor_core)
{
    if (tensor_core >= 90)
        return group(a, b, c, 16, 25, -133);
    return group(a + 8, b + 8, group(a, b, c, 8, 24, -132), 8, 24, -132);
}

}
