/* Vectors of LANES words of 32 bits, and the conversions of their bits to f32. STRIP_VECTORS and STRIP_CHAINS: the vectors of
 * outputs and the chains of sums of a strip of unit_coded.c with this number of rows. */
#ifndef MOE_KERNELS_CPU_WORDS_H
#define MOE_KERNELS_CPU_WORDS_H

#include <stdbool.h>
#include <string.h>

#include "kernels/cpu/vector.h"

#if defined(ISA_VECTORS)

#if !defined(INLINE)
#define INLINE static inline __attribute__((always_inline))
#endif

/* The chains of a strip: with many rows, registers suffice for the sums of one chain, and another strip computes the other. */
enum chains { EVEN_CHAIN = 1, ODD_CHAIN = 2, BOTH_CHAINS = 3 };

#if defined(ISA_AVX512)

#define STRIP_VECTORS(rows) 2
#define STRIP_CHAINS(rows) ((rows) <= 4 ? BOTH_CHAINS : EVEN_CHAIN)

typedef __m512i words;

INLINE words words_load(const unsigned char *at) { return _mm512_loadu_si512((const void *)at); }
INLINE words words_bytes(const unsigned char *at) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)at)); }
INLINE words words_signed(const unsigned char *at) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at)); }
INLINE words words_shorts(const unsigned char *at) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)at)); }
INLINE words words_right(words a, int bits) { return _mm512_srli_epi32(a, (unsigned)bits); }
INLINE words words_right_by(words a, int bits) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
INLINE words words_left(words a, int bits) { return _mm512_slli_epi32(a, (unsigned)bits); }
INLINE words words_and(words a, int b) { return _mm512_and_si512(a, _mm512_set1_epi32(b)); }
INLINE words words_or(words a, words b) { return _mm512_or_si512(a, b); }
INLINE words words_max(words a, int b) { return _mm512_max_epu32(a, _mm512_set1_epi32(b)); }
INLINE words words_min(words a, int b) { return _mm512_min_epu32(a, _mm512_set1_epi32(b)); }
INLINE words words_flip(words a, int b) { return _mm512_xor_si512(a, _mm512_set1_epi32(b)); }
INLINE vector words_floats(words a) { return _mm512_castsi512_ps(a); }
INLINE vector words_convert(words a) { return _mm512_cvtepi32_ps(a); }
INLINE vector vector_times(vector a, vector b) { return _mm512_mul_ps(a, b); }

/* Returns (a & keep) | base. */
INLINE words words_field(words a, int keep, int base)
{
    return _mm512_ternarylogic_epi32(a, _mm512_set1_epi32(keep), _mm512_set1_epi32(base), 0xea);
}

/* Converts four bits of every word to a number, or to E2M1: the permutation ignores the other bits. Shifts are always
 * constants. */
INLINE vector nibble_number(words a, int shift)
{
    const vector table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(a, (unsigned)shift), table);
}

INLINE vector nibble_e2m1(words a, int shift)
{
    const vector table = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(a, (unsigned)shift), table);
}

INLINE vector nibble_level(words a, int shift)
{
    const vector table = _mm512_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(a, (unsigned)shift), table);
}

INLINE vector entry8(words a, int shift, const int8_t *table)
{
    const __m256 eight = _mm256_setr_ps(table[0], table[1], table[2], table[3], table[4], table[5], table[6], table[7]);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(a, (unsigned)shift), _mm512_broadcast_f32x8(eight));
}

/* Returns entries of a grid's table (grids.h), which has `entries`; the upper halves of the words are undefined. For small
 * tables, permutations of 64 entries at a time are faster than a gather. */
INLINE words words_entries(const uint16_t *table, int entries, words index)
{
    if (entries > 256)
        return _mm512_i32gather_epi32(index, (const void *)table, 2);
    words found = _mm512_setzero_si512();
    const words part = _mm512_srli_epi32(index, 6);
#pragma GCC unroll 4
    for (int i = 0; i < entries / 64; i++) {
        const words low = _mm512_loadu_si512((const void *)(table + 64 * i));
        const words high = _mm512_loadu_si512((const void *)(table + 64 * i + 32));
        const words some = _mm512_permutex2var_epi16(low, index, high);
        found = i ? _mm512_mask_mov_epi32(found, _mm512_cmpeq_epi32_mask(part, _mm512_set1_epi32(i)), some) : some;
    }
    return found;
}

INLINE words words_xor(words a, words b) { return _mm512_xor_si512(a, b); }

