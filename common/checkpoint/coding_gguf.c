#include "common/checkpoint/coding_gguf.h"

#include <math.h>
#include <string.h>

#include "common/base/float.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/gguf_grids.h"

const char coding_gguf_names[] =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, MXFP4, NVFP4, TQ1_0, TQ2_0 and IQ1 to IQ4";

static float half_at(const uint8_t *at) { return f16_to_f32((uint16_t)(at[0] | at[1] << 8)); }

/* Nibbles of 32 values: those of the low halves first. */
static int nibble(const uint8_t *bytes, int i) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; }

static int fifth(const uint8_t *bits, int i) { return (bits[i / 8] >> i % 8 & 1) << 4; }

static void decode_q4_1(const uint8_t *b, float *out)
{
    for (int i = 0; i < 32; i++)
        out[i] = half_at(b) * (float)nibble(b + 4, i) + half_at(b + 2);
}

static void decode_q5_0(const uint8_t *b, float *out)
{
    for (int i = 0; i < 32; i++)
        out[i] = half_at(b) * (float)((nibble(b + 6, i) | fifth(b + 2, i)) - 16);
}

static void decode_q5_1(const uint8_t *b, float *out)
{
    for (int i = 0; i < 32; i++)
        out[i] = half_at(b) * (float)(nibble(b + 8, i) | fifth(b + 4, i)) + half_at(b + 2);
}

static void decode_q5_k(const uint8_t *b, float *out)
{
    const uint8_t *s = b + 4, *high = b + 16, *low = b + 48;
    for (int j = 0; j < 8; j++) {
        int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        int min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
        float d = half_at(b) * (float)scale, m = half_at(b + 2) * (float)min;
        for (int i = 0; i < 32; i++) {
            int code = (low[j / 2 * 32 + i] >> j % 2 * 4 & 15) | (high[i] >> j & 1) << 4;
            out[32 * j + i] = d * (float)code - m;
        }
    }
}

