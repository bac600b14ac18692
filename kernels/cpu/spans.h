/* Decoders of SPANS, one for each format that is decoded. A span is 32 inputs of some vectors of outputs of a unit. A decoder
 * makes exactly the f32 of formats.h in registers and multiplies them with some rows, or stores them if there are 0 rows.
 * `lane` is the first output. */
#ifndef MOE_KERNELS_CPU_SPANS_H
#define MOE_KERNELS_CPU_SPANS_H

#include "kernels/cpu/fetch.h"
#include "kernels/cpu/unit.h"
#include "kernels/formats_coded.h"

#define INLINE static inline __attribute__((always_inline))

enum { SPAN = 32, CHUNK_SPANS = SUPERBLOCK_INPUTS / SPAN };

#if defined(ISA_VECTORS)
#include "kernels/cpu/words.h"
#include "kernels/grids.h"

/* `rows` and `width` (vectors of outputs) are constants at each use, so that the arrays become registers. */
struct sums {
    vector even[DECODED_ROWS][2], odd[DECODED_ROWS][2];
    float *decoded;           /* with 0 rows: where decoded weights are stored, as a unit of f32, from the strip's outputs on */
    bool stream;                        /* the strip is the only one and reads one stream (fetch.h) */
};

/* Prefetches at this distance in bytes in the stream. */
INLINE void fetch_stream(const struct sums *sums, const unsigned char *at, int bytes)
{
#pragma GCC unroll 8
    for (int line = 0; line < bytes; line += 64)
        if (sums->stream)
            fetch_ahead(at + line);
}

INLINE void multiply(struct sums *sums, int rows, int width, enum chains chains, const vector *even, const vector *odd,
                     const float *const *in, int k)
{
#pragma GCC unroll 2
    for (int v = 0; v < width && !rows; v++) {
        vector_store(sums->decoded + (size_t)k * UNIT_OUTPUTS + v * LANES, even[v]);
        vector_store(sums->decoded + (size_t)(k + 1) * UNIT_OUTPUTS + v * LANES, odd[v]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        vector x = vector_all(in[r][k]), y = vector_all(in[r][k + 1]);
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            if (chains & EVEN_CHAIN)
                sums->even[r][v] = vector_fma(even[v], x, sums->even[r][v]);
            if (chains & ODD_CHAIN)
                sums->odd[r][v] = vector_fma(odd[v], y, sums->odd[r][v]);
        }
    }
}

INLINE void span_fp8(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                     int span, const float *const *in, int k)
{
    const unsigned char *block = chunk + (size_t)(span / 4) * FP8_BLOCK_BYTES;
    const unsigned char *at = block + FP8_CODES + span % 4 * (SPAN / 2) * FP8_PAIR_BYTES + lane * 2;
    vector scale[2], even[2], odd[2];
    if (span % 4 == 0)
        fetch_stream(sums, block, FP8_CODES);
#pragma GCC unroll 2
    for (int v = 0; v < width; v++)
        scale[v] = vector_times(vector_load((const float *)(const void *)block + lane + v * LANES), vector_all(256));
#pragma GCC unroll 4
    for (int i = 0; i < SPAN; i += 2, at += FP8_PAIR_BYTES) {
        fetch_stream(sums, at, FP8_PAIR_BYTES);
        codes_floats(width, at, even, odd);
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            even[v] = vector_times(even[v], scale[v]);
            odd[v] = vector_times(odd[v], scale[v]);
        }
        multiply(sums, rows, width, chains, even, odd, in, k + i);
    }
}

enum levels { LEVELS_E2M1, LEVELS_IQ4 };

