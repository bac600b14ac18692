/* Decoders of IQ2 and IQ3 to bytes (codes.h), in two forms. One looks up two entries of a grid in each word; the other one, for
 * AVX512-VBMI (ISA_VBMI), looks up bytes, so that indices can be used as they are stored.
 *
 * grid: the result of grid_begin for the format's grid. Only the form with VBMI reads it. */
#ifndef MOE_KERNELS_CPU_CODES_GRIDS_H
#define MOE_KERNELS_CPU_CODES_GRIDS_H

#include <stdint.h>

#include "kernels/cpu/codes.h"

#if defined(ISA_VECTORS)

/* Returns a scale of IQ2 or IQ3: 2 s + 1, where s is the lower four bits of a word. The permutation ignores the other bits. */
INLINE vector grid_scale(words word)
{
#if defined(ISA_AVX512)
    const vector table = _mm512_setr_ps(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutexvar_ps(word, table);
#else
    return vector_add(words_convert(words_left(words_and(word, 15), 1)), vector_all(1));
#endif
}

/* Sets the scale to d * times * (2 s + 1). */
INLINE void scale_grid(const unsigned char *chunk, int lane, words word, float times, struct codes *c)
{
    c->scale[0] = vector_times(vector_times(vector_half(chunk + lane * 2), grid_scale(word)), vector_all(times));
}

/* Sets the scale and the factors of iq2_xs and iq2_s, whose scales of 16 inputs are in the words from `first` on. */
INLINE void scales_iq2(const unsigned char *chunk, int lane, int span, int first, struct codes *c)
{
    const words word = words_right_by(grid_word(chunk, lane, first + span / 4), span % 4 * 8);
    c->scale[0] = vector_times(vector_half(chunk + lane * 2), vector_all(0.125f));
    c->factor[0] = grid_scale(word);
    c->factor[1] = grid_scale(words_right(word, 4));
}

#if defined(ISA_VBMI)

/* A grid in two tables of bytes: the lower bytes of its entries, then the upper bytes. */
enum { GRID_BYTES = 2 * 1024 };

INLINE void grid_bytes(const uint16_t *grid, int entries, unsigned char *bytes)
{
    for (int i = 0; i < entries; i += 2 * LANES) {
        const words some = words_load((const unsigned char *)(grid + i));
        _mm256_storeu_si256((void *)(bytes + i), _mm512_cvtepi16_epi8(some));
        _mm256_storeu_si256((void *)(bytes + entries + i), _mm512_cvtepi16_epi8(_mm512_srli_epi16(some, 8)));
    }
}

/* `format` must be a constant at each use. */
INLINE void grid_begin(enum weight_format format, unsigned char *bytes)
{
    switch (format) {
    case FORMAT_IQ2_XXS: grid_bytes(grid_iq2_xxs(), 256, bytes); break;
    case FORMAT_IQ2_XS: grid_bytes(grid_iq2_xs(), 512, bytes); break;
    case FORMAT_IQ2_S: grid_bytes(grid_iq2_s(), 1024, bytes); break;
    case FORMAT_IQ3_XXS: grid_bytes(grid_iq3_xxs(), 256, bytes); break;
    default: grid_bytes(grid_iq3_s(), 512, bytes);
    }
}

/* Split bytes by the upper bits of their indices: part[p] becomes the set of those bytes of `among` whose index is in the p-th
 * 128 entries. split_in_two: bit 7 is in the index. split_in_four: bit 8 is a bit of `more`. */
INLINE void split_in_two(__mmask64 among, words index, __mmask64 *part)
{
    part[0] = _mm512_mask_cmpge_epi8_mask(among, index, _mm512_setzero_si512());
    part[1] = _mm512_mask_cmplt_epi8_mask(among, index, _mm512_setzero_si512());
}
INLINE void split_in_four(__mmask64 among, words index, words more, int bit, __mmask64 *part)
{
    split_in_two(_mm512_mask_testn_epi8_mask(among, more, _mm512_set1_epi32(bit)), index, part);
    split_in_two(_mm512_mask_test_epi8_mask(among, more, _mm512_set1_epi32(bit)), index, part + 2);
}

/* Replaces every index by its entry of a table of bytes. */
INLINE words bytes_entries(const unsigned char *table, int parts, const __mmask64 *part, words index)
{
#pragma GCC unroll 8
    for (int p = 0; p < parts; p++, table += 128)
        index = _mm512_mask2_permutex2var_epi8(words_load(table), index, part[p], words_load(table + 64));
    return index;
}

/* Returns for each word the bytes of two vectors whose places in the first word are the bytes of `places`, 64 and more for the
 * second vector. */
INLINE words bytes_both(words a, words b, int places)
{
    const words word = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutex2var_epi8(a, _mm512_add_epi32(_mm512_set1_epi32(places),
                                                        _mm512_mullo_epi32(word, _mm512_set1_epi32(0x04040404))), b);
}

/* Copies the lowest byte of each word to its other bytes. */
INLINE words bytes_lowest(words a)
{
    return _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c)));
}

