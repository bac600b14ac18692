/* Products with q8 and q4 (formats.h), of up to MAX_ROWS rows. The weights are the unsigned factors, q + 128 or q + 8, so
 * the sum of a block is too large by 128 or 8 times the sum of its activations, which struct quantised stores for correction.
 * AVX-512 without VNNI uses the form of AVX2, because its 16-bit products have no signed form. NEON's products of bytes are
 * signed, so q8 needs no correction there. */
#include <stdint.h>
#include <string.h>

#include "common/base/float.h"
#include "kernels/cpu/fetch.h"
#include "kernels/cpu/unit.h"
#include "kernels/cpu/vector.h"

#define INLINE static inline __attribute__((always_inline))

enum { GROUPS = BLOCK_INPUTS / 4 };

/* Rows with a product function of their own, and the weights that several sets of such rows use one after the other. */
enum { SET_ROWS = 8, CHUNK_BYTES = 9216 };

INLINE size_t block_bytes(enum weight_format format) { return format == FORMAT_Q8 ? Q8_BLOCK_BYTES : Q4_BLOCK_BYTES; }

/* Returns the correction of a block's sum for the offset of its weights. */
INLINE int32_t block_start(enum weight_format format, const struct quantised *in)
{
    return (in->sum[0] + in->sum[1]) * (format == FORMAT_Q8 ? -128 : -8);
}

#if defined(ISA_VECTORS)

/* Returns four activations, to be multiplied with four weights of every output. */
INLINE int32_t four(const struct quantised *in, int group)
{
    int32_t value;
    memcpy(&value, in->q + group * 4, sizeof value);
    return value;
}

/* The blocks of one call, and how far ahead in bytes it prefetches (fetch_after). If several sets of rows use the blocks, each
 * prefetches with every `sets`-th block. */
struct span {
    int from, to;                       /* blocks from .. to-1 of the row */
    int set, sets;
    size_t near, far;
};

/* Prefetches the two lines of a group of inputs: for q8 with its one group, for q4 one line with each of its two groups. */
INLINE void fetch_group(enum weight_format format, int group, const unsigned char *step, const struct span *span)
{
    if (format == FORMAT_Q8 || group % 2 == 0)
        fetch_after(step, span->near, span->far);
    if (format == FORMAT_Q8 || group % 2)
        fetch_after(step + 64, span->near, span->far);
}

/* Rows that are processed together per block, so that their sums and factors fit into the registers. On AVX-512, sums of 7 and
 * 8 rows stay in memory, which costs less than decoding the weights again. */
#if defined(ISA_VNNI)

#define TOGETHER(rows) (rows)

enum { WIDTH = 16 };
typedef __m512 floats;
typedef __m512i integers;

INLINE floats floats_zero(void) { return _mm512_setzero_ps(); }
INLINE floats floats_load(const float *at) { return _mm512_loadu_ps(at); }
INLINE void floats_store(float *at, floats a) { _mm512_storeu_ps(at, a); }
INLINE floats floats_halves(const unsigned char *at) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at)); }

/* Returns sum + (float)count * (weight * in). */
INLINE floats floats_block(integers count, floats weight, float in, floats sum)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(count), _mm512_mul_ps(weight, _mm512_set1_ps(in)), sum);
}

/* Returns the lower or the upper half of every byte. */
INLINE integers halves(integers bytes, bool upper)
{
    const integers mask = _mm512_set1_epi8(15);
#if defined(__GFNI__)
    if (upper)
        return _mm512_gf2p8affine_epi64_epi8(bytes, _mm512_set1_epi64(0x1020408000000000), 0);
#endif
    return _mm512_and_si512(upper ? _mm512_srli_epi16(bytes, 4) : bytes, mask);
}

