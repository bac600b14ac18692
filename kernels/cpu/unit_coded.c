/* Products with fp8, mxfp4, q4_k and q6_k: weights are converted in registers to exactly the f32 of formats.h and multiplied
 * with f32 activations in the two chains of linear.h.
 *
 * Inputs are processed in SPANS of 32, which share at least some scales; eight spans are a CHUNK of 256 inputs, which has the
 * same number of bytes everywhere in a unit. A strip of outputs processes a chunk with its sums in registers. If several strips
 * share the outputs, they take turns chunk by chunk, while the chunk is in the first-level cache. */
#include <string.h>

#include "common/base/float.h"
#include "kernels/cpu/fetch.h"
#include "kernels/cpu/unit.h"
#include "kernels/cpu/vector.h"
#include "kernels/formats_coded.h"

#define INLINE static inline __attribute__((always_inline))

enum { SPAN = 32, CHUNK_SPANS = SUPERBLOCK_INPUTS / SPAN };
enum { CHAINS = 2 * DECODED_ROWS * UNIT_OUTPUTS, ODD = DECODED_ROWS * UNIT_OUTPUTS };

/* Copies the last inputs of rows whose length is not a multiple of 32, padded with zeros. */
INLINE void take_rest(int rows, int inputs, const void *const *in, float (*room)[SPAN], const float **rest)
{
    const int whole = inputs / SPAN * SPAN;
    for (int r = 0; r < rows; r++) {
        memset(room[r], 0, sizeof room[r]);
        memcpy(room[r], (const float *)in[r] + whole, (size_t)(inputs - whole) * sizeof(float));
        rest[r] = room[r];
    }
}

#if defined(ISA_VECTORS)

/* The chains of a strip: with many rows, registers hold the sums of only one, and another strip computes the other. */
enum chains { EVEN_CHAIN = 1, ODD_CHAIN = 2, BOTH_CHAINS = 3 };

/* ---- what the widths do differently ---- */

#if defined(ISA_AVX512)

#define STRIP_VECTORS(rows) 2
#define STRIP_CHAINS(rows) ((rows) <= 4 ? BOTH_CHAINS : EVEN_CHAIN)

typedef __m512i words;

INLINE words words_load(const unsigned char *at) { return _mm512_loadu_si512((const void *)at); }
INLINE words words_bytes(const unsigned char *at) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)at)); }
INLINE words words_signed(const unsigned char *at) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at)); }
INLINE words words_right(words a, int bits) { return _mm512_srli_epi32(a, (unsigned)bits); }
INLINE words words_right_by(words a, int bits) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
INLINE words words_left(words a, int bits) { return _mm512_slli_epi32(a, (unsigned)bits); }
INLINE words words_and(words a, int b) { return _mm512_and_si512(a, _mm512_set1_epi32(b)); }
INLINE words words_or(words a, words b) { return _mm512_or_si512(a, b); }
INLINE words words_max(words a, int b) { return _mm512_max_epu32(a, _mm512_set1_epi32(b)); }
INLINE vector words_floats(words a) { return _mm512_castsi512_ps(a); }
INLINE vector words_convert(words a) { return _mm512_cvtepi32_ps(a); }
INLINE vector vector_times(vector a, vector b) { return _mm512_mul_ps(a, b); }

/* (a & keep) | base */
INLINE words words_field(words a, int keep, int base)
{
    return _mm512_ternarylogic_epi32(a, _mm512_set1_epi32(keep), _mm512_set1_epi32(base), 0xea);
}

/* Converts four bits of every word to a number, or to E2M1: the permutation ignores the other bits. Shifts are always
 * constants. */
INLINE vector nibble_number(words a, int shift)
{
    const vector table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(a, (unsigned)shift), table);
}

INLINE vector nibble_e2m1(words a, int shift)
{
    const vector table = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(a, (unsigned)shift), table);
}