/* Returns bytes of a where `mask`, which consists of whole bytes, has ones, and bytes of b elsewhere. */
INLINE words words_bytes_of(words a, words b, int mask)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(mask), a, b, 0xca);
}

/* Changes the sign where bit `bit` of a word is 1. */
INLINE vector vector_signed(vector a, words signs, int bit)
{
    const words mask = _mm512_set1_epi32((int)0x80000000u), shifted = _mm512_slli_epi32(signs, (unsigned)(31 - bit));
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(a), shifted, mask, 0x78));
}

/* Converts E4M3 codes: their bits are those of an f16 that is 256 times smaller, also for subnormal codes, except for two bits
 * of the exponent, which are 0 there. `at`: bytes [output][even, odd input] of `width` vectors of outputs. */
INLINE void codes_floats(int width, const unsigned char *at, vector *even, vector *odd)
{
    if (width == 1) {
        __m256i both = _mm256_loadu_si256((const void *)at);
        __m256i low = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(both, 8), 1), _mm256_set1_epi16(-16385));
        __m256i high = _mm256_and_si256(_mm256_srai_epi16(both, 1), _mm256_set1_epi16(-16512));
        even[0] = _mm512_cvtph_ps(low);
        odd[0] = _mm512_cvtph_ps(high);
        return;
    }
    __m512i both = _mm512_loadu_si512((const void *)at);
    __m512i low = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(both, 8), 1), _mm512_set1_epi16(-16385));
    __m512i high = _mm512_and_si512(_mm512_srai_epi16(both, 1), _mm512_set1_epi16(-16512));
    even[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(low));
    even[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(low, 1));
    odd[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(high));
    odd[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(high, 1));
}

#elif defined(ISA_NEON)

#define STRIP_VECTORS(rows) 2
#define STRIP_CHAINS(rows) ((rows) <= 4 ? BOTH_CHAINS : EVEN_CHAIN)

typedef uint32x4_t words;

INLINE uint16x4_t four_bytes(const unsigned char *at, bool sign)
{
    uint32_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    const uint8x8_t four = vcreate_u8(bytes);
    return sign ? vreinterpret_u16_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four)))) : vget_low_u16(vmovl_u8(four));
}

INLINE words words_load(const unsigned char *at) { return vreinterpretq_u32_u8(vld1q_u8(at)); }
INLINE words words_bytes(const unsigned char *at) { return vmovl_u16(four_bytes(at, false)); }
INLINE words words_signed(const unsigned char *at)
{
    return vreinterpretq_u32_s32(vmovl_s16(vreinterpret_s16_u16(four_bytes(at, true))));
}
INLINE words words_shorts(const unsigned char *at) { return vmovl_u16(vreinterpret_u16_u8(vld1_u8(at))); }
INLINE words words_right(words a, int bits) { return a >> (uint32_t)bits; }
INLINE words words_right_by(words a, int bits) { return vshlq_u32(a, vdupq_n_s32(-bits)); }
INLINE words words_left(words a, int bits) { return a << (uint32_t)bits; }
INLINE words words_and(words a, int b) { return vandq_u32(a, vdupq_n_u32((uint32_t)b)); }
INLINE words words_or(words a, words b) { return vorrq_u32(a, b); }
INLINE words words_max(words a, int b) { return vmaxq_u32(a, vdupq_n_u32((uint32_t)b)); }
INLINE words words_min(words a, int b) { return vminq_u32(a, vdupq_n_u32((uint32_t)b)); }
INLINE words words_flip(words a, int b) { return veorq_u32(a, vdupq_n_u32((uint32_t)b)); }
INLINE vector words_floats(words a) { return vreinterpretq_f32_u32(a); }
INLINE vector words_convert(words a) { return vcvtq_f32_s32(vreinterpretq_s32_u32(a)); }
INLINE vector vector_times(vector a, vector b) { return vmulq_f32(a, b); }
INLINE words words_field(words a, int keep, int base) { return words_or(words_and(a, keep), vdupq_n_u32((uint32_t)base)); }
INLINE vector nibble_number(words a, int shift) { return words_convert(words_and(words_right(a, shift), 15)); }

/* Looks up bytes of the table. The upper bytes of each index are out of range, so they become 0. */
INLINE vector entry8(words a, int shift, const int8_t *table)
{
    const int8x16_t sixteen = vcombine_s8(vld1_s8(table), vdup_n_s8(0));
    const words index = vorrq_u32(words_and(words_right(a, shift), 7), vdupq_n_u32(0xffffff00u));
    const int8x16_t byte = vqtbl1q_s8(sixteen, vreinterpretq_u8_u32(index));
    return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(vreinterpretq_s32_s8(byte), 24), 24));
}

