/* Sums in the order that norms and dot products are promised in: 16 partial sums (index mod 16) by fused multiply-add in
 * ascending index, then halves added: 8+8, 4+4, 2+2, 1+1. */
#ifndef MOE_KERNELS_CPU_LANES_H
#define MOE_KERNELS_CPU_LANES_H

#include <stddef.h>

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

/* The 16 partial sums of one dot product, 8 and 8. */
struct lanes {
    __m256 low, high;
};

static inline struct lanes lanes_of(const float *x, const float *y, int count)
{
    struct lanes lanes;
    int whole = count & ~15;
#if defined(ISA_AVX512)
    __m512 sum = _mm512_setzero_ps();
    for (int i = 0; i < whole; i += 16)
        sum = _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i), sum);
    lanes.low = _mm512_castps512_ps256(sum);
    lanes.high = _mm512_extractf32x8_ps(sum, 1);
#else
    lanes.low = lanes.high = _mm256_setzero_ps();
    for (int i = 0; i < whole; i += 16) {
        lanes.low = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i), lanes.low);
        lanes.high = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 8), _mm256_loadu_ps(y + i + 8), lanes.high);
    }
#endif
    if (whole < count) {
        _Alignas(32) float lane[16];
        _mm256_store_ps(lane, lanes.low);
        _mm256_store_ps(lane + 8, lanes.high);
        for (int i = whole; i < count; i++)
            lane[i - whole] = __builtin_fmaf(x[i], y[i], lane[i - whole]);
        lanes.low = _mm256_load_ps(lane);
        lanes.high = _mm256_load_ps(lane + 8);
    }
    return lanes;
}

/* 8+8, 4+4: four are left. */
static inline __m128 lanes_four(struct lanes lanes)
{
    __m256 eight = _mm256_add_ps(lanes.low, lanes.high);
    return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}

static inline float lanes_dot(const float *x, const float *y, int count)
{
    __m128 four = lanes_four(lanes_of(x, y, count));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* out[j] = x . (y + offset[j]) for 4 of them: the last two additions of all four at once. */
static inline void lanes_dot4(const float *x, const float *y, const size_t *offset, int count, float *out)
{
    __m128 a = lanes_four(lanes_of(x, y + offset[0], count)), b = lanes_four(lanes_of(x, y + offset[1], count));
    __m128 c = lanes_four(lanes_of(x, y + offset[2], count)), d = lanes_four(lanes_of(x, y + offset[3], count));
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(out, _mm_add_ps(_mm_add_ps(a, c), _mm_add_ps(b, d)));
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
