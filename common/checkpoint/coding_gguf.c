#include "common/checkpoint/coding_gguf.h"

#include <string.h>

#include "common/base/float.h"
#include "common/checkpoint/checkpoint.h"

const char coding_gguf_names[] = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K and MXFP4";

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
                       struct source_reading *reading, float *values, int block, int bytes,
                       void (*decode)(const uint8_t *block, float *values), struct err *err)
{
    const int64_t blocks = count / block;
    if (source_raw(cp, t, (uint64_t)(first / block * bytes), (size_t)(blocks * bytes), reading, 0, err))
        return -1;
    for (int64_t i = 0; i < blocks; i++)
        decode(reading->raw + i * bytes, values + i * block);
    return 0;
}

/* Blocks that coded rows have too. */
static int read_rows(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                     struct source_reading *reading, unsigned char *coded, int block, int bytes, struct err *err)
{
    const size_t all = (size_t)(count / block * bytes);
    if (source_raw(cp, t, (uint64_t)(first / block * bytes), all, reading, 0, err))
        return -1;
    memcpy(coded, reading->raw, all);
    return 0;
}

#define READ(type, block, bytes) \
    static int read_##type(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count, \
                           struct source_reading *reading, float *values, struct err *err) \
    { \
        return read_blocks(cp, t, first, count, reading, values, block, bytes, decode_##type, err); \
    }
#define READ_CODED(type, block, bytes) \
    static int coded_##type(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count, \
                            struct source_reading *reading, unsigned char *coded, struct err *err) \
    { \
        return read_rows(cp, t, first, count, reading, coded, block, bytes, err); \
    }

READ(q4_0, 32, 18)
READ(q4_1, 32, 20)
READ(q5_0, 32, 22)
READ(q5_1, 32, 24)
READ(q8_0, 32, 34)
READ(q4_k, 256, 144)
READ(q5_k, 256, 176)
READ(q6_k, 256, 210)
READ(mxfp4, 32, 17)
READ_CODED(q4_0, 32, 18)
READ_CODED(q8_0, 32, 34)
READ_CODED(q4_k, 256, 144)
READ_CODED(q6_k, 256, 210)

static int coded_mxfp4(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                       struct source_reading *reading, unsigned char *coded, struct err *err)
{
    const size_t blocks = (size_t)(count / 32);
    if (source_raw(cp, t, (uint64_t)(first / 32 * 17), blocks * 17, reading, 0, err))
        return -1;
    for (size_t i = 0; i < blocks; i++)
        order_mxfp4(reading->raw + 17 * i, coded + 17 * i);
    return 0;
}

const struct source_coding coding_q4_0 = {"Q4_0", FORMAT_Q4, read_q4_0, coded_q4_0};
const struct source_coding coding_q4_1 = {"Q4_1", FORMAT_F32, read_q4_1, NULL};
const struct source_coding coding_q5_0 = {"Q5_0", FORMAT_F32, read_q5_0, NULL};
const struct source_coding coding_q5_1 = {"Q5_1", FORMAT_F32, read_q5_1, NULL};
const struct source_coding coding_q8_0 = {"Q8_0", FORMAT_Q8, read_q8_0, coded_q8_0};
const struct source_coding coding_q4_k = {"Q4_K", FORMAT_Q4_K, read_q4_k, coded_q4_k};
const struct source_coding coding_q5_k = {"Q5_K", FORMAT_F32, read_q5_k, NULL};
const struct source_coding coding_q6_k = {"Q6_K", FORMAT_Q6_K, read_q6_k, coded_q6_k};
const struct source_coding coding_mxfp4_gguf = {"MXFP4", FORMAT_MXFP4, read_mxfp4, coded_mxfp4};