/* Converts E4M3 codes: their bits are those of an f16 that is 256 times smaller, also for subnormal codes, except for two bits
 * of the exponent, which are 0 there. `at`: bytes [output][even, odd input] of `width` vectors of outputs. */
INLINE void codes_floats(int width, const unsigned char *at, vector *even, vector *odd)
{
    if (width == 1) {
        __m256i both = _mm256_loadu_si256((const void *)at);
        __m256i low = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(both, 8), 1), _mm256_set1_epi16(-16385));
        __m256i high = _mm256_and_si256(_mm256_srai_epi16(both, 1), _mm256_set1_epi16(-16512));
        even[0] = _mm512_cvtph_ps(low);
        odd[0] = _mm512_cvtph_ps(high);
        return;
    }
    __m512i both = _mm512_loadu_si512((const void *)at);
    __m512i low = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(both, 8), 1), _mm512_set1_epi16(-16385));
    __m512i high = _mm512_and_si512(_mm512_srai_epi16(both, 1), _mm512_set1_epi16(-16512));
    even[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(low));
    even[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(low, 1));
    odd[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(high));
    odd[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(high, 1));
}

#elif defined(ISA_NEON)

#define STRIP_VECTORS(rows) 2
#define STRIP_CHAINS(rows) ((rows) <= 4 ? BOTH_CHAINS : EVEN_CHAIN)

typedef uint32x4_t words;

INLINE uint16x4_t four_bytes(const unsigned char *at, bool sign)
{
    uint32_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    const uint8x8_t four = vcreate_u8(bytes);
    return sign ? vreinterpret_u16_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four)))) : vget_low_u16(vmovl_u8(four));
}

INLINE words words_load(const unsigned char *at) { return vreinterpretq_u32_u8(vld1q_u8(at)); }
INLINE words words_bytes(const unsigned char *at) { return vmovl_u16(four_bytes(at, false)); }
INLINE words words_signed(const unsigned char *at)
{
    return vreinterpretq_u32_s32(vmovl_s16(vreinterpret_s16_u16(four_bytes(at, true))));
}
INLINE words words_right(words a, int bits) { return a >> (uint32_t)bits; }
INLINE words words_right_by(words a, int bits) { return vshlq_u32(a, vdupq_n_s32(-bits)); }
INLINE words words_left(words a, int bits) { return a << (uint32_t)bits; }
INLINE words words_and(words a, int b) { return vandq_u32(a, vdupq_n_u32((uint32_t)b)); }
INLINE words words_or(words a, words b) { return vorrq_u32(a, b); }
INLINE words words_max(words a, int b) { return vmaxq_u32(a, vdupq_n_u32((uint32_t)b)); }
INLINE vector words_floats(words a) { return vreinterpretq_f32_u32(a); }
INLINE vector words_convert(words a) { return vcvtq_f32_s32(vreinterpretq_s32_u32(a)); }
INLINE vector vector_times(vector a, vector b) { return vmulq_f32(a, b); }
INLINE words words_field(words a, int keep, int base) { return words_or(words_and(a, keep), vdupq_n_u32((uint32_t)base)); }
INLINE vector nibble_number(words a, int shift) { return words_convert(words_and(words_right(a, shift), 15)); }

/* The three lower bits of E2M1 are those of an f32 that is 2^126 times smaller, also for 0.5, which is subnormal there. */
INLINE vector nibble_e2m1(words a, int shift)
{
    const words size = words_left(words_and(words_right(a, shift), 7), 22);
    const words sign = words_and(words_left(a, 28 - shift), (int)0x80000000u);
    return vector_times(words_floats(words_or(size, sign)), vector_all(0x1p126f));
}