/* Decodes `groups` groups of 8 inputs, four bits each, and multiplies them: a weight is an entry of a table times a factor. */
INLINE void nibble_groups(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *at, int groups,
                          enum levels levels, const vector *factor, const float *const *in, int k)
{
    vector even[2], odd[2];
    words group[2];
    for (int g = 0; g < groups; g++, at += GROUP_BYTES, k += GROUP_INPUTS) {
        fetch_stream(sums, at, GROUP_BYTES);
#pragma GCC unroll 2
        for (int v = 0; v < width; v++)
            group[v] = words_load(at + v * LANES * 4);
#pragma GCC unroll 4
        for (int i = 0; i < GROUP_INPUTS; i += 2) {
#pragma GCC unroll 2
            for (int v = 0; v < width; v++) {
                const vector x = levels == LEVELS_IQ4 ? nibble_level(group[v], 4 * i) : nibble_e2m1(group[v], 4 * i);
                const vector y = levels == LEVELS_IQ4 ? nibble_level(group[v], 4 * i + 4) : nibble_e2m1(group[v], 4 * i + 4);
                even[v] = vector_times(x, factor[v]);
                odd[v] = vector_times(y, factor[v]);
            }
            multiply(sums, rows, width, chains, even, odd, in, k + i);
        }
    }
}

INLINE void span_mxfp4(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                       int span, const float *const *in, int k)
{
    const unsigned char *pair = chunk + (size_t)(span / 2) * MXFP4_PAIR_BYTES;
    const unsigned char *at = pair + MXFP4_GROUPS + span % 2 * (SPAN / GROUP_INPUTS) * GROUP_BYTES + lane * 4;
    vector scale[2];
    if (span % 2 == 0)
        fetch_stream(sums, pair, MXFP4_GROUPS);
#pragma GCC unroll 2
    for (int v = 0; v < width; v++)                         /* 2^-127 is subnormal */
        scale[v] = words_floats(words_max(words_left(words_bytes(pair + span % 2 * UNIT_OUTPUTS + lane + v * LANES), 23),
                                           0x00400000));
    nibble_groups(sums, rows, width, chains, at, SPAN / GROUP_INPUTS, LEVELS_E2M1, scale, in, k);
}

INLINE void span_iq4_nl(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                        int span, const float *const *in, int k)
{
    const unsigned char *block = chunk + (size_t)span * Q4_BLOCK_BYTES;
    vector factor[2];
    fetch_stream(sums, block, BLOCK_SCALE_BYTES);
#pragma GCC unroll 2
    for (int v = 0; v < width; v++)
        factor[v] = vector_half(block + (lane + v * LANES) * 2);
    nibble_groups(sums, rows, width, chains, block + BLOCK_SCALE_BYTES + lane * 4, SPAN / GROUP_INPUTS, LEVELS_IQ4, factor, in,
                  k);
}

/* Returns d * (s - 32) of 32 inputs of iq4_xs. */
INLINE vector scale_iq4_xs(const unsigned char *chunk, int o, int span)
{
    enum { HIGH = 64, LOW = 128 };
    words low = words_and(words_right_by(words_load(chunk + LOW + o * 4), 4 * span), 15);
    words high = words_and(words_right_by(words_shorts(chunk + HIGH + o * 2), 2 * span), 3);
    vector scale = vector_add(words_convert(words_or(low, words_left(high, 4))), vector_all(-32));
    return vector_times(vector_half(chunk + o * 2), scale);
}

INLINE void span_iq4_xs(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                        int span, const float *const *in, int k)
{
    enum { GROUPS = 256 };
    vector factor[2];
    fetch_stream(sums, chunk + span / 2 * 64, span % 2 ? 0 : 64);
#pragma GCC unroll 2
    for (int v = 0; v < width; v++)
        factor[v] = scale_iq4_xs(chunk, lane + v * LANES, span);
    nibble_groups(sums, rows, width, chains, chunk + GROUPS + span * (SPAN / GROUP_INPUTS) * GROUP_BYTES + lane * 4,
                  SPAN / GROUP_INPUTS, LEVELS_IQ4, factor, in, k);
}

enum { NVFP4_SCALES = 128, NVFP4_S_SCALES = 256 };

/* Returns scales of 16 inputs times `unit`. The bits of a scale are those of an f32 that is 2^120 times smaller, also if it is
 * subnormal. whole: a scale of the matrix is after the scales; without it 0x7f means 0. */
INLINE vector scale_nvfp4(const unsigned char *block, int lane, int half, bool whole, float unit)
{
    const words code = words_bytes(block + half * UNIT_OUTPUTS + lane);
    const vector scale = vector_times(words_floats(words_left(words_and(code, 127), 20)), vector_all(0x1p120f * unit));
    return vector_times(scale, whole ? vector_load((const float *)(const void *)(block + NVFP4_SCALES) + lane)
                                     : words_convert(words_min(words_flip(code, 127), 1)));
}