/* Returns eight signs for each byte with seven signs from bit `first` (0 or 1) on: the eighth is the parity of the others. */
INLINE words bytes_signs(words seven, int first)
{
    const long long matrix = first ? 0x02040810204080fe : 0x010204081020407f;
    return _mm512_gf2p8affine_epi64_epi8(seven, _mm512_set1_epi64(matrix), 0);
}

/* Tables of the bytes of codes of `bits` bits with signs: the index of table[i] has the sign in bit bits + i. */
struct signed_codes { words table[4]; };

INLINE struct signed_codes signed_codes(const int8_t *table, int bits)
{
    static const uint64_t minus[4] = {0xf0f0f0f0f0f0f0f0u, 0xff00ff00ff00ff00u, 0xffff0000ffff0000u, 0xffffffff00000000u};
    struct signed_codes codes;
    int64_t both[2];
    memcpy(both, table, sizeof both);
#pragma GCC unroll 4
    for (int i = 0; i < 6 - bits; i++)
        codes.table[i] = _mm512_mask_mov_epi8(_mm512_set1_epi64(both[0]), minus[i + bits - 2], _mm512_set1_epi64(both[1]));
    return codes;
}

/* Returns the bytes of the lower bits, `keep`, of `code`; the sign is a higher bit of `signs`. */
INLINE words codes_signed(words table, int keep, words code, words signs)
{
    const words index = _mm512_ternarylogic_epi32(_mm512_set1_epi32(keep * 0x01010101), code, signs, 0xca);
    return _mm512_permutexvar_epi8(index, table);
}

