/* The two products of attention for several queries that see the same contiguous positions: each key or value is loaded once
 * for all of them, and converted from the cache's format in registers. Every sum has the order of kernels/attention.h, so
 * results do not depend on the tile's shape. Keys and values of q8 are their codes; the caller applies their scales.
 *
 *     tile_scores   score[r][j] = q[r] . key j
 *     tile_shares   score[j] -> exp(scale score[j] - maximum), with maximum and sum, for ATTENTION_CHUNK scores
 *     tile_values   a[i] = sum over j, ascending, of share[r][j] * value j [i], by fused multiply-add from 0; then joined:
 *                   out[r][i] = fma(out[r][i], before[r], a[i] * now[r]), or a[i] where first[r]
 *
 * for r < rows (1, 2, 4 or 8), j < count, i < width. */
#ifndef MOE_KERNELS_CPU_ATTENTION_TILE_H
#define MOE_KERNELS_CPU_ATTENTION_TILE_H

#include <stdbool.h>

#include "kernels/cpu/fetch.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vector.h"
#include "kernels/cpu/widen.h"
#include "kernels/plain/math.h"

/* Loops with `unroll 1` contain large inline functions: unrolled, each iteration would get its own copy. */
#define TILE_INLINE static inline __attribute__((always_inline))

enum { TILE_ROWS = 8 };

/* Keys or values at contiguous positions. */
struct tile_rows {
    const unsigned char *at;
    enum cache_format format;
    int width, count;
    const unsigned char *next;          /* memory that is needed after them and is prefetched meanwhile; NULL: none */
    size_t next_step;                   /* bytes of that memory per position of this tile */
    const float *scale;                 /* scales of the positions; NULL: none */
};

/* Returns how far `next` advances for each line of the rows. */
static inline size_t tile_pace(const struct tile_rows *rows)
{
    return 64 * rows->next_step / ((size_t)rows->width * cache_size(rows->format));
}

/* Factors that join the values of a chunk to the result of the chunks before. */
struct tile_join {
    float before[TILE_ROWS], now[TILE_ROWS];
    bool first[TILE_ROWS];
};

#if defined(ISA_AVX512)

/* Minimum number of queries for which a chunk is converted to f32 once for all tiles. */
enum { TILE_WIDEN_FROM = 17 };

TILE_INLINE __m512 tile_load(enum cache_format format, const unsigned char *at)
{
    if (format == CACHE_F32)
        return _mm512_loadu_ps((const void *)at);
    if (format == CACHE_Q8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at)));
    const __m256i half = _mm256_loadu_si256((const void *)at);
    return format == CACHE_F16 ? _mm512_cvtph_ps(half)
        : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Loads the values of the lanes in `mask`; the others are 0. */
TILE_INLINE __m512 tile_load_part(enum cache_format format, const unsigned char *at, __mmask16 mask)
{
    if (format == CACHE_F32)
        return _mm512_maskz_loadu_ps(mask, (const void *)at);
    if (format == CACHE_Q8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, (const void *)at)));
    const __m256i half = _mm256_maskz_loadu_epi16(mask, (const void *)at);
    return format == CACHE_F16 ? _mm512_cvtph_ps(half)
        : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Sums each of 16 vectors: lane 4p + e of the result is the sum of sum[4e + p]. */
static inline __m512 tile_reduce(const __m512 *sum)
{
    __m512 eight[8], four[4], two[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(sum[2 * i], sum[2 * i + 1], 0x44),
                                 _mm512_shuffle_f32x4(sum[2 * i], sum[2 * i + 1], 0xee));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(eight[2 * i], eight[2 * i + 1], 0x88),
                                _mm512_shuffle_f32x4(eight[2 * i], eight[2 * i + 1], 0xdd));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        two[i] = _mm512_add_ps(_mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                               _mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
    return _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xdd));
}

/* Sum n = 4e + p of a tile belongs to one query and one key, so that each query's scores are adjacent after tile_reduce:
 * 1 query: key 4p + e;   2: query p / 2, key 4 (p % 2) + e;   4: query p, key e;   8: query p + 4 (e / 2), key e % 2. */
TILE_INLINE int tile_row(int n, int rows)
{
    const int p = n % 4, e = n / 4;
    return rows == 8 ? p + e / 2 * 4 : p / (4 / rows);
}

TILE_INLINE int tile_key(int n, int rows)
{
    const int p = n % 4, e = n / 4;
    return rows == 8 ? e % 2 : p % (4 / rows) * 4 + e;
}