INLINE void span_steps(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                       int span, const float *const *in, int k, bool whole)
{
    enum { HALF = SPAN / GROUP_INPUTS / 2 };
    const int scales = whole ? NVFP4_S_SCALES : NVFP4_SCALES;
    const unsigned char *block = chunk + (size_t)(span / 2) * (size_t)(scales + 8 * GROUP_BYTES);
    vector factor[2];
    fetch_stream(sums, block + span % 2 * (scales / 2), scales / 2);
    for (int half = span % 2 * 2; half < span % 2 * 2 + 2; half++, k += SPAN / 2) {
#pragma GCC unroll 2
        for (int v = 0; v < width; v++)
            factor[v] = scale_nvfp4(block, lane + v * LANES, half, whole, 1);
        nibble_groups(sums, rows, width, chains, block + scales + half * HALF * GROUP_BYTES + lane * 4, HALF, LEVELS_E2M1,
                      factor, in, k);
    }
}

INLINE void span_nvfp4(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                       int span, const float *const *in, int k)
{
    span_steps(sums, rows, width, chains, chunk, lane, span, in, k, false);
}

INLINE void span_nvfp4_s(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                         int span, const float *const *in, int k)
{
    span_steps(sums, rows, width, chains, chunk, lane, span, in, k, true);
}

/* Unpacks sc and m of 32 inputs: six bits each of the words s. */
INLINE void scales_q4_k(const unsigned char *block, int lane, int span, vector *factor, vector *less)
{
    const unsigned char *s = block + Q4_K_SCALES + lane * 4;
    const int shift = span % 4 * 8;
    words a = words_right_by(words_load(s), shift), b = words_right_by(words_load(s + GROUP_BYTES), shift);
    words c = words_right_by(words_load(s + 2 * GROUP_BYTES), shift), scale = words_and(a, 63), minimum = words_and(b, 63);
    if (span >= 4) {
        scale = words_or(words_and(c, 15), words_and(words_right(a, 2), 48));
        minimum = words_or(words_and(words_right(c, 4), 15), words_and(words_right(b, 2), 48));
    }
    *factor = vector_times(vector_half(block + lane * 2), words_convert(scale));
    *less = vector_times(vector_half(block + Q4_K_MINIMA + lane * 2), words_convert(minimum));
    *less = vector_times(*less, vector_all(-1));
}

INLINE void span_q4_k(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                      int span, const float *const *in, int k)
{
    const unsigned char *at = chunk + Q4_K_GROUPS + span * (SPAN / GROUP_INPUTS) * GROUP_BYTES + lane * 4;
    vector factor[2], less[2], even[2], odd[2];
    words group[2];
    fetch_stream(sums, chunk + span * (Q4_K_GROUPS / CHUNK_SPANS), Q4_K_GROUPS / CHUNK_SPANS);
#pragma GCC unroll 2
    for (int v = 0; v < width; v++)
        scales_q4_k(chunk, lane + v * LANES, span, &factor[v], &less[v]);
    for (int g = 0; g < SPAN; g += GROUP_INPUTS, at += GROUP_BYTES) {
        fetch_stream(sums, at, GROUP_BYTES);
#pragma GCC unroll 2
        for (int v = 0; v < width; v++)
            group[v] = words_load(at + v * LANES * 4);
#pragma GCC unroll 4
        for (int i = 0; i < GROUP_INPUTS; i += 2) {
#pragma GCC unroll 2
            for (int v = 0; v < width; v++) {
                even[v] = vector_fma(factor[v], nibble_number(group[v], 4 * i), less[v]);
                odd[v] = vector_fma(factor[v], nibble_number(group[v], 4 * i + 4), less[v]);
            }
            multiply(sums, rows, width, chains, even, odd, in, k + g + i);
        }
    }
}

/* Returns the code in five bits of a word. */
INLINE vector bits5_number(words a, int shift) { return words_convert(words_and(words_right(a, shift), 31)); }