static void decode_q2_k(const uint8_t *b, float *out)
{
    for (int i = 0; i < 256; i++) {
        const uint8_t scales = b[i / 16], code = b[16 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
        const float d = half_at(b + 80) * (float)(scales & 15), m = half_at(b + 82) * (float)(scales >> 4);
        out[i] = d * (float)code - m;
    }
}

static void decode_q3_k(const uint8_t *b, float *out)
{
    const uint8_t *high = b, *low = b + 32, *s = b + 96;
    for (int i = 0; i < 256; i++) {
        const int j = i / 16, scale = (s[j % 8] >> j / 8 * 4 & 15) | (s[8 + j % 4] >> j / 4 * 2 & 3) << 4;
        const int code = (low[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3) - (high[i % 32] >> i / 32 & 1 ? 0 : 4);
        out[i] = half_at(b + 108) * (float)(scale - 32) * (float)code;
    }
}

static const int8_t IQ4_LEVELS[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void decode_iq4_nl(const uint8_t *b, float *out)
{
    for (int i = 0; i < 32; i++)
        out[i] = half_at(b) * (float)IQ4_LEVELS[nibble(b + 2, i)];
}

static void decode_iq4_xs(const uint8_t *b, float *out)
{
    const int high = b[2] | b[3] << 8;
    for (int j = 0; j < 8; j++) {
        const int scale = (b[4 + j / 2] >> j % 2 * 4 & 15) | (high >> 2 * j & 3) << 4;
        const float d = half_at(b) * (float)(scale - 32);
        for (int i = 0; i < 32; i++)
            out[32 * j + i] = d * (float)IQ4_LEVELS[nibble(b + 8 + 16 * j, i)];
    }
}

/* The value of a ternary digit: the byte holds the digits of a fraction of 256, the first one highest. */
static int ternary(uint8_t byte, int digit)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    return ((uint8_t)(byte * power[digit]) * 3 >> 8) - 1;
}

static void decode_tq1_0(const uint8_t *b, float *out)
{
    for (int i = 0; i < 256; i++) {
        const int code = i < 160   ? ternary(b[i % 32], i / 32)
                         : i < 240 ? ternary(b[32 + (i - 160) % 16], (i - 160) / 16)
                                   : ternary(b[48 + (i - 240) % 4], (i - 240) / 4);
        out[i] = half_at(b + 52) * (float)code;
    }
}

static void decode_tq2_0(const uint8_t *b, float *out)
{
    for (int i = 0; i < 256; i++)
        out[i] = half_at(b + 64) * (float)((b[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3) - 1);
}

/* Unsigned E4M3, where 0x7f is 0 as ggml reads it. */
static float ue4m3(uint8_t code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    if (code == 0x7f)
        return 0;
    return exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
}

static void decode_nvfp4(const uint8_t *b, float *out)
{
    static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (int i = 0; i < 64; i++) {
        const int code = b[4 + i / 16 * 8 + i % 8] >> i / 8 % 2 * 4 & 15;
        out[i] = ue4m3(b[i / 16]) * 0.5f * (float)doubled[code];
    }
}

static void decode_q4_0(const uint8_t *b, float *out) { format_coded_values(FORMAT_Q4, 32, b, out); }
static void decode_q8_0(const uint8_t *b, float *out) { format_coded_values(FORMAT_Q8, 32, b, out); }
static void decode_q4_k(const uint8_t *b, float *out) { format_coded_values(FORMAT_Q4_K, 256, b, out); }
static void decode_q6_k(const uint8_t *b, float *out) { format_coded_values(FORMAT_Q6_K, 256, b, out); }

/* Neighbours into one byte, the scale after them. */
static void order_mxfp4(const uint8_t *b, uint8_t *out)
{
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)(nibble(b + 1, 2 * i) | nibble(b + 1, 2 * i + 1) << 4);
    out[16] = b[0];
}

static void decode_mxfp4(const uint8_t *b, float *out)
{
    uint8_t ordered[17];
    order_mxfp4(b, ordered);
    format_coded_values(FORMAT_MXFP4, 32, ordered, out);
}

static int read_blocks(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                       struct source_reading *reading, float *values, struct err *err)
{
    const struct gguf_coding *type = (const struct gguf_coding *)t->coding;
    const int64_t blocks = count / type->block;
    if (source_raw(cp, t, (uint64_t)(first / type->block * type->bytes), (size_t)(blocks * type->bytes), reading, 0, err))
        return -1;
    for (int64_t i = 0; i < blocks; i++)
        type->decode(reading->raw + i * type->bytes, values + i * type->block);
    return 0;
}

/* Blocks that coded rows have too. */
static int read_rows(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                     struct source_reading *reading, unsigned char *coded, struct err *err)
{
    const struct gguf_coding *type = (const struct gguf_coding *)t->coding;
    const size_t all = (size_t)(count / type->block * type->bytes);
    if (source_raw(cp, t, (uint64_t)(first / type->block * type->bytes), all, reading, 0, err))
        return -1;
    memcpy(coded, reading->raw, all);
    return 0;
}

static int read_rows_mxfp4(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                           struct source_reading *reading, unsigned char *coded, struct err *err)
{
    const size_t blocks = (size_t)(count / 32);
    if (source_raw(cp, t, (uint64_t)(first / 32 * 17), blocks * 17, reading, 0, err))
        return -1;
    for (size_t i = 0; i < blocks; i++)
        order_mxfp4(reading->raw + 17 * i, coded + 17 * i);
    return 0;
}

#define KEPT(name, format, rows) {name, format, read_blocks, rows}
#define READ(name)               {name, FORMAT_F32, read_blocks, NULL}
const struct gguf_coding gguf_codings[] = {
    {KEPT("Q4_0", FORMAT_Q4, read_rows), 2, 32, 18, decode_q4_0},
    {READ("Q4_1"), 3, 32, 20, decode_q4_1},
    {READ("Q5_0"), 6, 32, 22, decode_q5_0},
    {READ("Q5_1"), 7, 32, 24, decode_q5_1},
    {KEPT("Q8_0", FORMAT_Q8, read_rows), 8, 32, 34, decode_q8_0},
    {READ("Q2_K"), 10, 256, 84, decode_q2_k},
    {READ("Q3_K"), 11, 256, 110, decode_q3_k},
    {KEPT("Q4_K", FORMAT_Q4_K, read_rows), 12, 256, 144, decode_q4_k},
    {READ("Q5_K"), 13, 256, 176, decode_q5_k},
    {KEPT("Q6_K", FORMAT_Q6_K, read_rows), 14, 256, 210, decode_q6_k},
    {READ("IQ2_XXS"), 16, 256, 66, gguf_decode_iq2_xxs},
    {READ("IQ2_XS"), 17, 256, 74, gguf_decode_iq2_xs},
    {READ("IQ3_XXS"), 18, 256, 98, gguf_decode_iq3_xxs},
    {READ("IQ1_S"), 19, 256, 50, gguf_decode_iq1_s},
    {READ("IQ4_NL"), 20, 32, 18, decode_iq4_nl},
    {READ("IQ3_S"), 21, 256, 110, gguf_decode_iq3_s},
    {READ("IQ2_S"), 22, 256, 82, gguf_decode_iq2_s},
    {READ("IQ4_XS"), 23, 256, 136, decode_iq4_xs},
    {READ("IQ1_M"), 29, 256, 56, gguf_decode_iq1_m},
    {READ("TQ1_0"), 34, 256, 54, decode_tq1_0},
    {READ("TQ2_0"), 35, 256, 66, decode_tq2_0},
    {KEPT("MXFP4", FORMAT_MXFP4, read_rows_mxfp4), 39, 32, 17, decode_mxfp4},
    {READ("NVFP4"), 40, 64, 36, decode_nvfp4},
    {{NULL}}};