INLINE void codes_floats(int width, const unsigned char *at, vector *even, vector *odd)
{
#pragma GCC unroll 2
    for (int v = 0; v < width; v++) {
        int16x4_t both = vreinterpret_s16_u8(vld1_u8(at + v * 2 * LANES));
        int16x4_t low = vand_s16(vshr_n_s16(vshl_n_s16(both, 8), 1), vdup_n_s16(-16385));
        int16x4_t high = vand_s16(vshr_n_s16(both, 1), vdup_n_s16(-16512));
        even[v] = vcvt_f32_f16(vreinterpret_f16_s16(low));
        odd[v] = vcvt_f32_f16(vreinterpret_f16_s16(high));
    }
}

#else

#define STRIP_VECTORS(rows) ((rows) == 1 ? 2 : 1)
#define STRIP_CHAINS(rows) ((rows) <= 4 ? BOTH_CHAINS : EVEN_CHAIN)

typedef __m256i words;

INLINE words words_load(const unsigned char *at) { return _mm256_loadu_si256((const void *)at); }
INLINE words words_bytes(const unsigned char *at) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)at)); }
INLINE words words_signed(const unsigned char *at) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)at)); }
INLINE words words_right(words a, int bits) { return _mm256_srli_epi32(a, bits); }
INLINE words words_right_by(words a, int bits) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
INLINE words words_left(words a, int bits) { return _mm256_slli_epi32(a, bits); }
INLINE words words_and(words a, int b) { return _mm256_and_si256(a, _mm256_set1_epi32(b)); }
INLINE words words_or(words a, words b) { return _mm256_or_si256(a, b); }
INLINE words words_max(words a, int b) { return _mm256_max_epu32(a, _mm256_set1_epi32(b)); }
INLINE vector words_floats(words a) { return _mm256_castsi256_ps(a); }
INLINE vector words_convert(words a) { return _mm256_cvtepi32_ps(a); }
INLINE vector vector_times(vector a, vector b) { return _mm256_mul_ps(a, b); }

INLINE words words_field(words a, int keep, int base)
{
    return _mm256_or_si256(_mm256_and_si256(a, _mm256_set1_epi32(keep)), _mm256_set1_epi32(base));
}

INLINE vector nibble_number(words a, int shift)
{
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(a, shift), _mm256_set1_epi32(15)));
}

/* The permutation uses three bits; the fourth is the sign. */
INLINE vector nibble_e2m1(words a, int shift)
{
    const vector table = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
    __m256i sign = _mm256_and_si256(_mm256_slli_epi32(a, 28 - shift), _mm256_set1_epi32((int)0x80000000u));
    return _mm256_or_ps(_mm256_permutevar8x32_ps(table, _mm256_srli_epi32(a, shift)), _mm256_castsi256_ps(sign));
}

INLINE void codes_floats(int width, const unsigned char *at, vector *even, vector *odd)
{
#pragma GCC unroll 4
    for (int v = 0; v < width; v++) {
        __m128i both = _mm_loadu_si128((const void *)(at + v * 2 * LANES));
        even[v] = _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16(_mm_slli_epi16(both, 8), 1), _mm_set1_epi16(-16385)));
        odd[v] = _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16(both, 1), _mm_set1_epi16(-16512)));
    }
}

#endif

/* ---- a span of a strip ---- */

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

