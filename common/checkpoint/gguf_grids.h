/* Blocks of GGUF's types IQ1, IQ2 and IQ3, which store an index into a GRID, a table of groups of 4 or 8 small magnitudes, and
 * the signs of the group. A block has 256 values and an f16 scale d; s is an integer of 3 or 4 bits for 8 to 32 values:
 *
 *     IQ2_XXS   66 bytes: d; for each 32 values 4 grid indices, then a dword of 4 sign indices (7 bits each) and s
 *     IQ2_XS    74: d; for each 8 values a word, 9 bits of grid index and 7 of sign index; s for each 16
 *     IQ2_S     82: d; low bytes of 10-bit grid indices; signs, a bit a value; high bits; s for each 16
 *                   all three: d (s + 1/2) / 4 * {8, 25, 43}
 *     IQ3_XXS   98: d; for each 4 values a grid index; dwords as of IQ2_XXS           d (s + 1/2) / 2 * {4, 12, ... 52, 62}
 *     IQ3_S    110: d; low bytes of 9-bit grid indices; their high bits; signs; s for each 32    d (2 s + 1) * {1, 3, ... 15}
 *     IQ1_S     50: d; low bytes of 11-bit grid indices; for each 32 values a word: 4 x 3 high bits, s, the sign of delta
 *     IQ1_M     56: the same bytes; for each 16 values two nibbles: 3 high bits and the sign of delta; s for each 16, whose
 *                   words hold the four nibbles of d in their upper bits     both: d (2 s + 1) * ({-1, 0, 1} + delta), 1/8
 *
 * A sign index encodes 8 signs; the eighth makes the number of minus signs even. Every value is exact in f32. Grids are those
 * of ggml, with two bits (IQ1, IQ2) or four (IQ3) per magnitude, the first one in the lowest bits. */
#ifndef MOE_CHECKPOINT_GGUF_GRIDS_H
#define MOE_CHECKPOINT_GGUF_GRIDS_H

#include <stdint.h>

#include "common/base/float.h"

/* Returns the f16 at an address of any alignment. */
static inline float gguf_half_at(const uint8_t *at) { return f16_to_f32((uint16_t)(at[0] | at[1] << 8)); }

/* Each decodes one block to 256 floats. */
void gguf_decode_iq2_xxs(const uint8_t *block, float *values);
void gguf_decode_iq2_xs(const uint8_t *block, float *values);
void gguf_decode_iq2_s(const uint8_t *block, float *values);
void gguf_decode_iq3_xxs(const uint8_t *block, float *values);
void gguf_decode_iq3_s(const uint8_t *block, float *values);
void gguf_decode_iq1_s(const uint8_t *block, float *values);
void gguf_decode_iq1_m(const uint8_t *block, float *values);

#endif
