#include "kernels/cpu/multiply.h"

#include "kernels/cpu/vector.h"

/* Enough independent sums to hide the latency of two units of 4 or 5 cycles, and few enough for 16 registers. */
enum { SUMS = 12 };

#if defined(ISA_VECTORS)

static double floats_multiply(long rounds, float *sink)
{
    const vector x = vector_all(sink[0]), y = vector_all(sink[1]);
    vector sum[SUMS];
    for (int i = 0; i < SUMS; i++)
        sum[i] = vector_zero();
    for (long r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++)
            sum[i] = vector_fma(x, y, sum[i]);
    for (int i = 1; i < SUMS; i++)
        sum[0] = vector_add(sum[0], sum[i]);
    vector_store(sink, sum[0]);
    return (double)rounds * SUMS * LANES;
}

/* Adds four products of 8 bits to each 32-bit lane, as unit_quantised.c does for q8. */
#if defined(ISA_VNNI)

typedef __m512i integers;

static inline integers integers_load(const float *at) { return _mm512_loadu_si512((const void *)at); }
static inline void integers_store(float *at, integers a) { _mm512_storeu_si512((void *)at, a); }
static inline integers integers_add(integers a, integers b) { return _mm512_add_epi32(a, b); }
static inline integers integers_dot(integers sum, integers x, integers y) { return _mm512_dpbusd_epi32(sum, x, y); }

#elif defined(ISA_NEON)

typedef int32x4_t integers;

static inline integers integers_load(const float *at) { return vreinterpretq_s32_f32(vld1q_f32(at)); }
static inline void integers_store(float *at, integers a) { vst1q_f32(at, vreinterpretq_f32_s32(a)); }
static inline integers integers_add(integers a, integers b) { return vaddq_s32(a, b); }
static inline integers integers_dot(integers sum, integers x, integers y)
{
    return vdotq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(y));
}

#else

typedef __m256i integers;

static inline integers integers_load(const float *at) { return _mm256_loadu_si256((const void *)at); }
static inline void integers_store(float *at, integers a) { _mm256_storeu_si256((void *)at, a); }
static inline integers integers_add(integers a, integers b) { return _mm256_add_epi32(a, b); }
static inline integers integers_dot(integers sum, integers x, integers y)
{
    __asm__("" : "+x"(x));              /* prevents the compiler from computing both products once for all rounds */
    return integers_add(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), _mm256_set1_epi16(1)));
}

#endif

static double integers_multiply(long rounds, float *sink)
{
    const integers x = integers_load(sink), y = x;
    integers sum[SUMS];
    for (int i = 0; i < SUMS; i++)
        sum[i] = integers_add(x, x);
    for (long r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++)
            sum[i] = integers_dot(sum[i], x, y);
    for (int i = 1; i < SUMS; i++)
        sum[0] = integers_add(sum[0], sum[i]);
    integers_store(sink, sum[0]);
    return (double)rounds * SUMS * (double)sizeof(integers);
}

double cpu_multiply(bool whole, long rounds, float *sink)
{
    return whole ? integers_multiply(rounds, sink) : floats_multiply(rounds, sink);
}

#else

double cpu_multiply(bool whole, long rounds, float *sink)
{
    const float x = sink[0], y = sink[1];
    float sum[SUMS] = {0};
    if (whole)
        return 0;
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < SUMS; i++)
            sum[i] = __builtin_fmaf(x, y, sum[i]);
    for (int i = 1; i < SUMS; i++)
        sum[0] += sum[i];
    sink[0] = sum[0];
    return (double)rounds * SUMS;
}

#endif