/* Decode 16 inputs. signs: eight for each group of eight inputs, as the bits of a word; half: which of its halves. */
INLINE void codes_grid2(words pair, words signs, int half, words *code)
{
    const struct signed_codes codes = signed_codes(TABLE_IQ2, 2);
    const words sign_bits = bytes_from(signs, 16 * half - 2, 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        code[i] = codes_signed(codes.table[i], 3, words_right(pair, 2 * i), sign_bits);
}

INLINE void codes_span2(const unsigned char *grid, int parts, const __mmask64 *part, words index, words signs, words *code)
{
    const words low = bytes_entries(grid, parts, part, index), high = bytes_entries(grid + 128 * parts, parts, part, index);
    codes_grid2(bytes_both(low, high, 0x41014000), signs, 0, code);
    codes_grid2(bytes_both(low, high, 0x43034202), signs, 1, code + 4);
}

INLINE void codes_grid3(const unsigned char *grid, int parts, const __mmask64 *part, words index, words signs, int half,
                        const int8_t *table, words *code)
{
    const words two[2] = {bytes_entries(grid, parts, part, index), bytes_entries(grid + 128 * parts, parts, part, index)};
    const struct signed_codes codes = signed_codes(table, 3);
    const words sign_bits = bytes_from(signs, 16 * half - 3, 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        code[i] = codes_signed(codes.table[i % 3], 7, words_right(two[i / 2], i % 2 * 4),
                               i < 3 ? sign_bits : words_right(sign_bits, 3));
}

INLINE void codes_iq2_xxs(const unsigned char *grid, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const words index = grid_word(chunk, lane, 2 * span), more = grid_word(chunk, lane, 2 * span + 1);
    __mmask64 part[2];
    scale_grid(chunk, lane, words_right(more, 28), 0.125f, c);
    split_in_two((__mmask64)-1, index, part);
    codes_span2(grid, 2, part, index, bytes_signs(bytes_from(more, 0, 7), 0), c->code);
}

INLINE void codes_iq2_xs(const unsigned char *grid, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const words first = grid_word(chunk, lane, 2 * span), second = grid_word(chunk, lane, 2 * span + 1);
    const words index = bytes_both(first, second, 0x42400200), more = bytes_both(first, second, 0x43410301);
    __mmask64 part[4];
    scales_iq2(chunk, lane, span, 16, c);
    split_in_four((__mmask64)-1, index, more, 0x01010101, part);
    codes_span2(grid, 4, part, index, bytes_signs(more, 1), c->code);
}

INLINE void codes_iq2_s(const unsigned char *grid, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const words index = grid_word(chunk, lane, span), signs = grid_word(chunk, lane, 8 + span);
    const words more = bytes_lowest(words_right_by(grid_word(chunk, lane, 16 + span / 4), span % 4 * 8));
    const words ninth = _mm512_set1_epi32((int)0x80200802);
    __mmask64 part[8];
    scales_iq2(chunk, lane, span, 18, c);
    split_in_four(_mm512_testn_epi8_mask(more, ninth), index, more, 0x40100401, part);
    split_in_four(_mm512_test_epi8_mask(more, ninth), index, more, 0x40100401, part + 4);
    codes_span2(grid, 8, part, index, signs, c->code);
}

INLINE void codes_iq3_xxs(const unsigned char *grid, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const words more = grid_word(chunk, lane, 16 + span), signs = bytes_signs(bytes_from(more, 0, 7), 0);
    scale_grid(chunk, lane, words_right(more, 28), 0.25f, c);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const words index = grid_word(chunk, lane, 2 * span + h);
        __mmask64 part[2];
        split_in_two((__mmask64)-1, index, part);
        codes_grid3(grid, 2, part, index, signs, h, TABLE_IQ3_XXS, c->code + 4 * h);
    }
}

INLINE void codes_iq3_s(const unsigned char *grid, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const words more = bytes_lowest(words_right_by(grid_word(chunk, lane, 16 + span / 4), span % 4 * 8));
    scale_grid(chunk, lane, words_right_by(grid_word(chunk, lane, 26), 4 * span), 1, c);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const words index = grid_word(chunk, lane, 2 * span + h);
        __mmask64 part[4];
        split_in_four((__mmask64)-1, index, more, h ? (int)0x80402010 : 0x08040201, part);
        codes_grid3(grid, 4, part, index, grid_word(chunk, lane, 18 + span), h, TABLE_IQ3_S, c->code + 4 * h);
    }
}

#else

enum { GRID_BYTES = 1 };

INLINE void grid_begin(enum weight_format format, unsigned char *bytes)
{
    (void)format;
    (void)bytes;
}

/* Decode 16 inputs, whose entries of a grid are in the halves of every word. signs: bit i of a word is the sign of input i. */
INLINE void codes_grid2(words pair, words signs, words *code)
{
    const words sign_bits = words_spread(signs, 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        code[i] = words_signed_table(TABLE_IQ2, 3, words_right(pair, 2 * i), words_left(sign_bits, 3 - i));
}

/* Decodes 16 inputs of IQ3. even, odd: the entries of the grid at even and at odd places, in the halves of every word. */
INLINE void codes_grid3(words even, words odd, words signs, const int8_t *table, words *code)
{
    const words sign_bits = words_spread(signs, 4);
    const words low = words_bytes_of(even, words_left(odd, 8), 0x00ff00ff);
    const words high = words_bytes_of(words_right(even, 8), odd, 0x00ff00ff);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const words two = i < 2 ? low : high;
        code[i] = words_signed_table(table, 7, i % 2 ? words_right(two, 4) : two, words_left(sign_bits, 3 - i));
    }
}

INLINE void codes_span2(const uint16_t *grid, int entries, words *index, words signs, words *code)
{
    words_pairs(grid, entries, 2, index);
    codes_grid2(index[0], signs, code);
    codes_grid2(index[1], words_right(signs, 16), code + 4);
}

INLINE void codes_span3(const uint16_t *grid, int entries, words *index, words signs, const int8_t *table, words *code)
{
    words_pairs(grid, entries, 4, index);
    codes_grid3(index[0], index[1], signs, table, code);
    codes_grid3(index[2], index[3], words_right(signs, 16), table, code + 4);
}

/* Moves the two lower bytes of every word into its halves. */
INLINE words words_halves(words a) { return words_and(words_bytes_of(a, words_left(a, 8), 0x0000ffff), 0x00ff00ff); }

