/* Sums in the order that norms and dot products are promised in: 16 partial sums (index mod 16) by fused multiply-add in
 * ascending index, then halves added: 8+8, 4+4, 2+2, 1+1. */
#ifndef MOE_KERNELS_CPU_LANES_H
#define MOE_KERNELS_CPU_LANES_H

#if defined(ISA_AVX512) || defined(ISA_AVX2)
#include <immintrin.h>
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

static inline float lanes_end(__m256 low, __m256 high, const float *x, const float *y, int done, int count)
{
    _Alignas(32) float lane[16];
    _mm256_store_ps(lane, low);
    _mm256_store_ps(lane + 8, high);
    for (int i = done; i < count; i++)
        lane[i - done] = __builtin_fmaf(x[i], y[i], lane[i - done]);
    return lanes_sum(lane);
}

static inline float lanes_fold(__m256 a)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

#endif

static inline float lanes_dot(const float *x, const float *y, int count)
{
    int whole = count & ~15;
#if defined(ISA_AVX512)
    __m512 sum = _mm512_setzero_ps();
    for (int i = 0; i < whole; i += 16)
        sum = _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i), sum);
    __m256 low = _mm512_castps512_ps256(sum), high = _mm512_extractf32x8_ps(sum, 1);
    return whole == count ? lanes_fold(_mm256_add_ps(low, high)) : lanes_end(low, high, x, y, whole, count);
#elif defined(ISA_AVX2)
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (int i = 0; i < whole; i += 16) {
        low = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i), low);
        high = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 8), _mm256_loadu_ps(y + i + 8), high);
    }
    return whole == count ? lanes_fold(_mm256_add_ps(low, high)) : lanes_end(low, high, x, y, whole, count);
#else
    float lane[16] = {0};
    for (int i = 0; i < whole; i += 16)
        for (int j = 0; j < 16; j++)
            lane[j] = __builtin_fmaf(x[i + j], y[i + j], lane[j]);
    for (int i = whole; i < count; i++)
        lane[i - whole] = __builtin_fmaf(x[i], y[i], lane[i - whole]);
    return lanes_sum(lane);
#endif
}

#endif
