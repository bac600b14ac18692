#include <string.h>

#include "kernels/cpu/operand.h"
#include "kernels/cpu/vector.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/quantise.h"

_Static_assert((int)PLAIN_BLOCK == (int)BLOCK_INPUTS, "blocks of activations are those of weights");

/* Quantises a complete block. The form with AVX-512 has the bits of plain_quantise: conversion to integers rounds as the
 * addition of a constant does there. A sum of bytes is a sum of absolute differences between bytes + 128 and 0, less 128 for
 * each byte. */
#if defined(ISA_AVX512)

static inline int sum_bytes(__m128i q)
{
    const __m128i sums = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8(-128)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - BLOCK_INPUTS / 2 * 128;
}

static inline void quantise_block(const float *in, struct quantised *out)
{
    const __m512 first = _mm512_loadu_ps(in), second = _mm512_loadu_ps(in + LANES);
    const __m512i size = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(first)),
                                          _mm512_castps_si512(_mm512_abs_ps(second)));
    const __m256i eight = _mm256_max_epi32(_mm512_castsi512_si256(size), _mm512_extracti64x4_epi64(size, 1));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    const float max = _mm_cvtss_f32(_mm_castsi128_ps(four));
    if (!(max >= 0x1p-100f && max < __builtin_inff())) {
        plain_quantise(in, BLOCK_INPUTS, out->q, &out->scale, &out->total, out->sum);
        return;
    }
    const __m512 inverse = _mm512_set1_ps(127 / max);
    const __m128i low = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(first, inverse)));
    const __m128i high = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(second, inverse)));
    const int sum[2] = {sum_bytes(low), sum_bytes(high)};
    _mm_storeu_si128((void *)out->q, low);
    _mm_storeu_si128((void *)(out->q + LANES), high);
    out->scale = max / 127;
    out->total = out->scale * (float)(sum[0] + sum[1]);
    out->sum[0] = (int16_t)sum[0];
    out->sum[1] = (int16_t)sum[1];
}

#else

static inline void quantise_block(const float *in, struct quantised *out)
{
    plain_quantise(in, BLOCK_INPUTS, out->q, &out->scale, &out->total, out->sum);
}

#endif

static void quantise_row(const float *in, int inputs, struct quantised *out)
{
    const int whole = inputs / BLOCK_INPUTS * BLOCK_INPUTS;
    for (int k = 0; k < whole; k += BLOCK_INPUTS, out++)
        quantise_block(in + k, out);
    if (whole < inputs)
        plain_quantise(in + whole, inputs - whole, out->q, &out->scale, &out->total, out->sum);
}

/* Rearranges the integers of blocks: place i gets input order[i]. */
#if defined(ISA_AVX512) || defined(ISA_AVX2)

static void order_blocks(const uint8_t *order, size_t blocks, struct quantised *out)
{
    const __m256i index = _mm256_loadu_si256((const void *)order), upper = _mm256_slli_epi16(index, 3);
    for (size_t b = 0; b < blocks; b++) {
        const __m256i q = _mm256_loadu_si256((const void *)out[b].q);
        const __m256i first = _mm256_shuffle_epi8(_mm256_permute2x128_si256(q, q, 0x00), index);
        const __m256i second = _mm256_shuffle_epi8(_mm256_permute2x128_si256(q, q, 0x11), index);
        _mm256_storeu_si256((void *)out[b].q, _mm256_blendv_epi8(first, second, upper));
    }
}

#else

static void order_blocks(const uint8_t *order, size_t blocks, struct quantised *out)
{
    for (size_t b = 0; b < blocks; b++) {
        int8_t q[BLOCK_INPUTS];
        memcpy(q, out[b].q, sizeof q);
        for (int i = 0; i < BLOCK_INPUTS; i++)
            out[b].q[i] = q[order[i]];
    }
}

#endif

static void quantise_rows(void *argument, int member, int members)
{
    const struct operand_rows *rows = argument;
    struct quantised *out = rows->scratch;
    size_t begin, end, blocks = (size_t)quantised_blocks(rows->inputs);
    thread_pool_part(operand_count(rows), member, members, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const float *in = operand_source(rows, i);
        if (!in)
            continue;
        quantise_row(in, rows->inputs, out + i * blocks);
        if (rows->order)
            order_blocks(rows->order, blocks, out + i * blocks);
    }
}

void cpu_quantise(struct queue *queue, struct operand_rows *rows)
{
    work_run(queue, operand_count(rows) * (size_t)rows->inputs * sizeof(float), quantise_rows, rows);
}