INLINE void block_counts(enum weight_format format, int rows, const struct span *fetch, const unsigned char *block,
                         const struct quantised *const *in, integers (*count)[UNIT_OUTPUTS / WIDTH])
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        count[r][0] = count[r][1] = _mm512_set1_epi32(block_start(format, in[r]));
    }
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) {
        const unsigned char *at = block + (format == FORMAT_Q8 ? g : g / 2) * UNIT_STEP_BYTES;
        integers first = _mm512_loadu_si512((const void *)at), second = _mm512_loadu_si512((const void *)(at + 64));
        if (format == FORMAT_Q4) {
            first = halves(first, g % 2);
            second = halves(second, g % 2);
        }
        if (fetch)
            fetch_group(format, g, at, fetch);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            integers x = _mm512_set1_epi32(four(in[r], g));
            count[r][0] = _mm512_dpbusd_epi32(count[r][0], first, x);
            count[r][1] = _mm512_dpbusd_epi32(count[r][1], second, x);
        }
    }
}

#elif defined(ISA_NEON)

#define TOGETHER(rows) ((rows) == 1 ? 1 : 2)

enum { WIDTH = 4 };
typedef float32x4_t floats;
typedef int32x4_t integers;

INLINE floats floats_zero(void) { return vdupq_n_f32(0); }
INLINE floats floats_load(const float *at) { return vld1q_f32(at); }
INLINE void floats_store(float *at, floats a) { vst1q_f32(at, a); }
INLINE floats floats_halves(const unsigned char *at) { return vector_half(at); }

INLINE floats floats_block(integers count, floats weight, float in, floats sum)
{
    return vfmaq_f32(sum, vcvtq_f32_s32(count), vmulq_f32(weight, vdupq_n_f32(in)));
}

INLINE void block_counts(enum weight_format format, int rows, const struct span *fetch, const unsigned char *block,
                         const struct quantised *const *in, integers (*count)[UNIT_OUTPUTS / WIDTH])
{
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < UNIT_OUTPUTS / WIDTH; v++)
            count[r][v] = vdupq_n_s32(format == FORMAT_Q8 ? 0 : block_start(format, in[r]));
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) {
        const unsigned char *at = block + (format == FORMAT_Q8 ? g : g / 2) * UNIT_STEP_BYTES;
        int8x16_t x[2];
        if (fetch)
            fetch_group(format, g, at, fetch);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            x[r] = vreinterpretq_s8_s32(vdupq_n_s32(four(in[r], g)));
#pragma GCC unroll 8
        for (int v = 0; v < UNIT_OUTPUTS / WIDTH; v++) {
            uint8x16_t w = vld1q_u8(at + v * 16);
            if (format == FORMAT_Q8)
                w = veorq_u8(w, vdupq_n_u8(128));
            else
                w = g % 2 ? vshrq_n_u8(w, 4) : vandq_u8(w, vdupq_n_u8(15));
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                count[r][v] = vdotq_s32(count[r][v], vreinterpretq_s8_u8(w), x[r]);
        }
    }
}

#else

#define TOGETHER(rows) ((rows) == 1 ? 1 : 2)

enum { WIDTH = 8 };
typedef __m256 floats;
typedef __m256i integers;

INLINE floats floats_zero(void) { return _mm256_setzero_ps(); }
INLINE floats floats_load(const float *at) { return _mm256_loadu_ps(at); }
INLINE void floats_store(float *at, floats a) { _mm256_storeu_ps(at, a); }
INLINE floats floats_halves(const unsigned char *at) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)at)); }

INLINE floats floats_block(integers count, floats weight, float in, floats sum)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(count), _mm256_mul_ps(weight, _mm256_set1_ps(in)), sum);
}

/* q8: |w| * (x with the sign of w), because the 16-bit sums of two products would overflow with q + 128: |w| <= 128 and |x| <=
 * 127 give 32512. q4: all 8 sums of a block fit into 16 bits: 8 * 2 * 15 * 127 = 30480. */
