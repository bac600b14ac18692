/* Quantises activations to integers for products with q8 and q4 weights, as formats.h specifies, and keys, values, queries and
 * shares for a cache in q8 (attention.h), with the same bits on every machine. Loops run over whole blocks without branches, so
 * that a compiler may vectorise them. */
#ifndef MOE_KERNELS_PLAIN_QUANTISE_H
#define MOE_KERNELS_PLAIN_QUANTISE_H

#include "kernels/plain/math.h"

enum { PLAIN_BLOCK = 32 };

/* Adding it rounds a float below 2^22 to an integer, ties to even. */
#define PLAIN_MAGIC 12582912.0f                                 /* 1.5 * 2^23 */

/* Returns the factor levels / m that makes `count` numbers codes, with m = max |x|, and stores their scale m / levels. Returns
 * 0 if all codes are 0: with scale 0 if m < 2^-100, and with scale NaN if a number is infinite or NaN. */
PLAIN float plain_code_factor(const float *x, int count, float levels, float *scale)
{
    int32_t max = 0;
    for (int i = 0; i < count; i++) {                           /* magnitudes have the same order as their bits */
        int32_t bits = (int32_t)(plain_to_bits(x[i]) & 0x7fffffffu);
        max = bits > max ? bits : max;
    }
    const float m = plain_from_bits((uint32_t)max);
    if (!(m >= 0x1p-100f && max < 0x7f800000)) {
        *scale = max < 0x7f800000 ? 0 : plain_from_bits(0x7fc00000u);
        return 0;
    }
    *scale = m / levels;
    return levels / m;
}

/* Quantises `count` numbers with one scale, which is returned: q[i] = x[i] * (127 / m), rounded to nearest, ties to even. The
 * exceptions are those of plain_code_factor. */
PLAIN float plain_quantise_row(const float *x, int count, int8_t *q)
{
    float scale;
    const float factor = plain_code_factor(x, count, 127, &scale);
    if (factor == 0) {
        memset(q, 0, (size_t)count);
        return scale;
    }
    for (int i = 0; i < count; i++)
        q[i] = (int8_t)(plain_to_bits(x[i] * factor + PLAIN_MAGIC) - plain_to_bits(PLAIN_MAGIC));
    return scale;
}

/* Replaces `count` numbers that are not negative by codes of 0 .. 255 with one scale, which is returned: x[j] * (255 / m),
 * rounded to nearest, ties to even. The exceptions are those of plain_code_factor. */
PLAIN float plain_quantise_shares(float *x, int count)
{
    float scale;
    const float factor = plain_code_factor(x, count, 255, &scale);
    if (factor == 0) {
        memset(x, 0, (size_t)count * sizeof *x);
        return scale;
    }
    for (int j = 0; j < count; j++)
        x[j] = (x[j] * factor + PLAIN_MAGIC) - PLAIN_MAGIC;
    return scale;
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