INLINE void span_mxfp4(struct sums *sums, int rows, int width, enum chains chains, const unsigned char *chunk, int lane,
                       int span, const float *const *in, int k)
{
    const unsigned char *pair = chunk + (size_t)(span / 2) * MXFP4_PAIR_BYTES;
    const unsigned char *at = pair + MXFP4_GROUPS + span % 2 * (SPAN / GROUP_INPUTS) * GROUP_BYTES + lane * 4;
    vector scale[2], even[2], odd[2];
    words group[2];
    if (span % 2 == 0)
        fetch_stream(sums, pair, MXFP4_GROUPS);
#pragma GCC unroll 2
    for (int v = 0; v < width; v++)                         /* 2^-127 is subnormal */
        scale[v] = words_floats(words_max(words_left(words_bytes(pair + span % 2 * UNIT_OUTPUTS + lane + v * LANES), 23),
                                           0x00400000));
    for (int g = 0; g < SPAN; g += GROUP_INPUTS, at += GROUP_BYTES) {
        fetch_stream(sums, at, GROUP_BYTES);
#pragma GCC unroll 2
        for (int v = 0; v < width; v++)
            group[v] = words_load(at + v * LANES * 4);
#pragma GCC unroll 4
        for (int i = 0; i < GROUP_INPUTS; i += 2) {
#pragma GCC unroll 2
            for (int v = 0; v < width; v++) {
                even[v] = vector_times(nibble_e2m1(group[v], 4 * i), scale[v]);
                odd[v] = vector_times(nibble_e2m1(group[v], 4 * i + 4), scale[v]);
            }
            multiply(sums, rows, width, chains, even, odd, in, k + g + i);
        }
    }
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

/* ---- strips, chunks, units ---- */

INLINE void span_of(enum weight_format format, struct sums *sums, int rows, int width, enum chains chains,
                    const unsigned char *chunk, int lane, int span, const float *const *in, int k)
{
    if (format == FORMAT_FP8)
        span_fp8(sums, rows, width, chains, chunk, lane, span, in, k);
    else if (format == FORMAT_MXFP4)
        span_mxfp4(sums, rows, width, chains, chunk, lane, span, in, k);
    else if (format == FORMAT_Q4_K)
        span_q4_k(sums, rows, width, chains, chunk, lane, span, in, k);
    else
        span_q6_k(sums, rows, width, chains, chunk, lane, span, in, k);
}

INLINE void decode(enum weight_format format, const unsigned char *chunk, int inputs, float *out)
{
    enum { WIDTH = LANES == 8 ? 1 : 2 };
    const size_t bytes = unit_chunk_bytes(format);
    for (int span = 0; span < inputs / SPAN; span++) {
        for (size_t line = 0; line < bytes / CHUNK_SPANS; line += 64)
            fetch_after(chunk + (size_t)span * (bytes / CHUNK_SPANS) + line, bytes, 2 * bytes);
        for (int lane = 0; lane < UNIT_OUTPUTS; lane += WIDTH * LANES) {
            struct sums sums = {.decoded = out + lane};
            span_of(format, &sums, 0, WIDTH, BOTH_CHAINS, chunk, lane, span, NULL, span * SPAN);
        }
    }
}

void unit_decode(enum weight_format format, const void *chunk, int inputs, float *out)
{
    if (format == FORMAT_FP8)
        decode(FORMAT_FP8, chunk, inputs, out);
    else if (format == FORMAT_MXFP4)
        decode(FORMAT_MXFP4, chunk, inputs, out);
    else if (format == FORMAT_Q4_K)
        decode(FORMAT_Q4_K, chunk, inputs, out);
    else
        decode(FORMAT_Q6_K, chunk, inputs, out);
}

/* Processes spans `from` .. `to` of a chunk, whose first input is in[r][0], for `width` vectors of outputs from `lane` on, as
 * strip `number` of `strips`. */
INLINE void strip(enum weight_format format, int rows, int width, enum chains parts, int number, int strips,
                  const unsigned char *chunk, int lane, int from, int to, const float *const *in, float *chains)
{
    const size_t span_bytes = unit_chunk_bytes(format) / CHUNK_SPANS;
    struct sums sums = {.stream = strips == 1};
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            if (parts & EVEN_CHAIN)
                sums.even[r][v] = vector_load(chains + r * UNIT_OUTPUTS + lane + v * LANES);
            if (parts & ODD_CHAIN)
                sums.odd[r][v] = vector_load(chains + ODD + r * UNIT_OUTPUTS + lane + v * LANES);
        }
    for (int span = from; span < to; span++) {
        const unsigned char *at = chunk + (size_t)span * span_bytes;
#pragma GCC unroll 9
        for (size_t line = strips > 1 ? (size_t)number : span_bytes; line * 64 < span_bytes; line += (size_t)strips)
            fetch_after(at + line * 64, unit_chunk_bytes(format), 2 * unit_chunk_bytes(format));
        const int k = (span - from) * SPAN;
        span_of(format, &sums, rows, width, parts, chunk, lane, span, in, k);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            if (parts & EVEN_CHAIN)
                vector_store(chains + r * UNIT_OUTPUTS + lane + v * LANES, sums.even[r][v]);
            if (parts & ODD_CHAIN)
                vector_store(chains + ODD + r * UNIT_OUTPUTS + lane + v * LANES, sums.odd[r][v]);
        }
}

