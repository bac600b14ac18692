/* Activations as integers for products with q8 and q4 weights, as formats.h defines them: the same bits on every machine.
 * Loops over whole blocks without branches, so that a compiler may vectorise them. */
#ifndef MOE_KERNELS_PLAIN_QUANTISE_H
#define MOE_KERNELS_PLAIN_QUANTISE_H

#include "kernels/formats.h"
#include "kernels/plain/math.h"

/* `count` inputs, 1 to 32, of one row; the others of the block are zeros. */
PLAIN void plain_quantise_block(const float *in, int count, struct quantised *out)
{
    const float magic = 12582912.0f;                            /* 1.5 * 2^23: adding it rounds to an integer */
    float x[BLOCK_INPUTS] = {0};
    int32_t most = 0, sum = 0;
    memcpy(x, in, (size_t)count * sizeof *x);
    for (int i = 0; i < BLOCK_INPUTS; i++) {                    /* the bits of magnitudes are in the order of magnitudes */
        int32_t bits = (int32_t)(plain_to_bits(x[i]) & 0x7fffffffu);
        most = bits > most ? bits : most;
    }
    float m = plain_from_bits((uint32_t)most);
    if (!(m >= 0x1p-100f && most < 0x7f800000)) {
        memset(out, 0, sizeof *out);
        out->scale = most < 0x7f800000 ? 0 : plain_from_bits(0x7fc00000u);
        return;
    }
    float inverse = 127 / m;
    for (int i = 0; i < BLOCK_INPUTS; i++) {
        int32_t q = (int32_t)(plain_to_bits(x[i] * inverse + magic) - plain_to_bits(magic));
        out->q[i] = (int8_t)q;
        sum += q;
    }
    out->scale = m / 127;
    out->sum = sum;
}

PLAIN void plain_quantise(const float *in, int inputs, struct quantised *out)
{
    for (int k = 0; k < inputs; k += BLOCK_INPUTS, out++)
        plain_quantise_block(in + k, inputs - k < BLOCK_INPUTS ? inputs - k : BLOCK_INPUTS, out);
}

#endif
