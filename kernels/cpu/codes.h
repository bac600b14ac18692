/* Decoders of weights to bytes for products with quantised activations (formats.h), one for mxfp4 and each format after it. A
 * decoder unpacks a span, 32 inputs, of the vector of outputs that begins with output `lane`: eight vectors of bytes, each with
 * four inputs of every output. Bytes are codes plus the format's offset, so that they are unsigned.
 *
 * The order of inputs is that of order.h. */
#ifndef MOE_KERNELS_CPU_CODES_H
#define MOE_KERNELS_CPU_CODES_H

#include <stdint.h>

#include "kernels/cpu/isa.h"

#if defined(ISA_VECTORS)
#include "kernels/cpu/spans.h"

/* How the sums of a span are scaled. HALVES: a factor for each 16 inputs; STEPS: a scale for each 16. LESS: a minimum for 32
 * inputs; LESS_HALVES: for each 16. SIGNED: bytes are signed, because an offset would exceed the range of the products. */
enum codes_kind { CODES_HALVES = 1, CODES_STEPS = 2, CODES_LESS = 4, CODES_LESS_HALVES = 8, CODES_SIGNED = 16,
                  CODES_KINDS = 32 };

struct codes {
    words code[BLOCK_INPUTS / 4];
    vector scale[2], factor[2], less[2];        /* less is negative */
};

#if defined(ISA_VNNI)
enum { LEVEL_OFFSET = 128, LEVEL_KIND = 0 };
#else
enum { LEVEL_OFFSET = 0, LEVEL_KIND = CODES_SIGNED };
#endif

INLINE enum codes_kind codes_kind(enum weight_format format)
{
    const bool level = format == FORMAT_IQ4_XS || format == FORMAT_IQ4_NL;
    const bool less = format == FORMAT_Q4_K || format == FORMAT_Q5_K;
    return (enum codes_kind)((format_halves(format) ? CODES_HALVES : 0) | (format_steps(format) ? CODES_STEPS : 0) |
                             (less ? CODES_LESS : 0) | (format == FORMAT_Q2_K ? CODES_LESS_HALVES : 0) |
                             (level ? (int)LEVEL_KIND : 0));
}

enum { E2M1_OFFSET = 12, Q6_K_OFFSET = 32, Q3_K_OFFSET = 4, IQ2_OFFSET = 43, IQ3_XXS_OFFSET = 62, IQ3_S_OFFSET = 15 };

INLINE int codes_offset(enum weight_format format)
{
    switch (format) {
    case FORMAT_MXFP4: case FORMAT_NVFP4: case FORMAT_NVFP4_S: return E2M1_OFFSET;
    case FORMAT_IQ4_XS: case FORMAT_IQ4_NL: return LEVEL_OFFSET;
    case FORMAT_Q6_K: return Q6_K_OFFSET;
    case FORMAT_Q3_K: return Q3_K_OFFSET;
    case FORMAT_IQ3_S: return IQ3_S_OFFSET;
    case FORMAT_IQ3_XXS: return IQ3_XXS_OFFSET;
    case FORMAT_IQ2_S: case FORMAT_IQ2_XS: case FORMAT_IQ2_XXS: return IQ2_OFFSET;
    default: return 0;
    }
}

/* Tables for words_table: the byte of each code; for IQ2 and IQ3, bit 3 is the sign; IQ2 ignores bit 2. */
#define LEVEL(x) (int8_t)(uint8_t)((x) + LEVEL_OFFSET)
static const int8_t TABLE_IQ4[16] = {LEVEL(-127), LEVEL(-104), LEVEL(-83), LEVEL(-65), LEVEL(-49), LEVEL(-35), LEVEL(-22),
                                     LEVEL(-10), LEVEL(1), LEVEL(13), LEVEL(25), LEVEL(38), LEVEL(53), LEVEL(69), LEVEL(89),
                                     LEVEL(113)};
static const int8_t TABLE_E2M1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
static const int8_t TABLE_IQ2[16] = {43 + 8, 43 + 25, 43 + 43, 43, 43 + 8, 43 + 25, 43 + 43, 43,
                                     43 - 8, 43 - 25, 43 - 43, 43, 43 - 8, 43 - 25, 43 - 43, 43};
