/* The few vector operations that unit.c needs, in the width of the instruction set: LANES floats.
 *
 * `vector_pair` reads LANES outputs of one step of a unit (formats.h), for its even and its odd input. `at` points to the first
 * of these outputs in the step: byte `lane * 4` for f32 and bf16, `lane * 2` for f16. */
#ifndef MOE_KERNELS_CPU_VECTOR_H
#define MOE_KERNELS_CPU_VECTOR_H

#include "kernels/cpu/isa.h"
#include "kernels/formats.h"

#if defined(ISA_AVX512)
#include <immintrin.h>

enum { LANES = 16 };
typedef __m512 vector;

static inline vector vector_zero(void) { return _mm512_setzero_ps(); }
static inline vector vector_load(const float *at) { return _mm512_loadu_ps(at); }
static inline void vector_store(float *at, vector a) { _mm512_storeu_ps(at, a); }
static inline vector vector_all(float a) { return _mm512_set1_ps(a); }
static inline vector vector_add(vector a, vector b) { return _mm512_add_ps(a, b); }
static inline vector vector_mul(vector a, vector b) { return _mm512_mul_ps(a, b); }
static inline vector vector_fma(vector a, vector b, vector c) { return _mm512_fmadd_ps(a, b, c); }
static inline vector vector_half(const unsigned char *at) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at)); }

static inline void vector_bf16(const unsigned char *at, vector *even, vector *odd)
{
    __m512i both = _mm512_loadu_si512((const void *)at);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-65536)));
}

#elif defined(ISA_AVX2)
#include <immintrin.h>

enum { LANES = 8 };
typedef __m256 vector;

static inline vector vector_zero(void) { return _mm256_setzero_ps(); }
static inline vector vector_load(const float *at) { return _mm256_loadu_ps(at); }
static inline void vector_store(float *at, vector a) { _mm256_storeu_ps(at, a); }
static inline vector vector_all(float a) { return _mm256_set1_ps(a); }
static inline vector vector_add(vector a, vector b) { return _mm256_add_ps(a, b); }
static inline vector vector_mul(vector a, vector b) { return _mm256_mul_ps(a, b); }
static inline vector vector_fma(vector a, vector b, vector c) { return _mm256_fmadd_ps(a, b, c); }
static inline vector vector_half(const unsigned char *at) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)at)); }

static inline void vector_bf16(const unsigned char *at, vector *even, vector *odd)
{
    __m256i both = _mm256_loadu_si256((const void *)at);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-65536)));
}

#elif defined(ISA_NEON)
#include <arm_neon.h>

enum { LANES = 4 };
typedef float32x4_t vector;

static inline vector vector_zero(void) { return vdupq_n_f32(0); }
static inline vector vector_load(const float *at) { return vld1q_f32(at); }
static inline void vector_store(float *at, vector a) { vst1q_f32(at, a); }
static inline vector vector_all(float a) { return vdupq_n_f32(a); }
static inline vector vector_add(vector a, vector b) { return vaddq_f32(a, b); }
static inline vector vector_mul(vector a, vector b) { return vmulq_f32(a, b); }
static inline vector vector_fma(vector a, vector b, vector c) { return vfmaq_f32(c, a, b); }
static inline vector vector_half(const unsigned char *at) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at))); }

static inline void vector_bf16(const unsigned char *at, vector *even, vector *odd)
{
    uint32x4_t both = vreinterpretq_u32_u8(vld1q_u8(at));
    *even = vreinterpretq_f32_u32(vshlq_n_u32(both, 16));
    *odd = vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xffff0000u)));
}
#endif

#if defined(ISA_VECTORS)

static inline __attribute__((always_inline)) void vector_pair(enum weight_format format, const unsigned char *at, vector *even,
                                                              vector *odd)
{
    switch (format) {
    case FORMAT_F32:
        *even = vector_load((const float *)(const void *)at);
        *odd = vector_load((const float *)(const void *)(at + UNIT_STEP_BYTES));
        break;
    case FORMAT_F16:
        *even = vector_half(at);
        *odd = vector_half(at + UNIT_STEP_BYTES / 2);
        break;
    default:
        vector_bf16(at, even, odd);
    }
}

#endif
#endif