INLINE void span_q5_k(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                      int span, const float *const *in, int k)
{
    enum { GROUPS = 512, WORDS = 5, WORD_INPUTS = 6 };
    const unsigned char *at = chunk + GROUPS + span * WORDS * GROUP_BYTES + lane * 4;
    vector factor[2], less[2], even[2], odd[2];
    fetch_stream(sums, chunk + span * (GROUPS / CHUNK_SPANS), GROUPS / CHUNK_SPANS);
#pragma GCC unroll 2
    for (int v = 0; v < width; v++)
        scales_q4_k(chunk, lane + v * LANES, span, &factor[v], &less[v]);
    for (int w = 0; w < WORDS; w++) {
        words word[2];
        fetch_stream(sums, at + w * GROUP_BYTES, GROUP_BYTES);
#pragma GCC unroll 2
        for (int v = 0; v < width; v++)
            word[v] = words_load(at + w * GROUP_BYTES + v * LANES * 4);
#pragma GCC unroll 3
        for (int i = 0; i < WORD_INPUTS; i += 2) {
#pragma GCC unroll 2
            for (int v = 0; v < width; v++) {
                even[v] = vector_fma(factor[v], bits5_number(word[v], 5 * i), less[v]);
                odd[v] = vector_fma(factor[v], bits5_number(word[v], 5 * i + 5), less[v]);
            }
            multiply(sums, rows, width, chains, even, odd, in, k + w * WORD_INPUTS + i);
        }
    }
#pragma GCC unroll 2
    for (int v = 0; v < width; v++) {
        words word[WORDS];
        for (int w = 0; w < WORDS; w++)
            word[w] = words_load(at + w * GROUP_BYTES + v * LANES * 4);
        words last = words_or(words_right(word[0], 30), words_and(words_right(word[1], 28), 12));
        words after = words_or(words_right(word[3], 30), words_and(words_right(word[4], 28), 12));
        last = words_or(last, words_and(words_right(word[2], 26), 16));
        after = words_or(after, words_left(words_right(word[2], 31), 4));
        even[v] = vector_fma(factor[v], words_convert(last), less[v]);
        odd[v] = vector_fma(factor[v], words_convert(after), less[v]);
    }
    multiply(sums, rows, width, chains, even, odd, in, k + WORDS * WORD_INPUTS);
}

INLINE void span_q2_k(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                      int span, const float *const *in, int k)
{
    enum { MINIMA = 64, SCALES = 128, GROUPS = 640, HALF = SPAN / 2 };
    vector factor[2], less[2], even[2], odd[2];
    words word[2];
    fetch_stream(sums, chunk + span * 64, 64);
    fetch_stream(sums, chunk + GROUPS - 128, span ? 0 : 128);
    for (int j = 2 * span; j < 2 * span + 2; j++, k += HALF) {
        fetch_stream(sums, chunk + GROUPS + j * GROUP_BYTES + lane * 4, GROUP_BYTES);
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            const int o = lane + v * LANES;
            words both = words_bytes(chunk + SCALES + j * UNIT_OUTPUTS + o);
            factor[v] = vector_times(vector_half(chunk + o * 2), words_convert(words_and(both, 15)));
            less[v] = vector_times(vector_half(chunk + MINIMA + o * 2), words_convert(words_right(both, 4)));
            less[v] = vector_times(less[v], vector_all(-1));
            word[v] = words_load(chunk + GROUPS + j * GROUP_BYTES + o * 4);
        }
#pragma GCC unroll 8
        for (int i = 0; i < HALF; i += 2) {
#pragma GCC unroll 2
            for (int v = 0; v < width; v++) {
                even[v] = vector_fma(factor[v], entry8(word[v], 2 * i, BITS2), less[v]);
                odd[v] = vector_fma(factor[v], entry8(word[v], 2 * i + 2, BITS2), less[v]);
            }
            multiply(sums, rows, width, chains, even, odd, in, k + i);
        }
    }
}

/* Returns s - 32 of the j-th 16 inputs of a block of q3_k. */
INLINE vector factor_q3_k(const unsigned char *chunk, int o, int j)
{
    const unsigned char *s = chunk + 64 + o * 4;
    words low = words_and(words_right_by(words_load(s + j % 8 / 4 * GROUP_BYTES), j % 4 * 8 + j / 8 * 4), 15);
    words high = words_and(words_right_by(words_load(s + 2 * GROUP_BYTES), j % 4 * 8 + j / 4 * 2), 3);
    return vector_add(words_convert(words_or(low, words_left(high, 4))), vector_all(-32));
}