static const int8_t TABLE_IQ3_XXS[16] = {62 + 4, 62 + 12, 62 + 20, 62 + 28, 62 + 36, 62 + 44, 62 + 52, 62 + 62,
                                         62 - 4, 62 - 12, 62 - 20, 62 - 28, 62 - 36, 62 - 44, 62 - 52, 62 - 62};
static const int8_t TABLE_IQ3_S[16] = {16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0};

/* words_all: the same word for all outputs. words_table: replaces every byte, 0 .. 15, by an entry of a table.
 * words_signed_table: the same with the bits `keep` of every byte of `code` and bit 3 of `signs`, whose bits 7 are 0.
 * words_dot: adds four products of bytes to every word; `kind` may have CODES_SIGNED. */
#if defined(ISA_AVX512)

INLINE words words_all(int32_t a) { return _mm512_set1_epi32(a); }
INLINE words words_table(const int8_t *table, words index)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), index);
}
INLINE words words_signed_table(const int8_t *table, int keep, words code, words signs)
{
    return words_table(table, _mm512_ternarylogic_epi32(_mm512_set1_epi32(keep * 0x01010101), code, signs, 0xca));
}
#if defined(ISA_VNNI)
INLINE words words_dot(int kind, words sum, words code, words x)
{
    (void)kind;
    return _mm512_dpbusd_epi32(sum, code, x);
}
#else
INLINE words words_dot(int kind, words sum, words code, words x)
{
    if (kind & CODES_SIGNED) {
        x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(code), _mm512_setzero_si512(), x);
        code = _mm512_abs_epi8(code);
    }
    return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(code, x), _mm512_set1_epi16(1)));
}
#endif

#elif defined(ISA_NEON)

INLINE words words_all(int32_t a) { return vdupq_n_u32((uint32_t)a); }
INLINE words words_table(const int8_t *table, words index)
{
    return vreinterpretq_u32_s8(vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_u32(index)));
}
INLINE words words_dot(int kind, words sum, words code, words x)
{
    (void)kind;
    return vreinterpretq_u32_s32(vdotq_s32(vreinterpretq_s32_u32(sum), vreinterpretq_s8_u32(code), vreinterpretq_s8_u32(x)));
}

#else

INLINE words words_all(int32_t a) { return _mm256_set1_epi32(a); }
INLINE words words_table(const int8_t *table, words index)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)), index);
}
INLINE words words_dot(int kind, words sum, words code, words x)
{
    if (kind & CODES_SIGNED) {
        x = _mm256_sign_epi8(x, code);
        code = _mm256_abs_epi8(code);
    }
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(code, x), _mm256_set1_epi16(1)));
}

#endif

#if !defined(ISA_AVX512)

INLINE words words_signed_table(const int8_t *table, int keep, words code, words signs)
{
    return words_table(table, words_or(words_and(code, keep * 0x01010101), words_and(signs, 0x08080808)));
}

#endif

#if defined(ISA_VBMI)

/* Returns four bytes per word: byte j contains the eight bits from bit first + j step of the word on. Two neighbouring words
 * form a ring of 64 bits, so positions from 32 on are in the other word. */
INLINE words bytes_from(words a, int first, int step)
{
    const int64_t from = (first & 63) | (int64_t)((first + step) & 63) << 8 | (int64_t)((first + 2 * step) & 63) << 16 |
                         (int64_t)((first + 3 * step) & 63) << 24;
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(from | (from ^ 0x20202020) << 32), a);
}

/* Moves four fields of `bits` bits, the lowest of each word, into its four bytes. */
INLINE words words_spread(words a, int bits)
{
    return words_and(bytes_from(a, 0, bits), ((1 << bits) - 1) * 0x01010101);
}

#else

/* Moves four fields of `bits` bits, the lowest of each word, into its four bytes: two fields into each half, then one into each
 * byte; the other bits are cleared last. */
INLINE words words_spread(words a, int bits)
{
    const int one = (1 << bits) - 1;
    const words pairs = words_bytes_of(a, words_left(a, 16 - 2 * bits), 0x0000ffff);
    return words_and(words_bytes_of(pairs, words_left(pairs, 8 - bits), 0x00ff00ff), one | one << 8 | one << 16 | one << 24);
}