INLINE void block_counts(enum weight_format format, int rows, const struct span *fetch, const unsigned char *block,
                         const struct quantised *const *in, integers (*count)[UNIT_OUTPUTS / WIDTH])
{
    const integers ones = _mm256_set1_epi16(1), mask = _mm256_set1_epi8(15), sign = _mm256_set1_epi8(-128);
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < UNIT_OUTPUTS / WIDTH; v++)
            count[r][v] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) {
        const unsigned char *at = block + (format == FORMAT_Q8 ? g : g / 2) * UNIT_STEP_BYTES;
        integers x[2];
        if (fetch)
            fetch_group(format, g, at, fetch);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            x[r] = _mm256_set1_epi32(four(in[r], g));
#pragma GCC unroll 4
        for (int v = 0; v < UNIT_OUTPUTS / WIDTH; v++) {
            integers w = _mm256_loadu_si256((const void *)(at + v * 32));
            if (format == FORMAT_Q8) {
                w = _mm256_xor_si256(w, sign);
                integers magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 2
                for (int r = 0; r < rows; r++) {
                    integers two = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x[r], w));
                    count[r][v] = _mm256_add_epi32(count[r][v], _mm256_madd_epi16(two, ones));
                }
            } else {
                w = _mm256_and_si256(g % 2 ? _mm256_srli_epi16(w, 4) : w, mask);
#pragma GCC unroll 2
                for (int r = 0; r < rows; r++)
                    count[r][v] = _mm256_add_epi16(count[r][v], _mm256_maddubs_epi16(w, x[r]));
            }
        }
    }
    if (format == FORMAT_Q4)
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) {
            integers start = _mm256_set1_epi32(block_start(format, in[r]));
#pragma GCC unroll 4
            for (int v = 0; v < UNIT_OUTPUTS / WIDTH; v++)
                count[r][v] = _mm256_add_epi32(_mm256_madd_epi16(count[r][v], ones), start);
        }
}

#endif

enum { VECTORS = UNIT_OUTPUTS / WIDTH };

/* Adds the block's products to the sums of rows `first` .. `first + rows`. fetch: NULL if nothing is prefetched. */
INLINE void block_product(enum weight_format format, int rows, int first, const struct span *fetch, const unsigned char *block,
                          int number, const void *const *in, floats (*sum)[VECTORS])
{
    const unsigned char *scale = block + block_bytes(format) - BLOCK_SCALE_BYTES;
    const struct quantised *x[SET_ROWS];
    integers count[SET_ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        x[r] = (const struct quantised *)in[first + r] + number;
    block_counts(format, rows, fetch, block, x, count);
    if (fetch)
        fetch_after(scale, fetch->near, fetch->far);
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) {
        floats weight = floats_halves(scale + v * WIDTH * 2);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            sum[first + r][v] = floats_block(count[r][v], weight, x[r]->scale, sum[first + r][v]);
    }
}

/* Adds the products of the span to `out`, the sums so far, or begins the sums. rows is a constant at each use, so that small
 * arrays become registers. */
