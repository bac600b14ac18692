/* Quantises activations to integers for products with q8 and q4 weights, as formats.h specifies, with the same bits on every
 * machine. Loops run over whole blocks without branches, so that a compiler may vectorise them. */
#ifndef MOE_KERNELS_PLAIN_QUANTISE_H
#define MOE_KERNELS_PLAIN_QUANTISE_H

#include "kernels/plain/math.h"

enum { PLAIN_BLOCK = 32 };

/* Quantises one block: `count` inputs, 1 to 32, of a row; the others are zeros. q has 32 elements. */
PLAIN void plain_quantise(const float *in, int count, int8_t *q, float *scale, int32_t *start)
{
    const float magic = 12582912.0f;                            /* 1.5 * 2^23: adding it rounds to an integer */
    float x[PLAIN_BLOCK] = {0};
    int32_t max = 0, total = 0;
    memcpy(x, in, (size_t)count * sizeof *x);
    for (int i = 0; i < PLAIN_BLOCK; i++) {                    /* magnitudes have the same order as their bits */
        int32_t bits = (int32_t)(plain_to_bits(x[i]) & 0x7fffffffu);
        max = bits > max ? bits : max;
    }
    float m = plain_from_bits((uint32_t)max);
    if (!(m >= 0x1p-100f && max < 0x7f800000)) {
        memset(q, 0, PLAIN_BLOCK);
        *start = 0;
        *scale = max < 0x7f800000 ? 0 : plain_from_bits(0x7fc00000u);
        return;
    }
    float inverse = 127 / m;
    for (int i = 0; i < PLAIN_BLOCK; i++) {
        int32_t integer = (int32_t)(plain_to_bits(x[i] * inverse + magic) - plain_to_bits(magic));
        q[i] = (int8_t)integer;
        total += integer;
    }
    *scale = m / 127;
    *start = -8 * total;
}

#endif