#endif

/* Decodes four words of eight 4-bit codes each. table: the byte of each code; NULL: the code itself. */
INLINE void codes_nibbles(const unsigned char *at, const int8_t *table, struct codes *c)
{
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        const words word = words_load(at + g * GROUP_BYTES);
        const words low = words_and(word, 0x0f0f0f0f), high = words_and(words_right(word, 4), 0x0f0f0f0f);
        c->code[2 * g] = table ? words_table(table, low) : low;
        c->code[2 * g + 1] = table ? words_table(table, high) : high;
    }
}

INLINE void codes_mxfp4(const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const unsigned char *pair = chunk + (size_t)(span / 2) * MXFP4_PAIR_BYTES;
    const words scale = words_left(words_bytes(pair + span % 2 * UNIT_OUTPUTS + lane), 23);
    c->scale[0] = vector_times(words_floats(words_max(scale, 0x00400000)), vector_all(0.5f));
    codes_nibbles(pair + MXFP4_GROUPS + span % 2 * 4 * GROUP_BYTES + lane * 4, TABLE_E2M1, c);
}

INLINE void codes_steps(const unsigned char *chunk, int lane, int span, struct codes *c, bool whole)
{
    const int scales = whole ? NVFP4_S_SCALES : NVFP4_SCALES;
    const unsigned char *block = chunk + (size_t)(span / 2) * (size_t)(scales + 8 * GROUP_BYTES);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++)
        c->scale[h] = scale_nvfp4(block, lane, span % 2 * 2 + h, whole, 0.5f);
    codes_nibbles(block + scales + span % 2 * 4 * GROUP_BYTES + lane * 4, TABLE_E2M1, c);
}

INLINE void codes_nvfp4(const unsigned char *chunk, int lane, int span, struct codes *c)
{
    codes_steps(chunk, lane, span, c, false);
}

INLINE void codes_nvfp4_s(const unsigned char *chunk, int lane, int span, struct codes *c)
{
    codes_steps(chunk, lane, span, c, true);
}

INLINE void codes_iq4_nl(const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const unsigned char *block = chunk + (size_t)span * Q4_BLOCK_BYTES;
    c->scale[0] = vector_half(block + lane * 2);
    codes_nibbles(block + BLOCK_SCALE_BYTES + lane * 4, TABLE_IQ4, c);
}

INLINE void codes_iq4_xs(const unsigned char *chunk, int lane, int span, struct codes *c)
{
    enum { GROUPS = 256 };
    c->scale[0] = scale_iq4_xs(chunk, lane, span);
    codes_nibbles(chunk + GROUPS + span * 4 * GROUP_BYTES + lane * 4, TABLE_IQ4, c);
}

INLINE void codes_q4_k(const unsigned char *chunk, int lane, int span, struct codes *c)
{
    scales_q4_k(chunk, lane, span, &c->scale[0], &c->less[0]);
    codes_nibbles(chunk + Q4_K_GROUPS + span * 4 * GROUP_BYTES + lane * 4, NULL, c);
}

INLINE void codes_q5_k(const unsigned char *chunk, int lane, int span, struct codes *c)
{
    enum { GROUPS = 512, WORDS = 5 };
    words word[WORDS], pair[WORDS];
    scales_q4_k(chunk, lane, span, &c->scale[0], &c->less[0]);
#pragma GCC unroll 5
    for (int w = 0; w < WORDS; w++) {
        word[w] = words_load(chunk + GROUPS + (span * WORDS + w) * GROUP_BYTES + lane * 4);
        c->code[w] = words_spread(word[w], 5);
        pair[w] = words_and(words_right(word[w], 20), 1023);
    }
    c->code[5] = words_spread(words_or(pair[0], words_left(pair[1], 10)), 5);
    c->code[6] = words_spread(words_or(pair[2], words_left(pair[3], 10)), 5);
    words last = words_or(words_right(word[0], 30), words_and(words_right(word[1], 28), 12));
    words after = words_or(words_right(word[3], 30), words_and(words_right(word[4], 28), 12));
    last = words_or(last, words_and(words_right(word[2], 26), 16));
    after = words_or(after, words_left(words_right(word[2], 31), 4));
    c->code[7] = words_spread(words_or(pair[4], words_or(words_left(last, 10), words_left(after, 15))), 5);
}

