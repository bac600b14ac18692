/* Quantises activations to integers for products with q8 and q4 weights, as formats.h specifies, and keys, values, queries and
 * shares for a cache in q8 (attention.h), with the same bits on every machine. Loops run over whole blocks without branches, so
 * that a compiler may vectorise them. */
#ifndef MOE_KERNELS_PLAIN_QUANTISE_H
#define MOE_KERNELS_PLAIN_QUANTISE_H

#include "kernels/plain/math.h"

enum { PLAIN_BLOCK = 32 };

/* Quantises `count` numbers with one scale, which is returned: q[i] = x[i] * (127 / m), rounded to nearest, ties to even, with
 * m = max |x| and scale m / 127. Codes are 0 if m < 2^-100, with scale 0, and if a number is infinite or NaN, with scale
 * NaN. */
PLAIN float plain_quantise_row(const float *x, int count, int8_t *q)
{
    const float magic = 12582912.0f;                            /* 1.5 * 2^23: adding it rounds to an integer */
    int32_t max = 0;
    for (int i = 0; i < count; i++) {                           /* magnitudes have the same order as their bits */
        int32_t bits = (int32_t)(plain_to_bits(x[i]) & 0x7fffffffu);
        max = bits > max ? bits : max;
    }
    float m = plain_from_bits((uint32_t)max);
    if (!(m >= 0x1p-100f && max < 0x7f800000)) {
        for (int i = 0; i < count; i++)
            q[i] = 0;
        return max < 0x7f800000 ? 0 : plain_from_bits(0x7fc00000u);
    }
    float inverse = 127 / m;
    for (int i = 0; i < count; i++)
        q[i] = (int8_t)(plain_to_bits(x[i] * inverse + magic) - plain_to_bits(magic));
    return m / 127;
}

/* Replaces `count` numbers that are not negative by codes of 0 .. 255 with one scale, which is returned: x[j] * (255 / m),
 * rounded to nearest, ties to even, with m = max x and scale m / 255. The exceptions are those of plain_quantise_row. */
PLAIN float plain_quantise_shares(float *x, int count)
{
    const float magic = 12582912.0f;
    int32_t max = 0;
    for (int j = 0; j < count; j++) {
        int32_t bits = (int32_t)(plain_to_bits(x[j]) & 0x7fffffffu);
        max = bits > max ? bits : max;
    }
    float m = plain_from_bits((uint32_t)max);
    if (!(m >= 0x1p-100f && max < 0x7f800000)) {
        for (int j = 0; j < count; j++)
            x[j] = 0;
        return max < 0x7f800000 ? 0 : plain_from_bits(0x7fc00000u);
    }
    float inverse = 255 / m;
    for (int j = 0; j < count; j++)
        x[j] = (x[j] * inverse + magic) - magic;
    return m / 255;
}

/* Quantises one block: `count` inputs, 1 to 32, of a row; the others are zeros. q has 32 elements. */
PLAIN void plain_quantise(const float *in, int count, int8_t *q, float *scale, float *total, int16_t *sum)
{
    float padded[PLAIN_BLOCK] = {0};
    const float *x = in;
    int32_t first = 0, second = 0;
    if (count < PLAIN_BLOCK) {
        memcpy(padded, in, (size_t)count * sizeof *x);
        x = padded;
    }
    *scale = plain_quantise_row(x, PLAIN_BLOCK, q);
    for (int i = 0; i < PLAIN_BLOCK / 2; i++)                   /* one loop with an array of sums would not be vectorised */
        first += q[i];
    for (int i = PLAIN_BLOCK / 2; i < PLAIN_BLOCK; i++)
        second += q[i];
    *total = *scale * (float)(first + second);
    sum[0] = (int16_t)first;
    sum[1] = (int16_t)second;
}

#endif
