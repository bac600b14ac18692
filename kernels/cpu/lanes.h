/* Sums in the order that norms and dot products specify: 16 partial sums (index mod 16) by fused multiply-add in ascending
 * index, then halves added: 8+8, 4+4, 2+2, 1+1. */
#ifndef MOE_KERNELS_CPU_LANES_H
#define MOE_KERNELS_CPU_LANES_H

#include <stddef.h>

#if defined(ISA_AVX512) || defined(ISA_AVX2)
#include <immintrin.h>
#elif defined(ISA_NEON)
#include <arm_neon.h>
#endif

static inline float lanes_sum(const float *lane)
{
    float a[8], b[4], c[2];
    for (int i = 0; i < 8; i++)
        a[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        b[i] = a[i] + a[i + 4];
    for (int i = 0; i < 2; i++)
        c[i] = b[i] + b[i + 2];
    return c[0] + c[1];
}

#if defined(ISA_AVX512) || defined(ISA_AVX2)

/* Adds the products after the last complete 16 to the partial sums, then 8+8 and 4+4. Returns the four that remain. */
static inline __m128 lanes_four(__m256 low, __m256 high, const float *x, const float *y, int count)
{
    int whole = count & ~15;
    if (whole < count) {
        _Alignas(32) float lane[16];
        _mm256_store_ps(lane, low);
        _mm256_store_ps(lane + 8, high);
        for (int i = whole; i < count; i++)
            lane[i - whole] = __builtin_fmaf(x[i], y[i], lane[i - whole]);
        low = _mm256_load_ps(lane);
        high = _mm256_load_ps(lane + 8);
    }
    __m256 eight = _mm256_add_ps(low, high);
    return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}

/* Sets four[j] to the four partial sums of x . y[j], for `rows` (1 or 4, a constant) values of j: x is loaded once. */
static inline __attribute__((always_inline)) void lanes_fours(const float *x, const float *const *y, int rows, int count,
                                                              __m128 *four)
{
    const int whole = count & ~15;
#if defined(ISA_AVX512)
    __m512 sum[4];
    for (int j = 0; j < rows; j++)
        sum[j] = _mm512_setzero_ps();
    for (int i = 0; i < whole; i += 16) {
        __m512 own = _mm512_loadu_ps(x + i);
#pragma GCC unroll 4
        for (int j = 0; j < rows; j++)
            sum[j] = _mm512_fmadd_ps(own, _mm512_loadu_ps(y[j] + i), sum[j]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < rows; j++)
        four[j] = lanes_four(_mm512_castps512_ps256(sum[j]), _mm512_extractf32x8_ps(sum[j], 1), x, y[j], count);
#else
    __m256 low[4], high[4];
    for (int j = 0; j < rows; j++)
        low[j] = high[j] = _mm256_setzero_ps();
    for (int i = 0; i < whole; i += 16) {
        __m256 own = _mm256_loadu_ps(x + i), next = _mm256_loadu_ps(x + i + 8);
#pragma GCC unroll 4
        for (int j = 0; j < rows; j++) {
            low[j] = _mm256_fmadd_ps(own, _mm256_loadu_ps(y[j] + i), low[j]);
            high[j] = _mm256_fmadd_ps(next, _mm256_loadu_ps(y[j] + i + 8), high[j]);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < rows; j++)
        four[j] = lanes_four(low[j], high[j], x, y[j], count);
#endif
}

static inline float lanes_dot(const float *x, const float *y, int count)
{
    __m128 four;
    lanes_fours(x, &y, 1, count, &four);
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Computes out[j] = x . (y + offset[j]) for 4 values of j; the last two additions of all four are done together. */
static inline void lanes_dot4(const float *x, const float *y, const size_t *offset, int count, float *out)
{
    const float *const row[4] = {y + offset[0], y + offset[1], y + offset[2], y + offset[3]};
    __m128 four[4];
    lanes_fours(x, row, 4, count, four);
    _MM_TRANSPOSE4_PS(four[0], four[1], four[2], four[3]);
    _mm_storeu_ps(out, _mm_add_ps(_mm_add_ps(four[0], four[2]), _mm_add_ps(four[1], four[3])));
}

#elif defined(ISA_NEON)

/* Adds the products after the last complete 16 to the partial sums, then 8+8, 4+4, 2+2 and 1+1. */
static inline float lanes_total(const float32x4_t *sum, const float *x, const float *y, int count)
{
    const int whole = count & ~15;
    float32x4_t four = vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3]));
    if (whole < count) {
        float lane[16];
        for (int v = 0; v < 4; v++)
            vst1q_f32(lane + 4 * v, sum[v]);
        for (int i = whole; i < count; i++)
            lane[i - whole] = __builtin_fmaf(x[i], y[i], lane[i - whole]);
        return lanes_sum(lane);
    }
    return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}

/* Computes x . y[j] for `rows` (1 or 4, a constant) values of j: x is loaded once. */
static inline __attribute__((always_inline)) void lanes_dots(const float *x, const float *const *y, int rows, int count,
                                                             float *out)
{
    const int whole = count & ~15;
    float32x4_t sum[4][4];
    for (int j = 0; j < rows; j++)
        for (int v = 0; v < 4; v++)
            sum[j][v] = vdupq_n_f32(0);
    for (int i = 0; i < whole; i += 16) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            const float32x4_t own = vld1q_f32(x + i + 4 * v);
#pragma GCC unroll 4
            for (int j = 0; j < rows; j++)
                sum[j][v] = vfmaq_f32(sum[j][v], own, vld1q_f32(y[j] + i + 4 * v));
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < rows; j++)
        out[j] = lanes_total(sum[j], x, y[j], count);
}

static inline float lanes_dot(const float *x, const float *y, int count)
{
    float out;
    lanes_dots(x, &y, 1, count, &out);
    return out;
}

static inline void lanes_dot4(const float *x, const float *y, const size_t *offset, int count, float *out)
{
    const float *const row[4] = {y + offset[0], y + offset[1], y + offset[2], y + offset[3]};
    lanes_dots(x, row, 4, count, out);
}

#else

static inline float lanes_dot(const float *x, const float *y, int count)
{
    float lane[16] = {0};
    int whole = count & ~15;
    for (int i = 0; i < whole; i += 16)
        for (int j = 0; j < 16; j++)
            lane[j] = __builtin_fmaf(x[i + j], y[i + j], lane[j]);
    for (int i = whole; i < count; i++)
        lane[i - whole] = __builtin_fmaf(x[i], y[i], lane[i - whole]);
    return lanes_sum(lane);
}

static inline void lanes_dot4(const float *x, const float *y, const size_t *offset, int count, float *out)
{
    for (int j = 0; j < 4; j++)
        out[j] = lanes_dot(x, y + offset[j], count);
}

#endif
#endif