INLINE words words_entries(const uint16_t *table, int entries, words index)
{
    (void)entries;
    const words a = vsetq_lane_u32(table[vgetq_lane_u32(index, 0)], vdupq_n_u32(table[vgetq_lane_u32(index, 1)]), 0);
    return vsetq_lane_u32(table[vgetq_lane_u32(index, 3)], vsetq_lane_u32(table[vgetq_lane_u32(index, 2)], a, 2), 3);
}

INLINE words words_xor(words a, words b) { return veorq_u32(a, b); }
INLINE words words_bytes_of(words a, words b, int mask) { return vbslq_u32(vdupq_n_u32((uint32_t)mask), a, b); }

INLINE vector vector_signed(vector a, words signs, int bit)
{
    return words_floats(veorq_u32(vreinterpretq_u32_f32(a), words_and(words_left(signs, 31 - bit), (int)0x80000000u)));
}

INLINE vector nibble_level(words a, int shift)
{
    static const int8_t level[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const words index = vorrq_u32(words_and(words_right(a, shift), 15), vdupq_n_u32(0xffffff00u));
    const int8x16_t byte = vqtbl1q_s8(vld1q_s8(level), vreinterpretq_u8_u32(index));
    return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(vreinterpretq_s32_s8(byte), 24), 24));
}

/* Converts E2M1: its three lower bits are those of an f32 that is 2^126 times smaller, also for 0.5, which is subnormal
 * there. */
INLINE vector nibble_e2m1(words a, int shift)
{
    const words size = words_left(words_and(words_right(a, shift), 7), 22);
    const words sign = words_and(words_left(a, 28 - shift), (int)0x80000000u);
    return vector_times(words_floats(words_or(size, sign)), vector_all(0x1p126f));
}

INLINE void codes_floats(int width, const unsigned char *at, vector *even, vector *odd)
{
#pragma GCC unroll 2
    for (int v = 0; v < width; v++) {
        int16x4_t both = vreinterpret_s16_u8(vld1_u8(at + v * 2 * LANES));
        int16x4_t low = vand_s16(vshr_n_s16(vshl_n_s16(both, 8), 1), vdup_n_s16(-16385));
        int16x4_t high = vand_s16(vshr_n_s16(both, 1), vdup_n_s16(-16512));
        even[v] = vcvt_f32_f16(vreinterpret_f16_s16(low));
        odd[v] = vcvt_f32_f16(vreinterpret_f16_s16(high));
    }
}

#else

#define STRIP_VECTORS(rows) ((rows) == 1 ? 2 : 1)
#define STRIP_CHAINS(rows) ((rows) <= 4 ? BOTH_CHAINS : EVEN_CHAIN)

typedef __m256i words;

INLINE words words_load(const unsigned char *at) { return _mm256_loadu_si256((const void *)at); }
INLINE words words_bytes(const unsigned char *at) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)at)); }
INLINE words words_signed(const unsigned char *at) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)at)); }
INLINE words words_shorts(const unsigned char *at) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)at)); }
INLINE words words_right(words a, int bits) { return _mm256_srli_epi32(a, bits); }
INLINE words words_right_by(words a, int bits) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
INLINE words words_left(words a, int bits) { return _mm256_slli_epi32(a, bits); }
INLINE words words_and(words a, int b) { return _mm256_and_si256(a, _mm256_set1_epi32(b)); }
INLINE words words_or(words a, words b) { return _mm256_or_si256(a, b); }
INLINE words words_max(words a, int b) { return _mm256_max_epu32(a, _mm256_set1_epi32(b)); }
INLINE words words_min(words a, int b) { return _mm256_min_epu32(a, _mm256_set1_epi32(b)); }
INLINE words words_flip(words a, int b) { return _mm256_xor_si256(a, _mm256_set1_epi32(b)); }
INLINE vector words_floats(words a) { return _mm256_castsi256_ps(a); }
INLINE vector words_convert(words a) { return _mm256_cvtepi32_ps(a); }
INLINE vector vector_times(vector a, vector b) { return _mm256_mul_ps(a, b); }

INLINE words words_field(words a, int keep, int base)
{
    return _mm256_or_si256(_mm256_and_si256(a, _mm256_set1_epi32(keep)), _mm256_set1_epi32(base));
}