TILE_INLINE int tile_number(int row, int key, int rows)
{
    if (rows == 8)
        return row % 4 + 4 * (row / 4 * 2 + key);
    return row * (4 / rows) + key / 4 + key % 4 * 4;
}

TILE_INLINE void tile_spread(__m512 sum, int rows, float *const *score, int j)
{
    if (rows == 1)
        _mm512_storeu_ps(score[0] + j, sum);
    else if (rows == 2) {
        _mm256_storeu_ps(score[0] + j, _mm512_castps512_ps256(sum));
        _mm256_storeu_ps(score[1] + j, _mm512_extractf32x8_ps(sum, 1));
    } else {
        const __m128 part[4] = {_mm512_castps512_ps128(sum), _mm512_extractf32x4_ps(sum, 1), _mm512_extractf32x4_ps(sum, 2),
                                _mm512_extractf32x4_ps(sum, 3)};
#pragma GCC unroll 4
        for (int p = 0; p < 4; p++)
            if (rows == 4)
                _mm_storeu_ps(score[p] + j, part[p]);
            else {
                _mm_storel_pi((__m64 *)(void *)(score[p] + j), part[p]);
                _mm_storeh_pi((__m64 *)(void *)(score[p + 4] + j), part[p]);
            }
    }
}

/* Computes 16 dot products: `rows` queries with 16 / rows keys. Lane 4p + e of the result is the product of n = 4e + p. */
TILE_INLINE __m512 tile_dots(enum cache_format format, const float *const *q, const unsigned char *k, int width, int rows,
                             bool ahead, uintptr_t far, size_t pace)
{
    const int whole = width & ~15, keys = 16 / rows, lines = keys * (int)cache_size(format) / 4;
    const size_t size = cache_size(format), step = (size_t)width * size, near = (size_t)keys * step;
    const __mmask16 rest = (__mmask16)((1u << (width & 15)) - 1);
    uintptr_t next = (uintptr_t)k + near;                        /* the next tile; all lines of this one are needed now */
    __m512 sum[16], own[TILE_ROWS];
#pragma GCC unroll 16
    for (int n = 0; n < 16; n++)
        sum[n] = _mm512_setzero_ps();
    for (int i = 0; i < whole; i += 16) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
        {
            own[r] = _mm512_loadu_ps(q[r] + i);
            __asm__("" : "+v"(own[r]));                         /* otherwise each product loads it again */
        }
#pragma GCC unroll 16
        for (int key = 0; key < keys; key++) {
            const __m512 other = tile_load(format, k + (size_t)key * step + (size_t)i * size);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                const int n = tile_number(r, key, rows);
                if (ahead && (n < lines || (!lines && !n && i % 32 == 0))) {
                    fetch_two(next, far);
                    next += 64;
                    far += pace;
                }
                sum[n] = _mm512_fmadd_ps(own[r], other, sum[n]);
            }
        }
    }
    if (rest) {
#pragma GCC unroll 16
        for (int n = 0; n < 16; n++)
            sum[n] = _mm512_mask3_fmadd_ps(
                _mm512_maskz_loadu_ps(rest, q[tile_row(n, rows)] + whole),
                tile_load_part(format, k + (size_t)tile_key(n, rows) * step + (size_t)whole * size, rest), sum[n], rest);
    }
    return tile_reduce(sum);
}

/* Adds the 16 lanes: 8+8, 4+4, 2+2, 1+1. */
static inline float tile_sum(__m512 a)
{
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

TILE_INLINE float tile_dot(enum cache_format format, const float *q, const unsigned char *k, int width)
{
    const __mmask16 rest = (__mmask16)((1u << (width & 15)) - 1);
    const size_t size = cache_size(format);
    __m512 sum = _mm512_setzero_ps();
    int i = 0;
    for (; i + 16 <= width; i += 16)
        sum = _mm512_fmadd_ps(_mm512_loadu_ps(q + i), tile_load(format, k + (size_t)i * size), sum);
    if (rest)
        sum = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(rest, q + i), tile_load_part(format, k + (size_t)i * size, rest), sum,
                                    rest);
    return tile_sum(sum);
}

