/* WOVEN blocks: a coded block of formats.h with its bits in the order in which kernels read them. A woven block consists of
 * fields of 2, 1 or 4 bytes: first shorts (f16 numbers first), then bytes, then words of 32 bits. In a unit the fields of its
 * 32 outputs are interleaved, so a field at byte x of a woven block begins at byte 32 x of the unit's block.
 *
 * The functions NAME_parts return the parts of weight `input` of woven block `o` among `n` interleaved ones (1: a block alone;
 * 32: a unit). They are the only scalar decoders of these formats, on the host and on GPUs. */
#ifndef MOE_KERNELS_FORMATS_WOVEN_H
#define MOE_KERNELS_FORMATS_WOVEN_H

#include <math.h>

#include "common/base/float.h"
#include "kernels/formats.h"
#include "kernels/grids.h"

/* For each woven format: the byte of the coded block at which its f16 scales begin, which come first in the woven block; the
 * number of these scales; the number of fields of 2 bytes, scales included; the number of fields of 1 byte. */
#define WOVEN_FIELDS(row) \
    row(Q4_K, q4_k, 0, 2, 2, 0) \
    row(Q6_K, q6_k, 208, 1, 1, 16) \
    row(Q5_K, q5_k, 0, 2, 2, 0) \
    row(IQ4_XS, iq4_xs, 0, 1, 2, 0) \
    row(IQ4_NL, iq4_nl, 0, 1, 1, 0) \
    row(Q3_K, q3_k, 108, 1, 1, 0) \
    row(Q2_K, q2_k, 80, 2, 2, 16) \
    row(NVFP4, nvfp4, 0, 0, 0, 4) \
    row(NVFP4_S, nvfp4_s, 0, 0, 0, 4) \
    row(IQ3_S, iq3_s, 0, 1, 1, 0) \
    row(IQ3_XXS, iq3_xxs, 0, 1, 1, 0) \
    row(IQ2_S, iq2_s, 0, 1, 1, 0) \
    row(IQ2_XS, iq2_xs, 0, 1, 1, 0) \
    row(IQ2_XXS, iq2_xxs, 0, 1, 1, 0)

struct woven { const unsigned char *block; int n, o; };

FLOAT_INLINE uint32_t woven_word(struct woven w, int x)
{
    uint32_t value;
    memcpy(&value, w.block + w.n * x + 4 * w.o, sizeof value);
    return value;
}

FLOAT_INLINE uint32_t woven_short(struct woven w, int x)
{
    uint16_t value;
    memcpy(&value, w.block + w.n * x + 2 * w.o, sizeof value);
    return value;
}

FLOAT_INLINE uint32_t woven_byte(struct woven w, int x) { return w.block[w.n * x + w.o]; }
FLOAT_INLINE float woven_half(struct woven w, int x) { return f16_to_f32((uint16_t)woven_short(w, x)); }

/* Returns the four bits of an input, from words of 8 inputs that begin at byte x. */
FLOAT_INLINE uint32_t woven_nibble(struct woven w, int x, int input)
{
    return woven_word(w, x + input / 8 * 4) >> (input % 8 * 4) & 15u;
}

/* A weight is scale * factor * code - less, and each product of the scale with integers is exact. */
struct woven_parts { float scale; int factor, code; float less; };

FLOAT_INLINE struct woven_parts woven_product(float scale, int factor, int code, float less)
{
    const struct woven_parts parts = {scale, factor, code, less};
    return parts;
}

/* Returns the weight of q4_k or q5_k with code q. sc and m of 32 inputs have six bits each in the words s. */
FLOAT_INLINE struct woven_parts woven_between(struct woven w, int input, uint32_t q)
{
    const int sub = input / 32, shift = sub % 4 * 8;
    const uint32_t a = woven_word(w, 4) >> shift, b = woven_word(w, 8) >> shift, c = woven_word(w, 12) >> shift;
    const uint32_t scale = sub < 4 ? a & 63u : (c & 15u) | (a >> 2 & 48u);
    const uint32_t min = sub < 4 ? b & 63u : (c >> 4 & 15u) | (b >> 2 & 48u);
    return woven_product(woven_half(w, 0), (int)scale, (int)q, woven_half(w, 2) * (float)min);
}

/* Layout: d, dmin, s[3], 32 words of 8 inputs. */
FLOAT_INLINE struct woven_parts q4_k_parts(struct woven w, int input)
{
    return woven_between(w, input, woven_nibble(w, 16, input));
}

/* Layout: d, sc[16], then for each 16 inputs 3 words of 5 inputs, whose upper bits contain the last input. */
FLOAT_INLINE struct woven_parts q6_k_parts(struct woven w, int input)
{
    const int x = 18 + input / 16 * 12, i = input % 16;
    const uint32_t q = i < 15 ? woven_word(w, x + i / 5 * 4) >> (i % 5 * 6) & 63u
                              : woven_word(w, x) >> 30 | woven_word(w, x + 4) >> 30 << 2 | woven_word(w, x + 8) >> 30 << 4;
    return woven_product(woven_half(w, 0), (int8_t)woven_byte(w, 2 + input / 16), (int)q - 32, 0);
}