INLINE vector nibble_number(words a, int shift)
{
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(a, shift), _mm256_set1_epi32(15)));
}

/* Converts E2M1: the permutation uses the three lower bits of an index; the fourth bit is the sign. */
INLINE vector nibble_e2m1(words a, int shift)
{
    const vector table = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
    __m256i sign = _mm256_and_si256(_mm256_slli_epi32(a, 28 - shift), _mm256_set1_epi32((int)0x80000000u));
    return _mm256_or_ps(_mm256_permutevar8x32_ps(table, _mm256_srli_epi32(a, shift)), _mm256_castsi256_ps(sign));
}

INLINE vector nibble_level(words a, int shift)
{
    const vector low = _mm256_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10);
    const vector high = _mm256_setr_ps(1, 13, 25, 38, 53, 69, 89, 113);
    const words index = _mm256_srli_epi32(a, shift);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index), _mm256_permutevar8x32_ps(high, index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(a, 28 - shift)));
}

INLINE vector entry8(words a, int shift, const int8_t *table)
{
    const vector eight = _mm256_setr_ps(table[0], table[1], table[2], table[3], table[4], table[5], table[6], table[7]);
    return _mm256_permutevar8x32_ps(eight, _mm256_srli_epi32(a, shift));
}

INLINE words words_entries(const uint16_t *table, int entries, words index)
{
    (void)entries;
    return _mm256_i32gather_epi32((const void *)table, index, 2);
}

INLINE words words_xor(words a, words b) { return _mm256_xor_si256(a, b); }
INLINE words words_bytes_of(words a, words b, int mask) { return _mm256_blendv_epi8(b, a, _mm256_set1_epi32(mask)); }

INLINE vector vector_signed(vector a, words signs, int bit)
{
    return _mm256_xor_ps(a, words_floats(words_and(words_left(signs, 31 - bit), (int)0x80000000u)));
}

INLINE void codes_floats(int width, const unsigned char *at, vector *even, vector *odd)
{
#pragma GCC unroll 4
    for (int v = 0; v < width; v++) {
        __m128i both = _mm_loadu_si128((const void *)(at + v * 2 * LANES));
        even[v] = _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16(_mm_slli_epi16(both, 8), 1), _mm_set1_epi16(-16385)));
        odd[v] = _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16(both, 1), _mm_set1_epi16(-16512)));
    }
}

#endif

/* Replaces two indices in every word, one in each half, by entries of a grid's table, in `count` vectors. AVX-512 permutes 64
 * entries at a time: each permutation replaces the indices of its entries and leaves the others. */
#if defined(ISA_AVX512)

INLINE void words_pairs(const uint16_t *table, int entries, int count, words *index)
{
    words part[4];
#pragma GCC unroll 4
    for (int v = 0; v < count; v++)
        part[v] = _mm512_srli_epi16(index[v], 6);
#pragma GCC unroll 16
    for (int i = 0; i < entries / 64; i++) {
        const words low = words_load((const unsigned char *)(table + 64 * i));
        const words high = words_load((const unsigned char *)(table + 64 * i + 32));
#pragma GCC unroll 4
        for (int v = 0; v < count; v++)
            index[v] = _mm512_mask2_permutex2var_epi16(low, index[v],
                                                       _mm512_cmpeq_epi16_mask(part[v], _mm512_set1_epi16((short)i)), high);
    }
}

#else

INLINE void words_pairs(const uint16_t *table, int entries, int count, words *index)
{
#pragma GCC unroll 4
    for (int v = 0; v < count; v++) {
        const words first = words_entries(table, entries, words_and(index[v], 0xffff));
        const words second = words_entries(table, entries, words_right(index[v], 16));
        index[v] = words_bytes_of(first, words_left(second, 16), 0x0000ffff);
    }
}

#endif

/* Tables of entry8, which uses the lower three bits after a shift, or with two copies of four entries the lower two. */
static const int8_t BITS2[8] = {0, 1, 2, 3, 0, 1, 2, 3}, BITS3_CENTRED[8] = {-4, -3, -2, -1, 0, 1, 2, 3};
static const int8_t GRID_IQ2[8] = {8, 25, 43, 0, 8, 25, 43, 0}, GRID_IQ3_XXS[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const int8_t GRID_IQ3_S[8] = {1, 3, 5, 7, 9, 11, 13, 15};

#endif
#endif