TILE_INLINE void tile_scores_of(enum cache_format format, int rows, const float *const *q, const struct tile_rows *keys,
                                float *const *score)
{
    const int width = keys->width, each = 16 / rows;
    const size_t step = (size_t)width * cache_size(format), pace = tile_pace(keys);
    int j = 0;
    for (; j + each <= keys->count; j += each) {
        const unsigned char *k = keys->at + (size_t)j * step;
        const uintptr_t far = (uintptr_t)keys->next + (size_t)j * keys->next_step;
        const __m512 sum = keys->next ? tile_dots(format, q, k, width, rows, true, far, pace)
            : tile_dots(format, q, k, width, rows, false, 0, 0);
        tile_spread(sum, rows, score, j);
    }
    for (; j < keys->count; j++)
#pragma GCC unroll 1
        for (int r = 0; r < rows; r++)
            score[r][j] = tile_dot(format, q[r], keys->at + (size_t)j * step, width);
}

/* Computes plain_exp (kernels/plain/math.h) of numbers that are at most 0, -infinity included, or NaN; bit-identical: the power
 * of two is exact, and a result below the normal range is rounded once. */
TILE_INLINE __m512 tile_exp(__m512 x)
{
    const __m512 magic = _mm512_set1_ps(12582912.0f);
    x = _mm512_max_ps(_mm512_set1_ps(-110.0f), x);              /* in this order a NaN stays NaN */
    const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), magic), magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e4p-1f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.7f7d1cp-20f), r);
    __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(0x1.6d11fep-10f), r, _mm512_set1_ps(0x1.120c62p-7f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.555518p-5f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.5554dcp-3f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.5f));
    const __m512 power = _mm512_add_ps(_mm512_set1_ps(1), _mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r));
    return _mm512_scalef_ps(power, n);
}

static inline void tile_shares(float *share, int visible, float scale, float *max, float *sum)
{
    __m512 part[ATTENTION_CHUNK / 16], all;
#pragma GCC unroll 4
    for (int i = 0; i < ATTENTION_CHUNK / 16; i++) {
        const int left = visible - 16 * i;
        const __mmask16 mask = (__mmask16)(left >= 16 ? 0xffff : left > 0 ? (1 << left) - 1 : 0);
        part[i] = _mm512_mask_mul_ps(_mm512_set1_ps(-INFINITY), mask, _mm512_loadu_ps(share + 16 * i), _mm512_set1_ps(scale));
    }
    all = _mm512_max_ps(_mm512_max_ps(part[3], part[2]), _mm512_max_ps(part[1], part[0]));
    *max = _mm512_reduce_max_ps(all);
    all = _mm512_set1_ps(*max);
#pragma GCC unroll 4
    for (int i = 0; i < ATTENTION_CHUNK / 16; i++) {
        part[i] = tile_exp(_mm512_sub_ps(part[i], all));
        _mm512_storeu_ps(share + 16 * i, part[i]);
    }
    *sum = tile_sum(_mm512_add_ps(_mm512_add_ps(_mm512_add_ps(part[0], part[1]), part[2]), part[3]));
}

/* Sets before = exp(max - the new maximum), now = exp(chunk_max - the new maximum), and max to the new maximum. */
static inline void tile_factors(struct tile_join *join, float *max, const float *chunk_max)
{
    const __m256 old = _mm256_loadu_ps(max), own = _mm256_loadu_ps(chunk_max), new = _mm256_max_ps(old, own);
    const __m512 both = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_sub_ps(old, new)), _mm256_sub_ps(own, new), 1);
    const __m512 factor = tile_exp(both);
    _mm256_storeu_ps(join->before, _mm512_castps512_ps256(factor));
    _mm256_storeu_ps(join->now, _mm512_extractf32x8_ps(factor, 1));
    _mm256_storeu_ps(max, new);
}

#elif defined(ISA_AVX2)

enum { TILE_WIDEN_FROM = 3 };

TILE_INLINE __m256 tile_load(enum cache_format format, const unsigned char *at)
{
    if (format == CACHE_F32)
        return _mm256_loadu_ps((const void *)at);
    if (format == CACHE_Q8)
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)at)));
    const __m128i half = _mm_loadu_si128((const void *)at);
    return format == CACHE_F16 ? _mm256_cvtph_ps(half)
        : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* Adds the products of the last `count` columns, fewer than 16, to the 16 partial sums. Not inlined: rare, and compiled for
 * every format, number of rows, and key. */
static __attribute__((noinline)) void tile_last(enum cache_format format, const float *q, const unsigned char *k, int count,
                                                __m256 *sum)
{
    float wide[16], lane[16];
    widen(format, k, (size_t)count, wide);
    _mm256_storeu_ps(lane, sum[0]);
    _mm256_storeu_ps(lane + 8, sum[1]);
    for (int i = 0; i < count; i++)
        lane[i] = __builtin_fmaf(q[i], wide[i], lane[i]);
    sum[0] = _mm256_loadu_ps(lane);
    sum[1] = _mm256_loadu_ps(lane + 8);
}