INLINE void codes_q6_k(const unsigned char *chunk, int lane, int span, struct codes *c)
{
    c->scale[0] = vector_half(chunk + lane * 2);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const unsigned char *at = chunk + Q6_K_GROUPS + (2 * span + h) * Q6_K_GROUP_BYTES + lane * 4;
        const words x = words_load(at), y = words_load(at + GROUP_BYTES), z = words_load(at + 2 * GROUP_BYTES);
        c->factor[h] = words_convert(words_signed(chunk + Q6_K_SCALES + (2 * span + h) * UNIT_OUTPUTS + lane));
        c->code[4 * h] = words_spread(x, 6);
        c->code[4 * h + 1] = words_spread(y, 6);
        c->code[4 * h + 2] = words_spread(z, 6);
        const words three = words_or(words_or(words_and(words_right(x, 24), 0x3f), words_and(words_right(y, 16), 0x3f00)),
                                     words_and(words_right(z, 8), 0x3f0000));
        const words last = words_or(words_or(words_and(words_right(x, 6), 3 << 24), words_and(words_right(y, 4), 3 << 26)),
                                    words_and(words_right(z, 2), 3 << 28));
        c->code[4 * h + 3] = words_or(three, last);
    }
}

INLINE void codes_q3_k(const unsigned char *chunk, int lane, int span, struct codes *c)
{
    enum { GROUPS = 448, WORDS = 3 };
    const unsigned char *at = chunk + GROUPS + span * WORDS * GROUP_BYTES + lane * 4;
    const words both = words_load(at + 2 * GROUP_BYTES);
    c->scale[0] = vector_half(chunk + lane * 2);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const words first = words_load(at + h * GROUP_BYTES), rest = words_right(both, 16 * h);
        c->factor[h] = factor_q3_k(chunk, lane, 2 * span + h);
        c->code[4 * h] = words_spread(first, 3);
        c->code[4 * h + 1] = words_spread(words_right(first, 12), 3);
        c->code[4 * h + 2] = words_spread(rest, 3);
        const words three = words_or(words_and(words_right(first, 24), 63), words_and(words_right(rest, 6), 7 << 6));
        const words last = words_or(words_left(words_right(first, 30), 9), words_and(words_right(rest, 4), 1 << 11));
        c->code[4 * h + 3] = words_spread(words_or(three, last), 3);
    }
}

INLINE void codes_q2_k(const unsigned char *chunk, int lane, int span, struct codes *c)
{
    enum { MINIMA = 64, SCALES = 128, GROUPS = 640 };
    const vector less = vector_times(vector_half(chunk + MINIMA + lane * 2), vector_all(-1));
    c->scale[0] = vector_half(chunk + lane * 2);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const words both = words_bytes(chunk + SCALES + (2 * span + h) * UNIT_OUTPUTS + lane);
        const words word = words_load(chunk + GROUPS + (2 * span + h) * GROUP_BYTES + lane * 4);
        c->factor[h] = words_convert(words_and(both, 15));
        c->less[h] = vector_times(less, words_convert(words_right(both, 4)));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            c->code[4 * h + i] = words_and(words_right(word, 2 * i), 0x03030303);
    }
}

#define CODES_CASE(NAME, name) case FORMAT_##NAME: codes_##name(chunk, lane, span, c); break;
#define CODES_PLAIN(NAME, name)
#define CODES_INTEGER(NAME, name)
#define CODES_CODED(NAME, name)
#define CODES_WOVEN(NAME, name) CODES_CASE(NAME, name)
#define CODES_GRID(NAME, name)
#define CODES_OF(NAME, name, kind, step, block, bytes) CODES_##kind(NAME, name)

/* `format` must be a constant at each use. codes_grids.h has the decoders of IQ2 and IQ3. */
INLINE void codes_of(enum weight_format format, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    switch (format) {
    CODES_CASE(MXFP4, mxfp4)
        WEIGHT_FORMATS(CODES_OF)
    default: break;
    }
}

#endif
#endif