/* Computes all sums of some spans, strip after strip. */
INLINE void strips(enum weight_format format, int rows, const unsigned char *chunk, int from, int to, const float *const *in,
                   float *chains)
{
    const int width = STRIP_VECTORS(rows), all = UNIT_OUTPUTS / (width * LANES) * (STRIP_CHAINS(rows) == BOTH_CHAINS ? 1 : 2);
    int number = 0;
    for (int lane = 0; lane < UNIT_OUTPUTS; lane += width * LANES)
        if (STRIP_CHAINS(rows) == BOTH_CHAINS) {
            strip(format, rows, width, BOTH_CHAINS, number++, all, chunk, lane, from, to, in, chains);
        } else {
            strip(format, rows, width, EVEN_CHAIN, number++, all, chunk, lane, from, to, in, chains);
            strip(format, rows, width, ODD_CHAIN, number++, all, chunk, lane, from, to, in, chains);
        }
}

/* The last inputs of rows whose length is not a multiple of 32, one row at a time: a version for several rows would be compiled
 * once for each number of rows. The sums of a row do not depend on the other rows. */
#define REST(format) \
    static __attribute__((noinline)) void rest_##format(const unsigned char *chunk, int span, const float *in, \
                                                        float *chains) \
    { \
        strips(format, 1, chunk, span, span + 1, &in, chains); \
    }

REST(FORMAT_FP8)
REST(FORMAT_MXFP4)
REST(FORMAT_Q4_K)
REST(FORMAT_Q6_K)

typedef void rest_function(const unsigned char *chunk, int span, const float *in, float *chains);

static rest_function *const REST_TABLE[FORMAT_COUNT] = {
    [FORMAT_FP8] = rest_FORMAT_FP8, [FORMAT_MXFP4] = rest_FORMAT_MXFP4,
    [FORMAT_Q4_K] = rest_FORMAT_Q4_K, [FORMAT_Q6_K] = rest_FORMAT_Q6_K};

INLINE void product(enum weight_format format, int rows, const unsigned char *unit, int inputs, const void *const *in,
                    float *out)
{
    const int whole = inputs / SPAN;
    _Alignas(64) float chains[CHAINS];
    const float *x[DECODED_ROWS];
    for (int r = 0; r < rows; r++) {
        memset(chains + r * UNIT_OUTPUTS, 0, UNIT_OUTPUTS * sizeof *chains);
        memset(chains + ODD + r * UNIT_OUTPUTS, 0, UNIT_OUTPUTS * sizeof *chains);
    }
    for (int span = 0; span < whole; span += CHUNK_SPANS) {
        const unsigned char *chunk = unit + (size_t)(span / CHUNK_SPANS) * unit_chunk_bytes(format);
        int count = whole - span < CHUNK_SPANS ? whole - span : CHUNK_SPANS;
        for (int r = 0; r < rows; r++)
            x[r] = (const float *)in[r] + span * SPAN;
        strips(format, rows, chunk, 0, count, x, chains);
    }
    if (inputs % SPAN) {
        const unsigned char *chunk = unit + (size_t)(whole / CHUNK_SPANS) * unit_chunk_bytes(format);
        float room[DECODED_ROWS][SPAN];
        take_rest(rows, inputs, in, room, x);
        for (int r = 0; r < rows; r++)
            REST_TABLE[format](chunk, whole % CHUNK_SPANS, x[r], chains + r * UNIT_OUTPUTS);
    }
    for (int i = 0; i < rows * UNIT_OUTPUTS; i += LANES)
        vector_store(out + i, vector_add(vector_load(chains + i), vector_load(chains + ODD + i)));
}