INLINE void span_q3_k(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                      int span, const float *const *in, int k)
{
    enum { GROUPS = 448, WORDS = 3, HALF = SPAN / 2, FIRST = 10 };
    const unsigned char *at = chunk + GROUPS + span * WORDS * GROUP_BYTES + lane * 4;
    vector factor[2], even[2], odd[2];
    words first[2], rest[2];
    fetch_stream(sums, chunk + span * 64, span < 7 ? 64 : 0);
    fetch_stream(sums, at + 2 * GROUP_BYTES, GROUP_BYTES);
    for (int half = 0; half < 2; half++, k += HALF) {
        fetch_stream(sums, at + half * GROUP_BYTES, GROUP_BYTES);
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            factor[v] = vector_times(vector_half(chunk + (lane + v * LANES) * 2),
                                     factor_q3_k(chunk, lane + v * LANES, 2 * span + half));
            first[v] = words_load(at + half * GROUP_BYTES + v * LANES * 4);
            rest[v] = words_right_by(words_load(at + 2 * GROUP_BYTES + v * LANES * 4), 16 * half);
        }
#pragma GCC unroll 8
        for (int i = 0; i < HALF; i += 2) {
#pragma GCC unroll 2
            for (int v = 0; v < width; v++) {
                const words from = i < FIRST ? first[v] : rest[v];
                const int shift = i < FIRST ? 3 * i : 3 * (i - FIRST);
                const words last = words_or(words_right(first[v], 30), words_and(words_right(rest[v], 13), 4));
                const bool end = i + 2 == HALF;
                even[v] = vector_times(factor[v], entry8(from, shift, BITS3_CENTRED));
                odd[v] = vector_times(factor[v], entry8(end ? last : from, end ? 0 : shift + 3, BITS3_CENTRED));
            }
            multiply(sums, rows, width, chains, even, odd, in, k + i);
        }
    }
}

/* Returns 64 + q: the six bits of an input become the upper bits of a fraction. `input` must be a constant at each use. */
INLINE vector q6_k_number(words a, words b, words c, int input)
{
    const int keep = 63 << 17, base = 0x42800000, bit = input % 5 * 6;
    if (input == 15)
        return words_floats(words_or(words_field(words_right(a, 13), 3 << 17, base),
                                     words_or(words_and(words_right(b, 11), 3 << 19), words_and(words_right(c, 9), 3 << 21))));
    words word = input < 5 ? a : input < 10 ? b : c;
    return words_floats(words_field(bit < 17 ? words_left(word, 17 - bit) : words_right(word, bit - 17), keep, base));
}

INLINE void span_q6_k(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                      int span, const float *const *in, int k)
{
    vector factor[2], less[2], even[2], odd[2];
    words a[2], b[2], c[2];
    fetch_stream(sums, chunk + span * (Q6_K_GROUPS / CHUNK_SPANS), Q6_K_GROUPS / CHUNK_SPANS);
    for (int g = 0; g < SPAN; g += Q6_K_GROUP_INPUTS) {
        const int number = (span * SPAN + g) / Q6_K_GROUP_INPUTS;
        const unsigned char *at = chunk + Q6_K_GROUPS + number * Q6_K_GROUP_BYTES + lane * 4;
        fetch_stream(sums, at, Q6_K_GROUP_BYTES);
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            const unsigned char *scale = chunk + Q6_K_SCALES + number * UNIT_OUTPUTS + lane + v * LANES;
            factor[v] = vector_times(vector_half(chunk + (lane + v * LANES) * 2), words_convert(words_signed(scale)));
            less[v] = vector_times(factor[v], vector_all(-96));
            a[v] = words_load(at + v * LANES * 4);
            b[v] = words_load(at + v * LANES * 4 + GROUP_BYTES);
            c[v] = words_load(at + v * LANES * 4 + 2 * GROUP_BYTES);
        }
#pragma GCC unroll 8
        for (int i = 0; i < Q6_K_GROUP_INPUTS; i += 2) {
#pragma GCC unroll 2
            for (int v = 0; v < width; v++) {
                even[v] = vector_fma(factor[v], q6_k_number(a[v], b[v], c[v], i), less[v]);
                odd[v] = vector_fma(factor[v], q6_k_number(a[v], b[v], c[v], i + 1), less[v]);
            }
            multiply(sums, rows, width, chains, even, odd, in, k + g + i);
        }
    }
}

