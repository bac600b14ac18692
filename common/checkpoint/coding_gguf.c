#include "common/checkpoint/coding_gguf.h"

#include <math.h>
#include <string.h>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/gguf_grids.h"

const char coding_gguf_names[] =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, MXFP4, NVFP4, TQ1_0, TQ2_0 and IQ1 to IQ4";

/* Returns nibble i of 32; the low halves of the 16 bytes are nibbles 0 to 15. */
static int nibble(const uint8_t *bytes, int i) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; }

static int fifth(const uint8_t *bits, int i) { return (bits[i / 8] >> i % 8 & 1) << 4; }

static void decode_q4_1(const uint8_t *b, float *out)
{
    for (int i = 0; i < 32; i++)
        out[i] = gguf_half_at(b) * (float)nibble(b + 4, i) + gguf_half_at(b + 2);
}

static void decode_q5_0(const uint8_t *b, float *out)
{
    for (int i = 0; i < 32; i++)
        out[i] = gguf_half_at(b) * (float)((nibble(b + 6, i) | fifth(b + 2, i)) - 16);
}

static void decode_q5_1(const uint8_t *b, float *out)
{
    for (int i = 0; i < 32; i++)
        out[i] = gguf_half_at(b) * (float)(nibble(b + 8, i) | fifth(b + 4, i)) + gguf_half_at(b + 2);
}

/* Returns a ternary digit, -1, 0 or 1. byte / 256 is a fraction whose ternary digits are the codes, the most significant one
 * first. */
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
        out[i] = gguf_half_at(b + 52) * (float)code;
    }
}