#define PRODUCT(format, rows) \
    static void product_##format##_##rows(const unsigned char *unit, int inputs, const void *const *in, float *out) \
    { \
        product(format, rows, unit, inputs, in, out); \
    }
#define PRODUCTS(format) \
    PRODUCT(format, 1) PRODUCT(format, 2) PRODUCT(format, 3) PRODUCT(format, 4) \
    PRODUCT(format, 5) PRODUCT(format, 6) PRODUCT(format, 7) PRODUCT(format, 8)
#define PRODUCT_NAMES(format) \
    [format] = {product_##format##_1, product_##format##_2, product_##format##_3, product_##format##_4, \
                product_##format##_5, product_##format##_6, product_##format##_7, product_##format##_8}

PRODUCTS(FORMAT_FP8)
PRODUCTS(FORMAT_MXFP4)
PRODUCTS(FORMAT_Q4_K)
PRODUCTS(FORMAT_Q6_K)

typedef void product_function(const unsigned char *unit, int inputs, const void *const *in, float *out);

static product_function *const PRODUCT_TABLE[FORMAT_COUNT][DECODED_ROWS] = {
    PRODUCT_NAMES(FORMAT_FP8), PRODUCT_NAMES(FORMAT_MXFP4), PRODUCT_NAMES(FORMAT_Q4_K), PRODUCT_NAMES(FORMAT_Q6_K)};

void unit_product_coded(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out)
{
    PRODUCT_TABLE[format][rows - 1](unit, inputs, in, out);
}

#else

/* ---- plain C ---- */

static uint32_t get32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static float half_at(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return f16_to_f32(half);
}

static void weights_fp8(const unsigned char *chunk, int span, float (*weight)[UNIT_OUTPUTS])
{
    const unsigned char *block = chunk + (size_t)(span / 4) * FP8_BLOCK_BYTES;
    const unsigned char *at = block + FP8_CODES + span % 4 * (SPAN / 2) * FP8_PAIR_BYTES;
    float scale[UNIT_OUTPUTS];
    memcpy(scale, block, sizeof scale);
    for (int i = 0; i < SPAN; i++)
        for (int o = 0; o < UNIT_OUTPUTS; o++)
            weight[i][o] = e4m3_to_f32(at[i / 2 * FP8_PAIR_BYTES + o * 2 + i % 2]) * scale[o];
}

static void weights_mxfp4(const unsigned char *chunk, int span, float (*weight)[UNIT_OUTPUTS])
{
    static const float value[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const unsigned char *pair = chunk + (size_t)(span / 2) * MXFP4_PAIR_BYTES;
    const unsigned char *at = pair + MXFP4_GROUPS + span % 2 * (SPAN / GROUP_INPUTS) * GROUP_BYTES;
    for (int o = 0; o < UNIT_OUTPUTS; o++) {
        uint32_t code = pair[span % 2 * UNIT_OUTPUTS + o];
        float scale = float_from_bits(code ? code << 23 : 0x00400000u);
        for (int i = 0; i < SPAN; i++)
            weight[i][o] = value[get32(at + i / GROUP_INPUTS * GROUP_BYTES + o * 4) >> i % GROUP_INPUTS * 4 & 15] * scale;
    }
}

static void weights_q4_k(const unsigned char *chunk, int span, float (*weight)[UNIT_OUTPUTS])
{
    const unsigned char *at = chunk + Q4_K_GROUPS + span * (SPAN / GROUP_INPUTS) * GROUP_BYTES;
    const int shift = span % 4 * 8;
    for (int o = 0; o < UNIT_OUTPUTS; o++) {
        const unsigned char *s = chunk + Q4_K_SCALES + o * 4;
        uint32_t a = get32(s) >> shift, b = get32(s + GROUP_BYTES) >> shift, c = get32(s + 2 * GROUP_BYTES) >> shift;
        uint32_t scale = span < 4 ? a & 63 : (c & 15) | (a >> 2 & 48),
            minimum = span < 4 ? b & 63 : (c >> 4 & 15) | (b >> 2 & 48);
        float factor = half_at(chunk + o * 2) * (float)scale, less = -(half_at(chunk + Q4_K_MINIMA + o * 2) * (float)minimum);
        for (int i = 0; i < SPAN; i++) {
            uint32_t q = get32(at + i / GROUP_INPUTS * GROUP_BYTES + o * 4) >> i % GROUP_INPUTS * 4 & 15;
            weight[i][o] = __builtin_fmaf(factor, (float)q, less);
        }
    }
}

static void weights_q6_k(const unsigned char *chunk, int span, float (*weight)[UNIT_OUTPUTS])
{
    for (int i = 0; i < SPAN; i++) {
        const int number = (span * SPAN + i) / Q6_K_GROUP_INPUTS, k = i % Q6_K_GROUP_INPUTS;
        const unsigned char *at = chunk + Q6_K_GROUPS + number * Q6_K_GROUP_BYTES;
        for (int o = 0; o < UNIT_OUTPUTS; o++, at += 4) {
            uint32_t q = k < 15 ? get32(at + k / 5 * GROUP_BYTES) >> k % 5 * 6 & 63
                                : get32(at) >> 30 | get32(at + GROUP_BYTES) >> 30 << 2 | get32(at + 2 * GROUP_BYTES) >> 30 << 4;
            float factor = half_at(chunk + o * 2) * (float)(int8_t)chunk[Q6_K_SCALES + number * UNIT_OUTPUTS + o];
            weight[i][o] = __builtin_fmaf(factor, (float)(64 + q), -96 * factor);
        }
    }
}

static void span_weights(enum weight_format format, const unsigned char *chunk, int span, float (*weight)[UNIT_OUTPUTS])
{
    if (format == FORMAT_FP8)
        weights_fp8(chunk, span, weight);
    else if (format == FORMAT_MXFP4)
        weights_mxfp4(chunk, span, weight);
    else if (format == FORMAT_Q4_K)
        weights_q4_k(chunk, span, weight);
    else
        weights_q6_k(chunk, span, weight);
}

void unit_decode(enum weight_format format, const void *chunk, int inputs, float *out)
{
    for (int k = 0; k < inputs; k += SPAN)
        span_weights(format, chunk, k / SPAN, (float (*)[UNIT_OUTPUTS])(out + (size_t)k * UNIT_OUTPUTS));
}

void unit_product_coded(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out)
{
    float chains[CHAINS], weight[SPAN][UNIT_OUTPUTS], room[DECODED_ROWS][SPAN];
    const float *rest[DECODED_ROWS];
    memset(chains, 0, sizeof chains);
    take_rest(rows, inputs, in, room, rest);
    for (int k = 0; k < inputs; k += SPAN) {
        const unsigned char *chunk = (const unsigned char *)unit + (size_t)(k / SUPERBLOCK_INPUTS) * unit_chunk_bytes(format);
        const int span = k / SPAN % CHUNK_SPANS;
        span_weights(format, chunk, span, weight);
        for (int r = 0; r < rows; r++) {
            const float *x = inputs - k < SPAN ? rest[r] : (const float *)in[r] + k;
            for (int i = 0; i < SPAN; i++) {
                float *sum = chains + i % 2 * ODD + r * UNIT_OUTPUTS;
                for (int o = 0; o < UNIT_OUTPUTS; o++)
                    sum[o] = __builtin_fmaf(weight[i][o], x[i], sum[o]);
            }
        }
    }
    for (int i = 0; i < rows * UNIT_OUTPUTS; i++)
        out[i] = chains[i] + chains[ODD + i];
}

#endif
