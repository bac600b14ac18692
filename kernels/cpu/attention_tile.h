/* The two products of attention for several queries that see the same contiguous positions: each key or value is loaded once
 * for all of them. Every sum has the order of kernels/attention.h, so results do not depend on the tile's shape.
 *
 *     tile_scores   score[r][j] = q[r] . key j       key j begins at k + j * width
 *     tile_values   out[r][i] = sum over j, ascending, of share[r][j] * value j [i], by fused multiply-add from 0
 *
 * for r < rows (1, 2 or 4), j < count, i < width. */
#ifndef MOE_KERNELS_CPU_ATTENTION_TILE_H
#define MOE_KERNELS_CPU_ATTENTION_TILE_H

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vector.h"

enum { TILE_ROWS = 4 };

#if defined(ISA_AVX512)

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

/* Computes 16 dot products: `rows` queries with 16 / rows keys. */
static inline __attribute__((always_inline)) __m512 tile_dots(const float *const *q, const float *k, int width, int rows)
{
    const int whole = width & ~15, apart = 4 / rows;        /* consecutive groups of four belong to the keys of one query */
    const __mmask16 rest = (__mmask16)((1u << (width & 15)) - 1);
    __m512 sum[16];
#pragma GCC unroll 16
    for (int n = 0; n < 16; n++)
        sum[n] = _mm512_setzero_ps();
    for (int i = 0; i < whole; i += 16) {
#pragma GCC unroll 16
        for (int n = 0; n < 16; n++) {                      /* n = 4 e + p, as in tile_reduce */
            const int p = n % 4, e = n / 4;
            sum[n] = _mm512_fmadd_ps(_mm512_loadu_ps(q[p / apart] + i),
                                     _mm512_loadu_ps(k + (size_t)(p % apart * 4 + e) * (size_t)width + i), sum[n]);
        }
    }
    if (rest) {
#pragma GCC unroll 16
        for (int n = 0; n < 16; n++) {
            const int p = n % 4, e = n / 4;
            const float *key = k + (size_t)(p % apart * 4 + e) * (size_t)width + whole;
            sum[n] = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(rest, q[p / apart] + whole), _mm512_maskz_loadu_ps(rest, key),
                                           sum[n], rest);
        }
    }
    return tile_reduce(sum);
}

static inline void tile_scores(const float *const *q, int rows, const float *k, int width, int count, float *const *score)
{
    int j = 0, keys = 16 / rows;
    if (rows == 4)
        for (; j + 4 <= count; j += 4) {
            __m512 sum = tile_dots(q, k + (size_t)j * (size_t)width, width, 4);
            _mm_storeu_ps(score[0] + j, _mm512_castps512_ps128(sum));
            _mm_storeu_ps(score[1] + j, _mm512_extractf32x4_ps(sum, 1));
            _mm_storeu_ps(score[2] + j, _mm512_extractf32x4_ps(sum, 2));
            _mm_storeu_ps(score[3] + j, _mm512_extractf32x4_ps(sum, 3));
        }
    else if (rows == 2)
        for (; j + 8 <= count; j += keys) {
            __m512 sum = tile_dots(q, k + (size_t)j * (size_t)width, width, 2);
            _mm256_storeu_ps(score[0] + j, _mm512_castps512_ps256(sum));
            _mm256_storeu_ps(score[1] + j, _mm512_extractf32x8_ps(sum, 1));
        }
    else
        for (; j + 16 <= count; j += keys)
            _mm512_storeu_ps(score[0] + j, tile_dots(q, k + (size_t)j * (size_t)width, width, 1));
    for (; j < count; j++)
        for (int r = 0; r < rows; r++)
            score[r][j] = lanes_dot(q[r], k + (size_t)j * (size_t)width, width);
}

#elif defined(ISA_AVX2)