/* Adds the sign of the last of eight inputs, the parity of the others, to the signs in the four bytes of every word. */
INLINE words bytes_signs(words seven)
{
    words odd = words_xor(seven, words_right(seven, 4));
    odd = words_xor(odd, words_right(odd, 2));
    odd = words_and(words_xor(odd, words_right(odd, 1)), 0x01010101);
    return words_or(seven, words_left(odd, 7));
}

INLINE void codes_iq2_xxs(const unsigned char *grid, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const words eight = grid_word(chunk, lane, 2 * span), more = grid_word(chunk, lane, 2 * span + 1);
    words index[2] = {words_halves(eight), words_halves(words_right(eight, 16))};
    (void)grid;
    scale_grid(chunk, lane, words_right(more, 28), 0.125f, c);
    codes_span2(grid_iq2_xxs(), 256, index, bytes_signs(words_spread(more, 7)), c->code);
}

INLINE void codes_iq2_xs(const unsigned char *grid, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    words index[2], signs[2];
    (void)grid;
    scales_iq2(chunk, lane, span, 16, c);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const words both = grid_word(chunk, lane, 2 * span + h), seven = words_and(words_right(both, 9), 0x007f007f);
        index[h] = words_and(both, 0x01ff01ff);
        signs[h] = words_or(seven, words_right(seven, 8));
    }
    codes_span2(grid_iq2_xs(), 512, index, bytes_signs(words_bytes_of(signs[0], words_left(signs[1], 16), 0x0000ffff)),
                c->code);
}

INLINE void codes_iq2_s(const unsigned char *grid, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const words low = grid_word(chunk, lane, span);
    const words high = words_right_by(grid_word(chunk, lane, 16 + span / 4), span % 4 * 8);
    words index[2];
    (void)grid;
    scales_iq2(chunk, lane, span, 18, c);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const words two = words_right(high, 4 * h);
        index[h] = words_or(words_halves(words_right(low, 16 * h)),
                            words_or(words_left(words_and(two, 3), 8), words_left(words_and(two, 12), 22)));
    }
    codes_span2(grid_iq2_s(), 1024, index, grid_word(chunk, lane, 8 + span), c->code);
}

INLINE void codes_iq3_xxs(const unsigned char *grid, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const words more = grid_word(chunk, lane, 16 + span);
    words index[4];
    (void)grid;
    scale_grid(chunk, lane, words_right(more, 28), 0.25f, c);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++)
        index[g] = words_and(words_right(grid_word(chunk, lane, 2 * span + g / 2), g % 2 * 8), 0x00ff00ff);
    codes_span3(grid_iq3_xxs(), 256, index, bytes_signs(words_spread(more, 7)), TABLE_IQ3_XXS, c->code);
}

INLINE void codes_iq3_s(const unsigned char *grid, const unsigned char *chunk, int lane, int span, struct codes *c)
{
    const words high = words_right_by(grid_word(chunk, lane, 16 + span / 4), span % 4 * 8);
    words index[4];
    (void)grid;
    scale_grid(chunk, lane, words_right_by(grid_word(chunk, lane, 26), 4 * span), 1, c);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        const words ninth = words_right(high, g / 2 * 4 + g % 2);
        index[g] = words_or(words_and(words_right(grid_word(chunk, lane, 2 * span + g / 2), g % 2 * 8), 0x00ff00ff),
                            words_or(words_left(words_and(ninth, 1), 8), words_left(words_and(ninth, 4), 22)));
    }
    codes_span3(grid_iq3_s(), 512, index, grid_word(chunk, lane, 18 + span), TABLE_IQ3_S, c->code);
}

#endif

/* `format` must be a constant at each use. */
INLINE void grids_of(enum weight_format format, const unsigned char *grid, const unsigned char *chunk, int lane, int span,
                     struct codes *c)
{
    switch (format) {
    case FORMAT_IQ2_XXS: codes_iq2_xxs(grid, chunk, lane, span, c); break;
    case FORMAT_IQ2_XS: codes_iq2_xs(grid, chunk, lane, span, c); break;
    case FORMAT_IQ2_S: codes_iq2_s(grid, chunk, lane, span, c); break;
    case FORMAT_IQ3_XXS: codes_iq3_xxs(grid, chunk, lane, span, c); break;
    default: codes_iq3_s(grid, chunk, lane, span, c);
    }
}

#endif
#endif
