/* Exact conversion of cached values, or of codes of q8 without their scale (kernels/attention.h), to f32. */
#ifndef MOE_KERNELS_CPU_WIDEN_H
#define MOE_KERNELS_CPU_WIDEN_H

#include <string.h>

#include "common/base/float.h"
#include "kernels/attention.h"
#include "kernels/cpu/isa.h"

#if defined(ISA_AVX512) || defined(ISA_AVX2)
#include <immintrin.h>
#elif defined(ISA_NEON)
#include <arm_neon.h>
#endif

#if defined(ISA_AVX512)

static inline void widen_16(enum cache_format format, const unsigned char *from, float *to)
{
    if (format == CACHE_Q8) {
        _mm512_storeu_ps(to, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)from))));
        return;
    }
    __m256i half = _mm256_loadu_si256((const void *)from);
    _mm512_storeu_ps(to, format == CACHE_F16 ? _mm512_cvtph_ps(half)
                     : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)));
}

#elif defined(ISA_AVX2)

static inline void widen_16(enum cache_format format, const unsigned char *from, float *to)
{
    for (int i = 0; i < 2; i++) {
        if (format == CACHE_Q8) {
            const __m128i code = _mm_loadl_epi64((const void *)(from + 8 * i));
            _mm256_storeu_ps(to + 8 * i, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(code)));
            continue;
        }
        __m128i half = _mm_loadu_si128((const void *)(from + 16 * i));
        _mm256_storeu_ps(to + 8 * i, format == CACHE_F16 ? _mm256_cvtph_ps(half)
                         : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16)));
    }
}

#elif defined(ISA_NEON)

static inline void widen_16(enum cache_format format, const unsigned char *from, float *to)
{
    if (format == CACHE_Q8) {
        const int8x16_t code = vld1q_s8((const int8_t *)from);
        for (int i = 0; i < 2; i++) {
            const int16x8_t wide = vmovl_s8(i ? vget_high_s8(code) : vget_low_s8(code));
            vst1q_f32(to + 8 * i, vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))));
            vst1q_f32(to + 8 * i + 4, vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide))));
        }
        return;
    }
    for (int i = 0; i < 4; i++) {
        uint16x4_t half = vreinterpret_u16_u8(vld1_u8(from + 8 * i));
        vst1q_f32(to + 4 * i, format == CACHE_F16 ? vcvt_f32_f16(vreinterpret_f16_u16(half))
                  : vreinterpretq_f32_u32(vshll_n_u16(half, 16)));
    }
}

#endif

static inline void widen(enum cache_format format, const unsigned char *from, size_t count, float *to)
{
    const uint16_t *half = (const uint16_t *)(const void *)from;
    size_t i = 0;
    if (format == CACHE_F32) {
        memcpy(to, from, count * sizeof(float));
        return;
    }
#if defined(ISA_VECTORS)
    if (format == CACHE_F16)
        for (; i + 16 <= count; i += 16)
            widen_16(CACHE_F16, from + 2 * i, to + i);
    else if (format == CACHE_Q8)
        for (; i + 16 <= count; i += 16)
            widen_16(CACHE_Q8, from + i, to + i);
    else
        for (; i + 16 <= count; i += 16)
            widen_16(CACHE_BF16, from + 2 * i, to + i);
#endif
    for (; i < count; i++)
        to[i] = format == CACHE_Q8 ? (float)(int8_t)from[i] : format == CACHE_F16 ? f16_to_f32(half[i]) : bf16_to_f32(half[i]);
}

#endif