static inline void tile_scores(const float *const *q, int rows, const float *k, int width, int count, float *const *score)
{
    const int whole = width & ~15;
    for (int first = 0; first + 2 <= rows; first += 2)
        for (int j = 0; j + 2 <= count; j += 2) {
            const float *key = k + (size_t)j * (size_t)width;
            __m256 low[4], high[4];
            __m128 four[4];
#pragma GCC unroll 4
            for (int n = 0; n < 4; n++)
                low[n] = high[n] = _mm256_setzero_ps();
            for (int i = 0; i < whole; i += 16) {
#pragma GCC unroll 4
                for (int n = 0; n < 4; n++)
                    low[n] = _mm256_fmadd_ps(_mm256_loadu_ps(q[first + n / 2] + i),
                                             _mm256_loadu_ps(key + (size_t)(n % 2) * (size_t)width + i), low[n]);
#pragma GCC unroll 4
                for (int n = 0; n < 4; n++)
                    high[n] = _mm256_fmadd_ps(_mm256_loadu_ps(q[first + n / 2] + i + 8),
                                              _mm256_loadu_ps(key + (size_t)(n % 2) * (size_t)width + i + 8), high[n]);
            }
#pragma GCC unroll 4
            for (int n = 0; n < 4; n++)
                four[n] = lanes_four(low[n], high[n], q[first + n / 2], key + (size_t)(n % 2) * (size_t)width, width);
            _MM_TRANSPOSE4_PS(four[0], four[1], four[2], four[3]);
            __m128 sum = _mm_add_ps(_mm_add_ps(four[0], four[2]), _mm_add_ps(four[1], four[3]));
            _mm_storel_pi((__m64 *)(void *)(score[first] + j), sum);
            _mm_storeh_pi((__m64 *)(void *)(score[first + 1] + j), sum);
        }
    for (int r = 0; r < rows; r++) {
        int j = rows > 1 ? count & ~1 : 0;
        for (; j + 4 <= count; j += 4) {
            const float *key = k + (size_t)j * (size_t)width;
            const size_t step = (size_t)width, offset[4] = {0, step, 2 * step, 3 * step};
            lanes_dot4(q[r], key, offset, width, score[r] + j);
        }
        for (; j < count; j++)
            score[r][j] = lanes_dot(q[r], k + (size_t)j * (size_t)width, width);
    }
}

#elif defined(ISA_NEON)

static inline void tile_scores(const float *const *q, int rows, const float *k, int width, int count, float *const *score)
{
    const size_t step = (size_t)width, offset[4] = {0, step, 2 * step, 3 * step};
    int j = 0;
    for (; j + 4 <= count; j += 4)
        for (int r = 0; r < rows; r++)
            lanes_dot4(q[r], k + (size_t)j * step, offset, width, score[r] + j);
    for (; j < count; j++)
        for (int r = 0; r < rows; r++)
            score[r][j] = lanes_dot(q[r], k + (size_t)j * step, width);
}

#else

static inline void tile_scores(const float *const *q, int rows, const float *k, int width, int count, float *const *score)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < count; j++)
            score[r][j] = lanes_dot(q[r], k + (size_t)j * (size_t)width, width);
}

#endif

#if defined(ISA_VECTORS)

/* Computes `vectors` * LANES columns of the output, for all rows. */
static inline __attribute__((always_inline)) void tile_strip(const float *v, int width, const float *const *share, int count,
                                                             int rows, int vectors, float *const *out, int at)
{
    vector sum[16];
#pragma GCC unroll 16
    for (int n = 0; n < rows * vectors; n++)
        sum[n] = vector_zero();
    for (int j = 0; j < count; j++, v += width) {
#pragma GCC unroll 16
        for (int n = 0; n < rows * vectors; n++)
            sum[n] = vector_fma(vector_all(share[n / vectors][j]), vector_load(v + n % vectors * LANES), sum[n]);
    }
#pragma GCC unroll 16
    for (int n = 0; n < rows * vectors; n++)
        vector_store(out[n / vectors] + at + n % vectors * LANES, sum[n]);
}

static inline __attribute__((always_inline)) int tile_strips(const float *v, int width, const float *const *share, int count,
                                                             int rows, int vectors, float *const *out)
{
    int i = 0;
    for (; i + vectors * LANES <= width; i += vectors * LANES)
        tile_strip(v + i, width, share, count, rows, vectors, out, i);
    for (; i + LANES <= width; i += LANES)
        tile_strip(v + i, width, share, count, rows, 1, out, i);
    return i;
}

static inline int tile_max(const float *v, int width, const float *const *share, int count, int rows, float *const *out)
{
#if defined(ISA_AVX512) || defined(ISA_NEON)              /* 32 registers */
    return rows == 4 ? tile_strips(v, width, share, count, 4, 4, out)
        : rows == 2 ? tile_strips(v, width, share, count, 2, 8, out) : tile_strips(v, width, share, count, 1, 8, out);
#else
    if (rows == 4)
        tile_strips(v, width, share + 2, count, 2, 4, out + 2);
    return rows >= 2 ? tile_strips(v, width, share, count, 2, 4, out) : tile_strips(v, width, share, count, 1, 8, out);
#endif
}

#else

static inline int tile_max(const float *v, int width, const float *const *share, int count, int rows, float *const *out)
{
    (void)v, (void)width, (void)share, (void)count, (void)rows, (void)out;
    return 0;
}

#endif

static inline void tile_values(const float *v, int width, const float *const *share, int count, int rows, float *const *out)
{
    int done = tile_max(v, width, share, count, rows, out);
    for (int r = 0; r < rows && done < width; r++) {
        for (int i = done; i < width; i++)
            out[r][i] = 0;
        for (int j = 0; j < count; j++)
            for (int i = done; i < width; i++)
                out[r][i] = __builtin_fmaf(share[r][j], v[(size_t)j * (size_t)width + (size_t)i], out[r][i]);
    }
}

#endif
