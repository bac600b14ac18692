/* Random coded rows (kernels/formats.h), and what their weights are, read by a decoder of its own. */
#ifndef MOE_TESTS_KERNEL_CODED_H
#define MOE_TESTS_KERNEL_CODED_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/float.h"
#include "kernels/formats.h"

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

/* One row of any codes, whose weights have magnitudes up to about `size`; to be freed. One scale in 16 is 0. */
static inline unsigned char *coded_draw(enum weight_format format, int inputs, float size, uint64_t *seed)
{
    size_t bytes = format_coded_bytes(format, inputs);
    unsigned char *row = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        row[i] = (unsigned char)(coded_bits(seed) >> 7);
    int blocks = format == FORMAT_FP8 ? (inputs + 127) / 128
                 : format == FORMAT_Q4_K || format == FORMAT_Q6_K ? (inputs + 255) / 256 : (inputs + 31) / 32;
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
        } else if (format == FORMAT_Q4_K) {
            coded_half(at, sign * scale / (63 * 15));
            coded_half(at + 2, sign * scale / 126);
        } else {
            coded_half(at + (format == FORMAT_Q6_K ? 208 : 0),
                       sign * scale / (format == FORMAT_Q6_K ? 4096 : format == FORMAT_Q8 ? 128 : 8));
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

/* The weight of an input, rounded to f32 once: written from the formats' own descriptions, not from the packing. */
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
    if (format == FORMAT_Q4_K) {
        const unsigned char *b = row + k / 256 * 144, *s = b + 4, *qs = b + 16;
        int j = k % 256 / 32, sc, m, n = qs[32 * (j / 2) + k % 32];
        if (j < 4) {
            sc = s[j] & 63;
            m = s[j + 4] & 63;
        } else {
            sc = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
            m = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
        }
        return (float)(coded_f16(b) * sc * (j % 2 ? n >> 4 : n & 15) - coded_f16(b + 2) * m);
    }
    const unsigned char *b = row + k / 256 * 210;
    int h = k % 256 / 128, t = k % 128 / 32, l = k % 32;
    int a = b[64 * h + l], c = b[64 * h + l + 32], high = b[128 + 32 * h + l] >> 2 * t & 3;
    int low = t == 0 ? a & 15 : t == 1 ? c & 15 : t == 2 ? a >> 4 : c >> 4;
    return (float)(coded_f16(b + 208) * (int8_t)b[192 + 8 * h + l / 16 + 2 * t] * ((low | high << 4) - 32));
}

#endif