INLINE void product(enum weight_format format, int rows, const struct span *given, const unsigned char *unit,
                    const void *const *in, float *out)
{
    const struct span whole = {0, given->to, 0, 1, FETCH_NEAR, FETCH_FAR};
    const struct span *const span = rows <= SET_ROWS / 2 - 1 ? &whole : given;      /* sets of several are larger */
    floats sum[SET_ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = span->from ? floats_load(out + r * UNIT_OUTPUTS + v * WIDTH) : floats_zero();
    for (int b = span->from, turn = span->set; b < span->to; b++, turn = turn ? turn - 1 : span->sets - 1) {
        const unsigned char *block = unit + (size_t)b * block_bytes(format);
#pragma GCC unroll 4
        for (int first = 0; first < rows; first += TOGETHER(rows)) {
            const int some = rows - first < TOGETHER(rows) ? rows - first : TOGETHER(rows);
            block_product(format, some, first, first == 0 && turn == 0 ? span : NULL, block, b, in, sum);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++)
            floats_store(out + r * UNIT_OUTPUTS + v * WIDTH, sum[r][v]);
}

#define PRODUCT(format, rows) \
    static void product_##format##_##rows(const struct span *span, const unsigned char *unit, const void *const *in, \
                                          float *out) \
    { \
        product(format, rows, span, unit, in, out); \
    }
#define PRODUCTS(format) \
    PRODUCT(format, 1) PRODUCT(format, 2) PRODUCT(format, 3) PRODUCT(format, 4) \
    PRODUCT(format, 5) PRODUCT(format, 6) PRODUCT(format, 7) PRODUCT(format, 8)
#define PRODUCT_NAMES(format) \
    {product_##format##_1, product_##format##_2, product_##format##_3, product_##format##_4, \
     product_##format##_5, product_##format##_6, product_##format##_7, product_##format##_8}

PRODUCTS(FORMAT_Q8)
PRODUCTS(FORMAT_Q4)

typedef void product_function(const struct span *span, const unsigned char *unit, const void *const *in, float *out);

static product_function *const PRODUCT_TABLE[][SET_ROWS] = {PRODUCT_NAMES(FORMAT_Q8), PRODUCT_NAMES(FORMAT_Q4)};

/* Rows in one set read the unit as one stream. With more, inputs are processed in chunks that stay in the first-level cache
 * while set after set uses them. */
void unit_product_quantised(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in,
                            float *out)
{
    const int blocks = quantised_blocks(inputs), sets = (rows + SET_ROWS - 1) / SET_ROWS;
    product_function *const *table = PRODUCT_TABLE[format - FORMAT_Q8];
    if (sets == 1) {
        table[rows - 1](&(struct span){0, blocks, 0, 1, FETCH_NEAR, FETCH_FAR}, unit, in, out);
        return;
    }
    const int chunk = CHUNK_BYTES / (int)block_bytes(format);
    const size_t bytes = (size_t)chunk * block_bytes(format);
    for (int from = 0; from < blocks; from += chunk)
        for (int set = 0; set < sets; set++) {
            const int first = pass_first(rows, sets, set), count = pass_first(rows, sets, set + 1) - first;
            const struct span span = {from, blocks - from < chunk ? blocks : from + chunk, set, sets, bytes, 2 * bytes};
            table[count - 1](&span, unit, in + first, out + first * UNIT_OUTPUTS);
        }
}

#else

/* Returns the stored weights of one group of 4 inputs of a block, [output][input]. */
static const unsigned char *group_weights(enum weight_format format, const unsigned char *block, int group, unsigned char *room)
{
    if (format == FORMAT_Q8)
        return block + group * UNIT_STEP_BYTES;
    const unsigned char *pair = block + group / 2 * UNIT_STEP_BYTES;
    for (int i = 0; i < 4 * UNIT_OUTPUTS; i++)
        room[i] = group % 2 ? pair[i] >> 4 : pair[i] & 15;
    return room;
}

void unit_product_quantised(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in,
                            float *out)
{
    const unsigned char *block = unit;
    unsigned char room[4 * UNIT_OUTPUTS];
    int32_t count[MAX_ROWS][UNIT_OUTPUTS];
    memset(out, 0, (size_t)rows * UNIT_OUTPUTS * sizeof *out);
    for (int b = 0; b < quantised_blocks(inputs); b++, block += block_bytes(format)) {
        for (int r = 0; r < rows; r++)
            for (int o = 0; o < UNIT_OUTPUTS; o++)
                count[r][o] = block_start(format, (const struct quantised *)in[r] + b);
        for (int g = 0; g < GROUPS; g++) {
            const unsigned char *weight = group_weights(format, block, g, room);
            for (int r = 0; r < rows; r++) {
                const int8_t *x = ((const struct quantised *)in[r] + b)->q + g * 4;
                for (int o = 0; o < UNIT_OUTPUTS; o++)
                    count[r][o] += weight[4 * o] * x[0] + weight[4 * o + 1] * x[1] + weight[4 * o + 2] * x[2] +
                                   weight[4 * o + 3] * x[3];
            }
        }
        uint16_t scale[UNIT_OUTPUTS];
        memcpy(scale, block + block_bytes(format) - BLOCK_SCALE_BYTES, sizeof scale);
        for (int r = 0; r < rows; r++)
            for (int o = 0; o < UNIT_OUTPUTS; o++)
                out[r * UNIT_OUTPUTS + o] = __builtin_fmaf((float)count[r][o],
                    f16_to_f32(scale[o]) * ((const struct quantised *)in[r] + b)->scale, out[r * UNIT_OUTPUTS + o]);
    }
}

#endif