/* Computes four partial sums (lanes_four) of each q . k, for `rows` queries with `keys` keys: rows * keys is at most 4. */
TILE_INLINE void tile_fours(enum cache_format format, const float *const *q, int rows, const unsigned char *k, int keys,
                            int width, uintptr_t far, size_t pace, __m128 *four)
{
    const int whole = width & ~15;
    const size_t size = cache_size(format), step = (size_t)width * size;
    __m256 low[4], high[4];
#pragma GCC unroll 4
    for (int n = 0; n < rows * keys; n++)
        low[n] = high[n] = _mm256_setzero_ps();
    for (int i = 0; i < whole; i += 16) {
        const unsigned char *from = k + (size_t)i * size;
        for (int n = 0; far && n < keys * (int)size / 4; n++, far += pace)
            fetch_two((uintptr_t)k + (size_t)keys * step + (size_t)(i / 16 * (keys * (int)size / 4) + n) * 64, far);
#pragma GCC unroll 4
        for (int n = 0; n < rows * keys; n++)
            low[n] = _mm256_fmadd_ps(_mm256_loadu_ps(q[n / keys] + i), tile_load(format, from + (size_t)(n % keys) * step),
                                     low[n]);
#pragma GCC unroll 4
        for (int n = 0; n < rows * keys; n++)
            high[n] = _mm256_fmadd_ps(_mm256_loadu_ps(q[n / keys] + i + 8),
                                      tile_load(format, from + (size_t)(n % keys) * step + 8 * size), high[n]);
    }
#pragma GCC unroll 4
    for (int n = 0; n < rows * keys; n++) {
        __m256 both[2] = {low[n], high[n]};
        if (whole < width)
            tile_last(format, q[n / keys] + whole, k + (size_t)(n % keys) * step + (size_t)whole * size, width - whole, both);
        four[n] = lanes_four(both[0], both[1], NULL, NULL, 0);
    }
}

TILE_INLINE void tile_scores_of(enum cache_format format, int rows, const float *const *q, const struct tile_rows *keys,
                                float *const *score)
{
    const int width = keys->width, each = rows == 1 ? 4 : 2;
    const size_t step = (size_t)width * cache_size(format), pace = tile_pace(keys);
    int j = 0;
    for (; j + each <= keys->count; j += each)
#pragma GCC unroll 1
        for (int first = 0; first < rows; first += 2) {
            const uintptr_t far = keys->next && !first ? (uintptr_t)keys->next + (size_t)j * keys->next_step : 0;
            __m128 four[4];
            tile_fours(format, q + first, rows == 1 ? 1 : 2, keys->at + (size_t)j * step, each, width, far, pace, four);
            _MM_TRANSPOSE4_PS(four[0], four[1], four[2], four[3]);
            const __m128 sum = _mm_add_ps(_mm_add_ps(four[0], four[2]), _mm_add_ps(four[1], four[3]));
            _mm_storel_pi((__m64 *)(void *)(score[first] + j), sum);
            _mm_storeh_pi((__m64 *)(void *)(rows == 1 ? score[0] + j + 2 : score[first + 1] + j), sum);
        }
    for (; j < keys->count; j++)
#pragma GCC unroll 1
        for (int r = 0; r < rows; r++) {
            __m128 four;
            tile_fours(format, q + r, 1, keys->at + (size_t)j * step, 1, width, 0, 0, &four);
            const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            score[r][j] = _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
        }
}

#else

enum { TILE_WIDEN_FROM = 1 };

#if defined(ISA_NEON)
TILE_INLINE vector tile_load(enum cache_format format, const unsigned char *at)
{
    (void)format;                                               /* always f32 (TILE_WIDEN_FROM) */
    return vector_load((const float *)(const void *)at);
}
#endif

TILE_INLINE void tile_scores_of(enum cache_format format, int rows, const float *const *q, const struct tile_rows *keys,
                                float *const *score)
{
    const size_t step = (size_t)keys->width, offset[4] = {0, step, 2 * step, 3 * step};
    const float *k = (const float *)(const void *)keys->at;
    int j = 0;
    (void)format;
    for (; j + 4 <= keys->count; j += 4)
        for (int r = 0; r < rows; r++)
            lanes_dot4(q[r], k + (size_t)j * step, offset, keys->width, score[r] + j);
    for (; j < keys->count; j++)
        for (int r = 0; r < rows; r++)
            score[r][j] = lanes_dot(q[r], k + (size_t)j * step, keys->width);
}