/* ---- IQ2 and IQ3: groups of magnitudes from grids, and signs ---- */

/* Eight inputs of each output. first: the codes of all (IQ2, two bits) or of the first four (IQ3, four bits); second: the
 * codes of the other four. */
struct grid_eight { words first[2], second[2], signs[2]; };

INLINE void multiply_eight(struct sums *sums, int rows, int width, enum chains chains, const struct grid_eight *eight, int bits,
                           const int8_t *table, const vector *factor, const float *const *in, int k)
{
    vector even[2], odd[2];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            const words from = bits == 4 && i >= 4 ? eight->second[v] : eight->first[v];
            const int shift = bits == 4 ? i % 4 * 4 : i * 2;
            even[v] = vector_signed(vector_times(entry8(from, shift, table), factor[v]), eight->signs[v], i);
            odd[v] = vector_signed(vector_times(entry8(from, shift + bits, table), factor[v]), eight->signs[v], i + 1);
        }
        multiply(sums, rows, width, chains, even, odd, in, k + i);
    }
}

/* Returns eight signs from seven: the eighth makes the number of minus signs even. */
INLINE words eight_signs(words index)
{
    words odd = words_xor(index, words_right(index, 4));
    odd = words_xor(odd, words_right(odd, 2));
    odd = words_and(words_xor(odd, words_right(odd, 1)), 1);
    return words_or(index, words_left(odd, 7));
}

/* Returns a block's word number `number` after its scale d. */
INLINE words grid_word(const unsigned char *chunk, int o, int number)
{
    return words_load(chunk + UNIT_OUTPUTS * 2 + number * GROUP_BYTES + o * 4);
}

INLINE vector grid_factor(const unsigned char *chunk, int o, words scale, float offset, float times)
{
    return vector_times(vector_times(vector_half(chunk + o * 2), vector_add(words_convert(scale), vector_all(offset))),
                        vector_all(times));
}

/* Prefetches a span's share of the chunk: an eighth of the scales and of `count` words for each output. */
INLINE void fetch_grid(const struct sums *sums, const unsigned char *chunk, int span, int count)
{
    const int lines = 1 + 2 * count;
    for (int line = span * lines / CHUNK_SPANS; line < (span + 1) * lines / CHUNK_SPANS; line++)
        fetch_stream(sums, chunk + line * 64, 64);
}

INLINE void span_iq2_xxs(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                         int span, const float *const *in, int k)
{
    vector factor[2];
    words index[2], more[2];
    fetch_grid(sums, chunk, span, 16);
#pragma GCC unroll 2
    for (int v = 0; v < width; v++) {
        index[v] = grid_word(chunk, lane + v * LANES, 2 * span);
        more[v] = grid_word(chunk, lane + v * LANES, 2 * span + 1);
        factor[v] = grid_factor(chunk, lane + v * LANES, words_right(more[v], 28), 0.5f, 0.25f);
    }
    for (int g = 0; g < 4; g++, k += 8) {
        struct grid_eight eight;
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            eight.first[v] = words_entries(grid_iq2_xxs(), 256, words_and(words_right_by(index[v], 8 * g), 255));
            eight.signs[v] = eight_signs(words_and(words_right_by(more[v], 7 * g), 127));
        }
        multiply_eight(sums, rows, width, chains, &eight, 2, GRID_IQ2, factor, in, k);
    }
}

/* Returns the scale of the j-th 16 inputs of iq2_xs and iq2_s, which is in four bits of the words from `first` on. */
INLINE vector factor_iq2(const unsigned char *chunk, int o, int first, int j)
{
    const words scale = words_and(words_right_by(grid_word(chunk, o, first + j / 8), j % 8 * 4), 15);
    return grid_factor(chunk, o, scale, 0.5f, 0.25f);
}

