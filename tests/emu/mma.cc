/* The sum that a tensor core computes for bf16 products, bit for bit (models of Li et al., arXiv 2511.10909, and Khattak and
 * Mikaitis, arXiv 2512.07004). The products of a group are exact; they and c are shifted to the largest exponent among them,
 * truncated to F bits after the point, added as integers, and the sum is truncated to f32.
 *     Hopper, Blackwell: one group of 16, F = 25;  Ampere, Ada: two groups of 8, one after the other, F = 24
 * An exponent is the sum of the factors' exponents, not the product's. */
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
    int e = top + exponent - fraction;                           /* exponent of the result */
    if (e > 127)
        return of_bits(sign | 0x7f800000u);
    int keep = e < -126 ? -149 : e - 23;                         /* weight of the last bit that is kept */
    int shift = keep - (exponent - fraction);
    uint64_t mantissa = shift > 63 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
    return of_bits(sign | (e < -126 ? (uint32_t)mantissa : (uint32_t)(e + 126) * 0x800000u + (uint32_t)mantissa));
}

/* Infinities and NaNs follow the rules of arithmetic. */
static float special_sum(const uint16_t *a, const uint16_t *b, float c, int terms)
{
    double sum = c;
    for (int i = 0; i < terms; i++)
        sum += (double)of_bits((uint32_t)a[i] << 16) * (double)of_bits((uint32_t)b[i] << 16);
    return sum != sum ? of_bits(0x7fffffffu) : (float)sum;
}

/* Without branches, so that compilers vectorise the loop. */
void row_of(const uint16_t *half, row_parts *row)
{
    int special = 0;
    for (int i = 0; i < 16; i++) {
        int32_t h = half[i], field = h >> 7 & 0xff, fraction = h & 0x7f;
        int32_t whole = field ? fraction | 0x80 : fraction;
        row->half[i] = half[i];
        row->whole[i] = h & 0x8000 ? -whole : whole;
        row->exponent[i] = (field ? field : 1) - 127;
        special |= field == 0xff;
    }
    row->special = special;
}

/* Adds `terms` products from `first` on, and c. A product has 14 bits of fraction and is below 2^16, so it fits, with F
 * more, into 32 bits; the loops are written so that compilers vectorise them. */
template <int TERMS, int FRACTION>
static float group(const row_parts &a, const row_parts &b, int first, float c, int min)
{
    uint32_t bits = bits_of(c);
    if (a.special || b.special || (bits & 0x7f800000u) == 0x7f800000u)
        return special_sum(a.half + first, b.half + first, c, TERMS);
    int32_t whole[TERMS], exponent[TERMS];
    for (int i = 0; i < TERMS; i++) {
        whole[i] = a.whole[first + i] * b.whole[first + i];
        int32_t e = a.exponent[first + i] + b.exponent[first + i];
        exponent[i] = whole[i] ? e : min;
    }
    parts z = parts_of(bits & 0x7fffffffu, 23);
    int32_t max = z.whole ? z.exponent : min;
    const int32_t c_exponent = max;
    for (int i = 0; i < TERMS; i++)
        max = exponent[i] > max ? exponent[i] : max;
    int64_t c_shift = max - c_exponent, sum = c_shift > 60 ? 0 : z.whole << (FRACTION - 23) >> c_shift;
    if (bits >> 31)
        sum = -sum;
    int32_t cut_off[TERMS];
    for (int i = 0; i < TERMS; i++) {
        uint32_t magnitude = (uint32_t)(whole[i] < 0 ? -whole[i] : whole[i]) << (FRACTION - 14);
        int32_t shift = max - exponent[i];
        int32_t m = (int32_t)(magnitude >> (shift > 31 ? 31 : shift));
        cut_off[i] = whole[i] < 0 ? -m : m;
    }
    for (int i = 0; i < TERMS; i++)
        sum += cut_off[i];
    return cut(sum, max, FRACTION);
}

float row_sum(const row_parts &a, const row_parts &b, float c, int tensor_core)
{
    if (tensor_core >= 90)
        return group<16, 25>(a, b, 0, c, -133);
    return group<8, 24>(a, b, 8, group<8, 24>(a, b, 0, c, -132), -132);
}

float tensor_core_sum(const uint16_t *a, const uint16_t *b, float c, int tensor_core)
{
    row_parts row, column;
    row_of(a, &row);
    row_of(b, &column);
    return row_sum(row, column, c, tensor_core);
}

}