#endif

#if !defined(ISA_AVX512)

static inline void tile_shares(float *share, int visible, float scale, float *max, float *sum)
{
    float lane[16];
    for (int j = 0; j < visible; j++)
        share[j] *= scale;
    for (int j = visible; j < ATTENTION_CHUNK; j++)
        share[j] = -INFINITY;                         /* exp is 0, and adding 0 does not change a sum of non-negative numbers */
    for (int i = 0; i < 16; i++)
        lane[i] = share[i];
    for (int j = 16; j < ATTENTION_CHUNK; j += 16)
        for (int i = 0; i < 16; i++)
            lane[i] = share[j + i] > lane[i] ? share[j + i] : lane[i];
    *max = lane[0];
    for (int i = 1; i < 16; i++)
        *max = lane[i] > *max ? lane[i] : *max;
    for (int j = 0; j < ATTENTION_CHUNK; j++)
        share[j] = plain_exp(share[j] - *max);
    for (int i = 0; i < 16; i++)
        lane[i] = ((share[i] + share[i + 16]) + share[i + 32]) + share[i + 48];
    *sum = lanes_sum(lane);
}

/* Sets before = exp(max - the new maximum), now = exp(chunk_max - the new maximum), and max to the new maximum. */
static inline void tile_factors(struct tile_join *join, float *max, const float *chunk_max)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        const float old = max[r];
        max[r] = old > chunk_max[r] ? old : chunk_max[r];
        join->before[r] = plain_exp(old - max[r]);
        join->now[r] = plain_exp(chunk_max[r] - max[r]);
    }
}

#endif

#if defined(ISA_VECTORS)