static void decode_tq2_0(const uint8_t *b, float *out)
{
    for (int i = 0; i < 256; i++)
        out[i] = gguf_half_at(b + 64) * (float)((b[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3) - 1);
}


/* ---- coded blocks (kernels/formats.h) of exactly the same values ---- */

static void recode_q5_0(const uint8_t *b, uint8_t *out)
{
    memcpy(out, b, 2);
    for (int i = 0; i < 32; i++)
        out[2 + i] = (uint8_t)((nibble(b + 6, i) | fifth(b + 2, i)) - 16);
}

/* Makes a block of Q6_K of values d * scale * n, -32 <= n < 32, with one scale per 16 values. `decode` writes n from `block`
 * if d and the scales of the block are 1; the caller has set its scales to 1. */
static void to_q6_k(uint8_t *block, int d_at, void (*decode)(const uint8_t *, float *), const int8_t scales[16], uint8_t *out)
{
    float n[256];
    memcpy(out + 208, block + d_at, 2);
    memcpy(out + 192, scales, 16);
    memset(out, 0, 192);
    block[d_at] = 0, block[d_at + 1] = 0x3c;        /* 1 in f16 */
    decode(block, n);
    for (int i = 0; i < 256; i++) {
        const int code = (int)n[i] + 32, quarter = i / 32 % 4;
        out[i / 128 * 64 + quarter % 2 * 32 + i % 32] |= (uint8_t)((code & 15) << quarter / 2 * 4);
        out[128 + i / 128 * 32 + i % 32] |= (uint8_t)(code >> 4 << 2 * quarter);
    }
}

static const int8_t ONES[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void recode_tq1_0(const uint8_t *b, uint8_t *out)
{
    uint8_t block[54];
    memcpy(block, b, sizeof block);
    to_q6_k(block, 52, decode_tq1_0, ONES, out);
}

static void recode_tq2_0(const uint8_t *b, uint8_t *out)
{
    uint8_t block[66];
    memcpy(block, b, sizeof block);
    to_q6_k(block, 64, decode_tq2_0, ONES, out);
}

/* Puts neighbouring values into one byte, and the scale after the values. */
static void recode_mxfp4(const uint8_t *b, uint8_t *out)
{
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)(nibble(b + 1, 2 * i) | nibble(b + 1, 2 * i + 1) << 4);
    out[16] = b[0];
}

static void decode_mxfp4(const uint8_t *b, float *out)
{
    uint8_t ordered[17];
    recode_mxfp4(b, ordered);
    format_coded_values(FORMAT_MXFP4, 32, ordered, out);
}

void gguf_decode(const struct gguf_coding *type, const uint8_t *block, float *values)
{
    if (type->decode)
        type->decode(block, values);
    else
        format_coded_values(type->coding.format, type->block, block, values);
}

static int read_blocks(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                       struct source_reading *reading, float *values, struct err *err)
{
    const struct gguf_coding *type = (const struct gguf_coding *)t->coding;
    const int64_t blocks = count / type->block;
    if (source_raw(cp, t, (uint64_t)(first / type->block * type->bytes), (size_t)(blocks * type->bytes), reading, 0, err))
        return -1;
    for (int64_t i = 0; i < blocks; i++)
        gguf_decode(type, reading->raw + i * type->bytes, values + i * type->block);
    return 0;
}

static int read_coded(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                      struct source_reading *reading, unsigned char *coded, struct err *err)
{
    const struct gguf_coding *type = (const struct gguf_coding *)t->coding;
    const int64_t blocks = count / type->block;
    const size_t coded_bytes = format_coded_bytes(type->coding.format, type->block);
    if (source_raw(cp, t, (uint64_t)(first / type->block * type->bytes), (size_t)(blocks * type->bytes), reading, 0, err))
        return -1;
    for (int64_t i = 0; type->recode && i < blocks; i++)
        type->recode(reading->raw + i * type->bytes, coded + (size_t)i * coded_bytes);
    if (!type->recode)
        memcpy(coded, reading->raw, (size_t)blocks * coded_bytes);
    return 0;
}

#define KEPT(name, format) {name, format, read_blocks, read_coded}
#define READ(name)         {name, FORMAT_F32, read_blocks, NULL}
const struct gguf_coding gguf_codings[] = {
    {KEPT("Q4_0", FORMAT_Q4), 2, 32, 18, NULL, NULL},
    {READ("Q4_1"), 3, 32, 20, decode_q4_1, NULL},
    {KEPT("Q5_0", FORMAT_Q8), 6, 32, 22, decode_q5_0, recode_q5_0},
    {READ("Q5_1"), 7, 32, 24, decode_q5_1, NULL},
    {KEPT("Q8_0", FORMAT_Q8), 8, 32, 34, NULL, NULL},
    {KEPT("Q2_K", FORMAT_Q2_K), 10, 256, 84, NULL, NULL},
    {KEPT("Q3_K", FORMAT_Q3_K), 11, 256, 110, NULL, NULL},
    {KEPT("Q4_K", FORMAT_Q4_K), 12, 256, 144, NULL, NULL},
    {KEPT("Q5_K", FORMAT_Q5_K), 13, 256, 176, NULL, NULL},
    {KEPT("Q6_K", FORMAT_Q6_K), 14, 256, 210, NULL, NULL},
    {KEPT("IQ2_XXS", FORMAT_IQ2_XXS), 16, 256, 66, NULL, NULL},
    {KEPT("IQ2_XS", FORMAT_IQ2_XS), 17, 256, 74, NULL, NULL},
    {KEPT("IQ3_XXS", FORMAT_IQ3_XXS), 18, 256, 98, NULL, NULL},
    {READ("IQ1_S"), 19, 256, 50, gguf_decode_iq1_s, NULL},
    {KEPT("IQ4_NL", FORMAT_IQ4_NL), 20, 32, 18, NULL, NULL},
    {KEPT("IQ3_S", FORMAT_IQ3_S), 21, 256, 110, NULL, NULL},
    {KEPT("IQ2_S", FORMAT_IQ2_S), 22, 256, 82, NULL, NULL},
    {KEPT("IQ4_XS", FORMAT_IQ4_XS), 23, 256, 136, NULL, NULL},
    {READ("IQ1_M"), 29, 256, 56, gguf_decode_iq1_m, NULL},
    {KEPT("TQ1_0", FORMAT_Q6_K), 34, 256, 54, decode_tq1_0, recode_tq1_0},
    {KEPT("TQ2_0", FORMAT_Q6_K), 35, 256, 66, decode_tq2_0, recode_tq2_0},
    {KEPT("MXFP4", FORMAT_MXFP4), 39, 32, 17, decode_mxfp4, recode_mxfp4},
    {KEPT("NVFP4", FORMAT_NVFP4), 40, 64, 36, NULL, NULL},
    {{NULL}}};
