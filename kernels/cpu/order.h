/* The order of inputs in which weights are unpacked to bytes (codes.h): the one with the cheapest unpacking. Quantised
 * activations are stored in the same order; exact sums of integers do not depend on it. */
#ifndef MOE_KERNELS_CPU_ORDER_H
#define MOE_KERNELS_CPU_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa.h"
#include "kernels/formats.h"

/* Returns the input of each of the 32 places of a block, or NULL for ascending order. The first 16 places have the first 16
 * inputs, except in q5_k, whose scales are of 32 inputs. */
static inline const uint8_t *codes_order(enum weight_format format)
{
#if defined(ISA_VECTORS)
    static const uint8_t nibbles[BLOCK_INPUTS] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15, 16, 18, 20, 22, 17, 19,
                                                  21, 23, 24, 26, 28, 30, 25, 27, 29, 31};
    static const uint8_t fives[BLOCK_INPUTS] = {0, 1, 2, 3, 6, 7, 8, 9, 12, 13, 14, 15, 18, 19, 20, 21, 24, 25, 26, 27, 4, 5,
                                                10, 11, 16, 17, 22, 23, 28, 29, 30, 31};
    static const uint8_t sixes[BLOCK_INPUTS] = {0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 4, 9, 14, 15, 16, 17, 18, 19, 21, 22,
                                                23, 24, 26, 27, 28, 29, 20, 25, 30, 31};
    static const uint8_t threes[BLOCK_INPUTS] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 8, 9, 14, 15, 16, 17, 18, 19, 20, 21,
                                                 22, 23, 26, 27, 28, 29, 24, 25, 30, 31};
    static const uint8_t twos[BLOCK_INPUTS] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 16, 20, 24, 28, 17, 21, 25,
                                               29, 18, 22, 26, 30, 19, 23, 27, 31};
    switch (format) {
    case FORMAT_MXFP4: case FORMAT_Q4_K: case FORMAT_IQ4_XS: case FORMAT_IQ4_NL: case FORMAT_NVFP4: case FORMAT_NVFP4_S:
        return nibbles;
    case FORMAT_Q5_K: return fives;
    case FORMAT_Q6_K: return sixes;
    case FORMAT_Q3_K: return threes;
    case FORMAT_Q2_K: case FORMAT_IQ3_S: case FORMAT_IQ3_XXS: case FORMAT_IQ2_S: case FORMAT_IQ2_XS: case FORMAT_IQ2_XXS:
        return twos;
    default: return NULL;
    }
#else
    (void)format;
    return NULL;
#endif
}

#endif
