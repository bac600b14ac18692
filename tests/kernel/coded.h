/* Random coded rows (kernels/formats.h) and their weights, decoded independently of the library. */
#ifndef MOE_TESTS_KERNEL_CODED_H
#define MOE_TESTS_KERNEL_CODED_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/float.h"
#include "kernels/formats.h"
#include "kernels/grids.h"

static inline uint32_t coded_bits(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static inline void coded_half(unsigned char *at, float value)
{
    uint16_t half = f32_to_f16(value);
    memcpy(at, &half, sizeof half);
}

/* Formats with f16 scales: inputs and bytes of a block, positions of the scales (second: -1 for none), and the largest
 * factors by which they are multiplied. */
struct coded_kind { int inputs, bytes, at, second; float largest, second_largest; };

static inline struct coded_kind coded_kind(enum weight_format format)
{
    static const struct coded_kind kinds[FORMAT_COUNT] = {
        [FORMAT_Q8] = {32, 34, 0, -1, 128, 0}, [FORMAT_Q4] = {32, 18, 0, -1, 8, 0},
        [FORMAT_Q4_K] = {256, 144, 0, 2, 63 * 15, 126},
        [FORMAT_Q6_K] = {256, 210, 208, -1, 4096, 0}, [FORMAT_Q5_K] = {256, 176, 0, 2, 63 * 31, 126},
        [FORMAT_IQ4_XS] = {256, 136, 0, -1, 32 * 127, 0}, [FORMAT_IQ4_NL] = {32, 18, 0, -1, 127, 0},
        [FORMAT_Q3_K] = {256, 110, 108, -1, 128, 0}, [FORMAT_Q2_K] = {256, 84, 80, 82, 45, 30},
        [FORMAT_IQ3_S] = {256, 110, 0, -1, 465, 0}, [FORMAT_IQ3_XXS] = {256, 98, 0, -1, 480, 0},
        [FORMAT_IQ2_S] = {256, 82, 0, -1, 166, 0}, [FORMAT_IQ2_XS] = {256, 74, 0, -1, 166, 0},
        [FORMAT_IQ2_XXS] = {256, 66, 0, -1, 166, 0}};
    return kinds[format];
}

/* Returns the inputs of a block, for any format. */
static inline int coded_block(enum weight_format format)
{
    const int inputs = coded_kind(format).inputs;
    return inputs ? inputs : format == FORMAT_FP8 ? 128 : format_steps(format) ? 64 : 32;
}

/* Makes one row of random codes, whose weights have magnitudes up to about `size`; the caller frees it. One scale in 16 is
 * 0. */
static inline unsigned char *coded_draw(enum weight_format format, int inputs, float size, uint64_t *seed)
{
    size_t bytes = format_coded_bytes(format, inputs);
    unsigned char *row = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        row[i] = (unsigned char)(coded_bits(seed) >> 7);
    const struct coded_kind kind = coded_kind(format);
    int blocks = (inputs + coded_block(format) - 1) / coded_block(format);
    size_t block = bytes / (size_t)blocks;
    for (int b = 0; b < blocks; b++) {
        unsigned char *at = row + (size_t)b * (format == FORMAT_FP8 ? 4 : block);
        uint32_t bits = coded_bits(seed);
        float scale = bits % 16 ? size * (0.5f + (float)(bits >> 8 & 255) / 512) : 0, sign = bits & 32 ? -1 : 1;
        if (format == FORMAT_FP8) {
            scale = sign * scale / 448;
            memcpy(at, &scale, sizeof scale);
        } else if (format == FORMAT_MXFP4) {
            at[16] = (unsigned char)(ilogbf(size / 6) + 126 + (int)(bits >> 8 & 1));
        } else if (format == FORMAT_NVFP4) {
            for (int i = 0; i < 4; i++)                     /* the upper bit is not used */
                at[i] = (unsigned char)(f32_to_e4m3(scale * (float)(i + 1) / 24) | (bits >> i & 128));
        } else if (format == FORMAT_NVFP4_S) {
            const float whole = size / (3 + (float)(bits >> 16 & 7)) / 448;     /* any: rows need not share one */
            for (int i = 0; i < 4; i++)
                at[i] = (unsigned char)(scale == 0 ? 0 : (bits >> 8 >> 4 * i) % 0x7f);
            memcpy(at + 4, &whole, sizeof whole);
        } else {
            coded_half(at + kind.at, sign * scale / kind.largest);
            if (kind.second >= 0)
                coded_half(at + kind.second, sign * scale / kind.second_largest);
        }
    }
    for (int k = 0; format == FORMAT_FP8 && k < inputs; k++)
        if ((row[blocks * 4 + k] & 0x7f) == 0x7f)
            row[blocks * 4 + k] ^= 1;
    return row;
}

static inline double coded_f16(const unsigned char *at)
{
    int half = at[0] | at[1] << 8, exponent = half >> 10 & 31, fraction = half & 1023;
    double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half & 0x8000 ? -value : value;
}

static inline double coded_e4m3(int code)
{
    int exponent = code >> 3 & 15, fraction = code & 7;
    double value = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return code & 0x80 ? -value : value;
}

/* Returns code n of input k of a block of Q4_K or Q5_K. */
static inline double coded_between(const unsigned char *b, int k, int n)
{
    const unsigned char *s = b + 4;
    int j = k / 32, sc, m;
    if (j < 4) {
        sc = s[j] & 63;
        m = s[j + 4] & 63;
    } else {
        sc = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        m = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
    return coded_f16(b) * sc * n - coded_f16(b + 2) * m;
}

static inline double coded_q6_k(const unsigned char *b, int k)
{
    int h = k / 128, t = k % 128 / 32, l = k % 32;
    int a = b[64 * h + l], c = b[64 * h + l + 32], high = b[128 + 32 * h + l] >> 2 * t & 3;
    int low = t == 0 ? a & 15 : t == 1 ? c & 15 : t == 2 ? a >> 4 : c >> 4;
    return coded_f16(b + 208) * (int8_t)b[192 + 8 * h + l / 16 + 2 * t] * ((low | high << 4) - 32);
}

static inline double coded_q3_k(const unsigned char *b, int k)
{
    const unsigned char *high = b, *low = b + 32, *s = b + 96;
    int code = (low[k / 128 * 32 + k % 32] >> k / 32 % 4 * 2 & 3) - (high[k % 32] >> k / 32 & 1 ? 0 : 4), j = k / 16;
    int scale = (s[j % 8] >> j / 8 * 4 & 15) | (s[8 + j % 4] >> j / 4 * 2 & 3) << 4;
    return coded_f16(b + 108) * (scale - 32) * code;
}

/* 16 bytes contain 32 codes. */
static inline int coded_nibble(const unsigned char *bytes, int k) { return k < 16 ? bytes[k] & 15 : bytes[k - 16] >> 4; }

/* Returns the weight of a code of IQ2 (two bits) or IQ3 (four bits): the magnitude times 1 or -1. */
static inline double coded_grid(enum weight_format format, int group, int signs, int k)
{
    static const int two[4] = {8, 25, 43, 0}, xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    int size = format == FORMAT_IQ3_S ? 1 + 2 * (group >> 4 * (k % 4) & 7)
               : format == FORMAT_IQ3_XXS ? xxs[group >> 4 * (k % 4) & 7] : two[group >> 2 * (k % 8) & 3];
    return signs >> k % 8 & 1 ? -size : size;
}

static inline int coded_parity(int index) { return index | __builtin_parity((unsigned)index) << 7; }

static inline double coded_iq(enum weight_format format, const unsigned char *b, int k)
{
    const int g = k / 8, half = k / 16 % 2 * 4;
    uint32_t word;
    switch (format) {
    case FORMAT_IQ2_XXS:
        memcpy(&word, b + 2 + k / 32 * 8 + 4, 4);
        return (0.5 + (word >> 28)) / 4 * coded_grid(format, grid_iq2_xxs()[b[2 + k / 32 * 8 + g % 4]],
                                                     coded_parity(word >> 7 * (g % 4) & 127), k);
    case FORMAT_IQ2_XS: {
        int both = b[2 + 2 * g] | b[3 + 2 * g] << 8;
        return (0.5 + (b[66 + k / 32] >> half & 15)) / 4 *
               coded_grid(format, grid_iq2_xs()[both & 511], coded_parity(both >> 9), k);
    }
    case FORMAT_IQ2_S: {
        int index = b[2 + g] | (b[66 + g / 4] >> g % 4 * 2 & 3) << 8;
        return (0.5 + (b[74 + k / 32] >> half & 15)) / 4 * coded_grid(format, grid_iq2_s()[index], b[34 + g], k);
    }
    case FORMAT_IQ3_XXS:
        memcpy(&word, b + 66 + k / 32 * 4, 4);
        return (0.5 + (word >> 28)) / 2 * coded_grid(format, grid_iq3_xxs()[b[2 + k / 4]],
                                                     coded_parity(word >> 7 * (g % 4) & 127), k);
    default: {
        int i = k / 4, index = b[2 + i] | (b[66 + i / 8] >> i % 8 & 1) << 8;
        return (1 + 2 * (b[106 + k / 64] >> k / 32 % 2 * 4 & 15)) * coded_grid(format, grid_iq3_s()[index], b[74 + g], k);
    }
    }
}

/* Returns weight k of a block of 256 or 64 inputs, or of IQ4_NL. */
static inline double coded_in_block(enum weight_format format, const unsigned char *b, int k)
{
    static const int level[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const double doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const int half = k / 64 * 32 + k % 32, shift = k / 32 % 2 * 4, quarter = k / 128 * 32 + k % 32;
    switch (format) {
    case FORMAT_Q4_K:
        return coded_between(b, k, b[16 + half] >> shift & 15);
    case FORMAT_Q5_K:
        return coded_between(b, k, (b[48 + half] >> shift & 15) + 16 * (b[16 + k % 32] >> k / 32 & 1));
    case FORMAT_Q2_K:
        return coded_f16(b + 80) * (b[k / 16] & 15) * (b[16 + quarter] >> k / 32 % 4 * 2 & 3) -
               coded_f16(b + 82) * (b[k / 16] >> 4);
    case FORMAT_Q3_K:
        return coded_q3_k(b, k);
    case FORMAT_IQ4_NL:
        return coded_f16(b) * level[coded_nibble(b + 2, k)];
    case FORMAT_IQ4_XS: {
        int j = k / 32, scale = (b[4 + j / 2] >> j % 2 * 4 & 15) | ((b[2] | b[3] << 8) >> 2 * j & 3) << 4;
        return coded_f16(b) * (scale - 32) * level[coded_nibble(b + 8 + 16 * j, k % 32)];
    }
    case FORMAT_NVFP4: {
        int s = b[k / 16], n = b[4 + k / 16 * 8 + k % 8] >> k / 8 % 2 * 4 & 15;
        return (s == 0x7f ? 0 : (s & 127) == 127 ? 480 : coded_e4m3(s & 127)) * 0.5 * doubled[n];
    }
    case FORMAT_NVFP4_S: {                                  /* s * f is rounded before the multiplication */
        float whole;
        memcpy(&whole, b + 4, sizeof whole);
        return (double)(float)(coded_e4m3(b[k / 16]) * (double)whole) * 0.5 * doubled[b[8 + k / 2] >> k % 2 * 4 & 15];
    }
    case FORMAT_Q6_K:
        return coded_q6_k(b, k);
    default:
        return coded_f16(b) * coded_iq(format, b, k);
    }
}

/* Returns the weight of an input, rounded to f32 once: written from the formats' own descriptions, not from the packing. */
static inline float coded_weight(enum weight_format format, const unsigned char *row, int inputs, int k)
{
    static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    if (format == FORMAT_FP8) {
        float scale;
        memcpy(&scale, row + k / 128 * 4, sizeof scale);
        return (float)(coded_e4m3(row[(inputs + 127) / 128 * 4 + k]) * (double)scale);
    }
    if (format == FORMAT_Q8) {
        const unsigned char *b = row + k / 32 * 34;
        return (float)(coded_f16(b) * (int8_t)b[2 + k % 32]);
    }
    if (format == FORMAT_Q4) {
        const unsigned char *b = row + k / 32 * 18;
        int n = k % 32 < 16 ? b[2 + k % 32] & 15 : b[2 + k % 32 - 16] >> 4;
        return (float)(coded_f16(b) * (n - 8));
    }
    if (format == FORMAT_MXFP4) {
        const unsigned char *b = row + k / 32 * 17;
        int n = k % 2 ? b[k % 32 / 2] >> 4 : b[k % 32 / 2] & 15;
        return (float)ldexp(n & 8 ? -e2m1[n & 7] : e2m1[n & 7], b[16] - 127);
    }
    const int block = coded_block(format);
    return (float)coded_in_block(format, row + (size_t)(k / block) * format_coded_bytes(format, block), k % block);
}

#endif