/* Layout: d, dmin, s[3], then for each 32 inputs 5 words of 6 inputs; their upper bits, from the first word on, contain the
 * last two inputs. */
FLOAT_INLINE struct woven_parts q5_k_parts(struct woven w, int input)
{
    const int x = 16 + input / 32 * 20, i = input % 32;
    if (i < 30)
        return woven_between(w, input, woven_word(w, x + i / 6 * 4) >> (i % 6 * 5) & 31u);
    const int first = i == 30 ? x : x + 12;
    return woven_between(w, input, woven_word(w, first) >> 30 | woven_word(w, first + 4) >> 30 << 2 |
                                   (woven_word(w, x + 8) >> i & 1u) << 4);
}

FLOAT_INLINE int iq4_level(uint32_t code)
{
    static const int8_t level[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return level[code];
}

/* Layout: d, upper bits of 8 scales, their lower bits, 32 words of 8 inputs. */
FLOAT_INLINE struct woven_parts iq4_xs_parts(struct woven w, int input)
{
    const int sub = input / 32;
    const uint32_t scale = (woven_word(w, 4) >> (4 * sub) & 15u) | (woven_short(w, 2) >> (2 * sub) & 3u) << 4;
    return woven_product(woven_half(w, 0), (int)scale - 32, iq4_level(woven_nibble(w, 8, input)), 0);
}

/* Layout: d, 4 words of 8 inputs. */
FLOAT_INLINE struct woven_parts iq4_nl_parts(struct woven w, int input)
{
    return woven_product(woven_half(w, 0), 1, iq4_level(woven_nibble(w, 2, input)), 0);
}

/* Layout: d, scales as in GGUF, then for each 32 inputs 3 words: 10 inputs of the first 16, 10 of the others, and in 16 bits
 * for each half 5 more and the upper bit of the last, whose lower bits are the upper ones of the half's first word. */
FLOAT_INLINE struct woven_parts q3_k_parts(struct woven w, int input)
{
    const int x = 14 + input / 32 * 12, half = input / 16 % 2, i = input % 16, j = input / 16;
    const uint32_t low = woven_word(w, 2 + j % 8 / 4 * 4) >> (j % 4 * 8 + j / 8 * 4) & 15u;
    const uint32_t high = woven_word(w, 10) >> (j % 4 * 8 + j / 4 * 2) & 3u;
    const uint32_t first = woven_word(w, x + 4 * half), rest = woven_word(w, x + 8) >> (16 * half);
    const uint32_t q = i < 10 ? first >> (3 * i) & 7u : i < 15 ? rest >> (3 * i - 30) & 7u : first >> 30 | (rest >> 13 & 4u);
    return woven_product(woven_half(w, 0), (int)(low | high << 4) - 32, (int)q - 4, 0);
}

/* Layout: d, dmin, one byte for each 16 inputs (scale low, minimum high), then one word for each 16 inputs. */
FLOAT_INLINE struct woven_parts q2_k_parts(struct woven w, int input)
{
    const uint32_t s = woven_byte(w, 4 + input / 16), q = woven_word(w, 20 + input / 16 * 4) >> (input % 16 * 2) & 3u;
    return woven_product(woven_half(w, 0), (int)(s & 15u), (int)q, woven_half(w, 2) * (float)(s >> 4));
}

/* Returns twice a number of E2M1. */
FLOAT_INLINE int e2m1_twice(uint32_t code)
{
    static const int8_t twice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    return code & 8u ? -twice[code & 7u] : twice[code];
}

/* Layout: 4 scales in unsigned E4M3 (0x7f is 0, as in ggml), then 8 words of 8 inputs of E2M1. */
FLOAT_INLINE struct woven_parts nvfp4_parts(struct woven w, int input)
{
    const uint8_t scale = (uint8_t)woven_byte(w, input / 16);
    const int code = scale == 0x7f ? 0 : e2m1_twice(woven_nibble(w, 4, input));
    return woven_product(0.5f * (scale == 0x7f ? 0 : scale == 0xff ? 480 : e4m3_to_f32(scale & 0x7f)), 1, code, 0);
}

/* Layout: 4 scales in E4M3, then the scale of the matrix, and 8 words as in nvfp4. */
FLOAT_INLINE struct woven_parts nvfp4_s_parts(struct woven w, int input)
{
    const float scale = e4m3_to_f32((uint8_t)woven_byte(w, input / 16)) * float_from_bits(woven_word(w, 4));
    return woven_product(0.5f * scale, 1, e2m1_twice(woven_nibble(w, 8, input)), 0);
}

/* Blocks of IQ2 and IQ3 are not rearranged. A sign index has 8 signs in 7 bits: the eighth makes the number of minus signs
 * even. */
FLOAT_INLINE uint32_t woven_signs(uint32_t index)
{
    uint32_t odd = index ^ index >> 4;
    odd ^= odd >> 2;
    return index | ((odd ^ odd >> 1) & 1u) << 7;
}

/* Return byte i, or the i-th four bits, of the words from byte x on. */
FLOAT_INLINE uint32_t woven_part(struct woven w, int x, int i) { return woven_word(w, x + i / 4 * 4) >> (i % 4 * 8) & 255u; }
FLOAT_INLINE uint32_t woven_scale(struct woven w, int x, int i) { return woven_word(w, x + i / 8 * 4) >> (i % 8 * 4) & 15u; }

/* Returns the parts of a weight of IQ2: `group` contains the codes of 8 inputs. */
FLOAT_INLINE struct woven_parts woven_iq2(struct woven w, uint32_t scale, uint32_t group, uint32_t signs, int input)
{
    static const int8_t magnitude[4] = {8, 25, 43, 0};
    const int value = magnitude[group >> (input % 8 * 2) & 3u];
    return woven_product(woven_half(w, 0) * 0.125f, 1 + 2 * (int)scale, signs >> input % 8 & 1u ? -value : value, 0);
}

/* Layout: d; for each 32 inputs 4 grid indices, then a word of 4 sign indices and the scale. */
FLOAT_INLINE struct woven_parts iq2_xxs_parts(struct woven w, int input)
{
    const int x = 2 + input / 32 * 8, g = input / 8 % 4;
    const uint32_t more = woven_word(w, x + 4), group = grid_iq2_xxs()[woven_part(w, x, g)];
    return woven_iq2(w, more >> 28, group, woven_signs(more >> 7 * g & 127u), input);
}

/* Layout: d; for each 8 inputs 9 bits of grid index and 7 of sign index; scales of 4 bits for each 16 inputs. */
FLOAT_INLINE struct woven_parts iq2_xs_parts(struct woven w, int input)
{
    const uint32_t both = woven_word(w, 2 + input / 16 * 4) >> (input / 8 % 2 * 16);
    return woven_iq2(w, woven_scale(w, 66, input / 16), grid_iq2_xs()[both & 511u], woven_signs(both >> 9 & 127u), input);
}

/* Layout: d; lower bytes of grid indices; signs; upper bits of the indices, two for each 8 inputs; scales as in iq2_xs. */
FLOAT_INLINE struct woven_parts iq2_s_parts(struct woven w, int input)
{
    const int i = input / 8;
    const uint32_t high = woven_word(w, 66 + i / 16 * 4) >> (i % 16 * 2) & 3u;
    const uint32_t group = grid_iq2_s()[woven_part(w, 2, i) | high << 8];
    return woven_iq2(w, woven_scale(w, 74, input / 16), group, woven_part(w, 34, i), input);
}

/* Layout: d; grid indices for each 4 inputs; words as in iq2_xxs for each 32 inputs. */
FLOAT_INLINE struct woven_parts iq3_xxs_parts(struct woven w, int input)
{
    static const int8_t magnitude[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    const uint32_t more = woven_word(w, 66 + input / 32 * 4), group = grid_iq3_xxs()[woven_part(w, 2, input / 4)];
    const int value = magnitude[group >> (input % 4 * 4) & 7u];
    const bool minus = woven_signs(more >> (input / 8 % 4 * 7) & 127u) >> input % 8 & 1u;
    return woven_product(woven_half(w, 0) * 0.25f, 1 + 2 * (int)(more >> 28), minus ? -value : value, 0);
}

/* Layout: d; lower bytes of grid indices for each 4 inputs; their upper bits; signs; scales of 4 bits for each 32 inputs. */
FLOAT_INLINE struct woven_parts iq3_s_parts(struct woven w, int input)
{
    const int i = input / 4;
    const uint32_t high = woven_word(w, 66 + i / 32 * 4) >> i % 32 & 1u, group = grid_iq3_s()[woven_part(w, 2, i) | high << 8];
    const int value = 1 + 2 * (int)(group >> (input % 4 * 4) & 7u);
    const bool minus = woven_word(w, 74 + input / 32 * 4) >> input % 32 & 1u;
    return woven_product(woven_half(w, 0), 1 + 2 * (int)woven_scale(w, 106, input / 32), minus ? -value : value, 0);
}

FLOAT_INLINE struct woven_parts woven_parts_of(enum weight_format format, const unsigned char *block, int n, int o, int input)
{
    const struct woven w = {block, n, o};
#define PARTS_OF(NAME, name, scales, floats, halves, bytes) case FORMAT_##NAME: return name##_parts(w, input);
    switch (format) {
        WOVEN_FIELDS(PARTS_OF)
    default: return woven_product(0, 0, 0, 0);
    }
#undef PARTS_OF
}

FLOAT_INLINE float woven_weight(enum weight_format format, const unsigned char *block, int n, int o, int input)
{
    const struct woven_parts p = woven_parts_of(format, block, n, o, input);
    const float factor = p.scale * (float)p.factor;
    if (format == FORMAT_Q4_K || format == FORMAT_Q5_K || format == FORMAT_Q2_K)
        return fmaf(factor, (float)p.code, -p.less);
    return format == FORMAT_Q6_K ? fmaf(factor, (float)p.code, 0) : factor * (float)p.code;
}

#endif