INLINE void span_iq2_xs(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                        int span, const float *const *in, int k)
{
    fetch_grid(sums, chunk, span, 18);
    for (int g = 0; g < 4; g++, k += 8) {
        struct grid_eight eight;
        vector factor[2];
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            const int o = lane + v * LANES;
            const words both = words_right_by(grid_word(chunk, o, 2 * span + g / 2), g % 2 * 16);
            eight.first[v] = words_entries(grid_iq2_xs(), 512, words_and(both, 511));
            eight.signs[v] = eight_signs(words_and(words_right(both, 9), 127));
            factor[v] = factor_iq2(chunk, o, 16, 2 * span + g / 2);
        }
        multiply_eight(sums, rows, width, chains, &eight, 2, GRID_IQ2, factor, in, k);
    }
}

INLINE void span_iq2_s(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                       int span, const float *const *in, int k)
{
    fetch_grid(sums, chunk, span, 20);
    for (int g = 0; g < 4; g++, k += 8) {
        struct grid_eight eight;
        vector factor[2];
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            const int o = lane + v * LANES, i = 4 * span + g;
            const words low = words_and(words_right_by(grid_word(chunk, o, span), 8 * g), 255);
            const words high = words_and(words_right_by(grid_word(chunk, o, 16 + i / 16), i % 16 * 2), 3);
            eight.first[v] = words_entries(grid_iq2_s(), 1024, words_or(low, words_left(high, 8)));
            eight.signs[v] = words_right_by(grid_word(chunk, o, 8 + span), 8 * g);
            factor[v] = factor_iq2(chunk, o, 18, 2 * span + g / 2);
        }
        multiply_eight(sums, rows, width, chains, &eight, 2, GRID_IQ2, factor, in, k);
    }
}

INLINE void span_iq3_xxs(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                         int span, const float *const *in, int k)
{
    vector factor[2];
    words more[2];
    fetch_grid(sums, chunk, span, 24);
#pragma GCC unroll 2
    for (int v = 0; v < width; v++) {
        more[v] = grid_word(chunk, lane + v * LANES, 16 + span);
        factor[v] = grid_factor(chunk, lane + v * LANES, words_right(more[v], 28), 0.5f, 0.5f);
    }
    for (int g = 0; g < 4; g++, k += 8) {
        struct grid_eight eight;
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            const words index = words_right_by(grid_word(chunk, lane + v * LANES, 2 * span + g / 2), g % 2 * 16);
            eight.first[v] = words_entries(grid_iq3_xxs(), 256, words_and(index, 255));
            eight.second[v] = words_entries(grid_iq3_xxs(), 256, words_and(words_right(index, 8), 255));
            eight.signs[v] = eight_signs(words_and(words_right_by(more[v], 7 * g), 127));
        }
        multiply_eight(sums, rows, width, chains, &eight, 4, GRID_IQ3_XXS, factor, in, k);
    }
}

INLINE void span_iq3_s(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                       int span, const float *const *in, int k)
{
    vector factor[2];
    fetch_grid(sums, chunk, span, 27);
#pragma GCC unroll 2
    for (int v = 0; v < width; v++) {
        const int o = lane + v * LANES;
        const words scale = words_and(words_right_by(grid_word(chunk, o, 26), 4 * span), 15);
        factor[v] = grid_factor(chunk, o, scale, 0.5f, 2);
    }
    for (int g = 0; g < 4; g++, k += 8) {
        struct grid_eight eight;
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            const int o = lane + v * LANES;
            const words index = words_right_by(grid_word(chunk, o, 2 * span + g / 2), g % 2 * 16);
            const words high = words_right_by(grid_word(chunk, o, 16 + span / 4), span % 4 * 8 + 2 * g);
            const words first = words_or(words_and(index, 255), words_left(words_and(high, 1), 8));
            const words second = words_or(words_and(words_right(index, 8), 255), words_left(words_and(high, 2), 7));
            eight.first[v] = words_entries(grid_iq3_s(), 512, first);
            eight.second[v] = words_entries(grid_iq3_s(), 512, second);
            eight.signs[v] = words_right_by(grid_word(chunk, o, 18 + span), 8 * g);
        }
        multiply_eight(sums, rows, width, chains, &eight, 4, GRID_IQ3_S, factor, in, k);
    }
}

#endif
#endif
