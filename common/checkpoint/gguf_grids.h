/* Blocks of GGUF's types IQ1, which store an index into a GRID, a table of groups of 8 small values. A block has 256 values and
 * an f16 scale d; s is an integer of 3 bits:
 *
 *     IQ1_S     50 bytes: d; low bytes of 11-bit grid indices; for each 32 values a word: 4 x 3 high bits, s, the sign of delta
 *     IQ1_M     56: the same bytes; for each 16 values two nibbles: 3 high bits and the sign of delta; s for each 16, whose
 *                   words hold the four nibbles of d in their upper bits     both: d (2 s + 1) * ({-1, 0, 1} + delta), 1/8
 *
 * Every value is exact in f32. The grid is that of ggml, with two bits per value, the first one in the lowest bits. */
#ifndef MOE_CHECKPOINT_GGUF_GRIDS_H
#define MOE_CHECKPOINT_GGUF_GRIDS_H

#include <stdint.h>

#include "common/base/float.h"

/* Returns the f16 at an address of any alignment. */
static inline float gguf_half_at(const uint8_t *at) { return f16_to_f32((uint16_t)(at[0] | at[1] << 8)); }

/* Decode one block to 256 floats. */
void gguf_decode_iq1_s(const uint8_t *block, float *values);
void gguf_decode_iq1_m(const uint8_t *block, float *values);

#endif