/* Computes `vectors` * LANES columns of the output, for all rows. ahead: prefetch. */
TILE_INLINE void tile_strip(enum cache_format format, int rows, int vectors, const struct tile_rows *values,
                            const float *const *share, const struct tile_join *join, float *const *out, int at, bool ahead)
{
    enum { SOON = 4 };                                           /* positions */
    const size_t size = cache_size(format), step = (size_t)values->width * size, pace = tile_pace(values);
    const int lines = vectors * LANES * (int)size / 64;
    const unsigned char *v = values->at + (size_t)at * size;
    uintptr_t far = (uintptr_t)values->next + (size_t)(at * values->count) * size / 64 * pace;
    vector sum[16];
#pragma GCC unroll 16
    for (int n = 0; n < rows * vectors; n++)
        sum[n] = vector_zero();
    for (int j = 0; j < values->count; j++, v += step) {
#pragma GCC unroll 16
        for (int n = 0; n < rows * vectors; n++) {
            if (ahead && (n < lines || (!lines && !n && j % 2 == 0))) {
                fetch_two((uintptr_t)v + SOON * step + (size_t)n * 64, far);
                far += pace;
            }
            sum[n] = vector_fma(vector_all(share[n / vectors][j]), tile_load(format, v + (size_t)(n % vectors * LANES) * size),
                                sum[n]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++) {
            float *to = out[r] + at + i * LANES;
            vector a = sum[r * vectors + i];
            if (!join->first[r])
                a = vector_fma(vector_load(to), vector_all(join->before[r]), vector_mul(a, vector_all(join->now[r])));
            vector_store(to, a);
        }
}

TILE_INLINE int tile_strips(enum cache_format format, int rows, int vectors, const struct tile_rows *values,
                            const float *const *share, const struct tile_join *join, float *const *out)
{
    int i = 0;
    for (; i + vectors * LANES <= values->width; i += vectors * LANES)
        if (values->next)
            tile_strip(format, rows, vectors, values, share, join, out, i, true);
        else
            tile_strip(format, rows, vectors, values, share, join, out, i, false);
    for (; i + LANES <= values->width; i += LANES)
        tile_strip(format, rows, 1, values, share, join, out, i, false);
    return i;
}

TILE_INLINE int tile_columns(enum cache_format format, int rows, const struct tile_rows *values, const float *const *share,
                             const struct tile_join *join, float *const *out)
{
#if defined(ISA_AVX512) || defined(ISA_NEON)              /* 32 registers */
    return tile_strips(format, rows, rows == 1 ? 8 : 16 / rows, values, share, join, out);
#else
    int done = 0;
#pragma GCC unroll 1
    for (int first = 0; first < rows; first += 2) {
        struct tile_rows own = *values;
        struct tile_join part;
        own.next = first ? NULL : values->next;
        for (int r = 0; r < 2 && r < rows; r++) {
            part.before[r] = join->before[first + r];
            part.now[r] = join->now[first + r];
            part.first[r] = join->first[first + r];
        }
        done = rows == 1 ? tile_strips(format, 1, 8, &own, share, &part, out)
            : tile_strips(format, 2, 4, &own, share + first, &part, out + first);
    }
    return done;
#endif
}

#else

TILE_INLINE int tile_columns(enum cache_format format, int rows, const struct tile_rows *values, const float *const *share,
                             const struct tile_join *join, float *const *out)
{
    (void)format, (void)rows, (void)values, (void)share, (void)join, (void)out;
    return 0;
}

#endif

/* Computes the columns after the last whole vector. Not inlined: rare, and compiled for every format and number of rows. */
static __attribute__((noinline)) void tile_rest(const struct tile_rows *values, int done, int rows, const float *const *share,
                             const struct tile_join *join, float *const *out)
{
    const size_t size = cache_size(values->format), step = (size_t)values->width * size;
    const int rest = values->width - done;
    float wide[ATTENTION_HEAD_DIM_MAX], sum[ATTENTION_HEAD_DIM_MAX];
    for (int r = 0; r < rows && rest; r++) {
        for (int i = 0; i < rest; i++)
            sum[i] = 0;
        for (int j = 0; j < values->count; j++) {
            widen(values->format, values->at + (size_t)j * step + (size_t)done * size, (size_t)rest, wide);
            for (int i = 0; i < rest; i++)
                sum[i] = __builtin_fmaf(share[r][j], wide[i], sum[i]);
        }
        for (int i = 0; i < rest; i++)
            out[r][done + i] = join->first[r] ? sum[i]
                : __builtin_fmaf(out[r][done + i], join->before[r], sum[i] * join->now[r]);
    }
}

TILE_INLINE void tile_values_of(enum cache_format format, int rows, const struct tile_rows *values, const float *const *share,
                                const struct tile_join *join, float *const *out)
{
    const int done = tile_columns(format, rows, values, share, join, out);
    if (done < values->width)
        tile_rest(values, done, rows, share, join, out);
}

/* Calls an inline function once for each number of rows, and for each format, so that both are constants in it. AVX2 processes
 * any number of rows in pairs, and plain C one by one: there it is called once for one row and once for more. */
#if defined(ISA_AVX2) || defined(ISA_PLAIN)
#define TILE_FOR_ROWS(function, format, rows, ...) \
    do { \
        if ((rows) == 1) \
            function(format, 1, __VA_ARGS__); \
        else \
            function(format, rows, __VA_ARGS__); \
    } while (0)
#else
#define TILE_FOR_ROWS(function, format, rows, ...) \
    do { \
        if ((rows) == 8) \
            function(format, 8, __VA_ARGS__); \
        else if ((rows) == 4) \
            function(format, 4, __VA_ARGS__); \
        else if ((rows) == 2) \
            function(format, 2, __VA_ARGS__); \
        else \
            function(format, 1, __VA_ARGS__); \
    } while (0)
#endif

static inline void tile_scores(const float *const *q, int rows, const struct tile_rows *keys, float *const *score)
{
    if (keys->format == CACHE_F32)
        TILE_FOR_ROWS(tile_scores_of, CACHE_F32, rows, q, keys, score);
    else if (keys->format == CACHE_F16)
        TILE_FOR_ROWS(tile_scores_of, CACHE_F16, rows, q, keys, score);
    else if (keys->format == CACHE_Q8)
        TILE_FOR_ROWS(tile_scores_of, CACHE_Q8, rows, q, keys, score);
    else
        TILE_FOR_ROWS(tile_scores_of, CACHE_BF16, rows, q, keys, score);
}

static inline void tile_values(const struct tile_rows *values, const float *const *share, int rows,
                               const struct tile_join *join, float *const *out)
{
    if (values->format == CACHE_F32)
        TILE_FOR_ROWS(tile_values_of, CACHE_F32, rows, values, share, join, out);
    else if (values->format == CACHE_F16)
        TILE_FOR_ROWS(tile_values_of, CACHE_F16, rows, values, share, join, out);
    else if (values->format == CACHE_Q8)
        TILE_FOR_ROWS(tile_values_of, CACHE_Q8, rows, values, share, join, out);
    else
        TILE_FOR_ROWS(tile_values_of, CACHE_BF16, rows, values, share, join, out);
}

#endif
