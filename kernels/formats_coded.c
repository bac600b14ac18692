#include "kernels/formats_coded.h"

#include <math.h>
#include <string.h>

#include "common/base/float.h"

enum { Q8_0_BYTES = 34, Q4_0_BYTES = 18, MXFP4_BYTES = 17, Q4_K_BYTES = 144, Q6_K_BYTES = 210 };

/* The scales 2^(s - 127) up to this one leave the largest E2M1, 6, finite. */
enum { MXFP4_SCALE_MAX = 252 };

static uint16_t get16(const unsigned char *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t get32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static float get_float(const unsigned char *at) { return float_from_bits(get32(at)); }

static int blocks_of(int inputs, int block) { return inputs / block + (inputs % block != 0); }

static size_t plain_bytes(enum weight_format format) { return format == FORMAT_F32 ? sizeof(float) : sizeof(uint16_t); }

/* Inputs and bytes of one block of a coded row; fp8 and plain values have no blocks. */
static int block_inputs(enum weight_format format)
{
    return format == FORMAT_Q4_K || format == FORMAT_Q6_K ? SUPERBLOCK_INPUTS : BLOCK_INPUTS;
}

static size_t block_bytes(enum weight_format format)
{
    switch (format) {
    case FORMAT_Q8: return Q8_0_BYTES;
    case FORMAT_Q4: return Q4_0_BYTES;
    case FORMAT_MXFP4: return MXFP4_BYTES;
    case FORMAT_Q4_K: return Q4_K_BYTES;
    default: return Q6_K_BYTES;
    }
}

bool format_fits(enum weight_format format, int64_t inputs)
{
    return !format_scaled(format) || format == FORMAT_FP8 || inputs % block_inputs(format) == 0;
}

size_t format_coded_bytes(enum weight_format format, int inputs)
{
    if (!format_scaled(format))
        return (size_t)inputs * plain_bytes(format);
    if (format == FORMAT_FP8)
        return (size_t)blocks_of(inputs, FP8_BLOCK_INPUTS) * sizeof(float) + (size_t)inputs;
    return (size_t)blocks_of(inputs, block_inputs(format)) * block_bytes(format);
}

/* ---- checking ---- */

static bool finite16(const unsigned char *at) { return (get16(at) & 0x7c00) != 0x7c00; }

/* Values side by side in a word: those whose exponents are all ones carry into their signs when the lowest bit is added. */
static int plain_check(enum weight_format format, int inputs, const unsigned char *row)
{
    const size_t size = plain_bytes(format), bytes = (size_t)inputs * size;
    const uint64_t exponents = format == FORMAT_F32 ? 0x7f8000007f800000u
                               : format == FORMAT_F16 ? 0x7c007c007c007c00u : 0x7f807f807f807f80u;
    const uint64_t lowest = exponents & ~(exponents << 1), signs = exponents << 1 & ~exponents;
    uint64_t word, all = 0;
    size_t at = 0;
    for (; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, row + at, sizeof word);
        all |= (word & exponents) + lowest;
    }
    word = 0;
    memcpy(&word, row + at, bytes - at);
    all |= (word & exponents) + lowest;
    for (int k = 0; all & signs && k < inputs; k++) {
        word = 0;
        memcpy(&word, row + (size_t)k * size, size);
        if (((word & exponents) + lowest) & signs)
            return k;
    }
    return -1;
}

static int fp8_check(int inputs, const unsigned char *row)
{
    const int blocks = blocks_of(inputs, FP8_BLOCK_INPUTS);
    for (int b = 0; b < blocks; b++)
        if (!isfinite(get_float(row + b * 4) * 448))
            return b * FP8_BLOCK_INPUTS;
    for (int k = 0; k < inputs; k++)
        if ((row[blocks * 4 + k] & 0x7f) == 0x7f)
            return k;
    return -1;
}

static bool block_finite(enum weight_format format, const unsigned char *block)
{
    switch (format) {
    case FORMAT_MXFP4: return block[16] <= MXFP4_SCALE_MAX;
    case FORMAT_Q4_K: return finite16(block) && finite16(block + 2);
    case FORMAT_Q6_K: return finite16(block + 208);
    default: return finite16(block);
    }
}

int format_coded_check(enum weight_format format, int inputs, const void *row)
{
    const unsigned char *block = row;
    if (!format_scaled(format))
        return plain_check(format, inputs, row);
    if (format == FORMAT_FP8)
        return fp8_check(inputs, row);
    for (int k = 0; k < inputs; k += block_inputs(format), block += block_bytes(format))
        if (!block_finite(format, block))
            return k;
    return -1;
}

/* ---- packing ---- */

static void put_fp8(unsigned char *unit, int output, int inputs, const unsigned char *row)
{
    const unsigned char *code = row + blocks_of(inputs, FP8_BLOCK_INPUTS) * 4;
    for (int k = 0; k < inputs; k += FP8_BLOCK_INPUTS, unit += FP8_BLOCK_BYTES) {
        const int count = inputs - k < FP8_BLOCK_INPUTS ? inputs - k : FP8_BLOCK_INPUTS;
        memcpy(unit + output * 4, row + k / FP8_BLOCK_INPUTS * 4, 4);
        for (int i = 0; i < count; i++)
            unit[FP8_CODES + i / 2 * FP8_PAIR_BYTES + output * 2 + i % 2] = code[k + i];
    }
}

void coded_put_floats(unsigned char *unit, int output, int inputs, const float *values)
{
    for (int k = 0; k < inputs; k += FP8_BLOCK_INPUTS, unit += FP8_BLOCK_BYTES) {
        const int count = inputs - k < FP8_BLOCK_INPUTS ? inputs - k : FP8_BLOCK_INPUTS;
        float max = 0;
        for (int i = 0; i < count; i++)
            max = fabsf(values[k + i]) > max ? fabsf(values[k + i]) : max;
        float scale = max / 448;
        memcpy(unit + output * 4, &scale, sizeof scale);
        for (int i = 0; i < count; i++)
            unit[FP8_CODES + i / 2 * FP8_PAIR_BYTES + output * 2 + i % 2] = scale != 0 ? f32_to_e4m3(values[k + i] / scale) : 0;
    }
}

/* A coded block has the 8 inputs of a group in 4 bytes, in their order. */
static void put_mxfp4(unsigned char *pair, int output, int half, const unsigned char *block)
{
    const int groups = BLOCK_INPUTS / GROUP_INPUTS;
    pair[half * UNIT_OUTPUTS + output] = block[16];
    for (int g = 0; g < groups; g++)
        memcpy(pair + MXFP4_GROUPS + (half * groups + g) * GROUP_BYTES + output * 4, block + 4 * g, 4);
}

/* The lower halves of 8 bytes side by side. */
static uint32_t halves_of(const unsigned char *bytes, int shift)
{
    uint64_t x;
    memcpy(&x, bytes, sizeof x);
    x = x >> shift & 0x0f0f0f0f0f0f0f0fu;
    x = (x | x >> 4) & 0x00ff00ff00ff00ffu;
    x = (x | x >> 8) & 0x0000ffff0000ffffu;
    return (uint32_t)(x | x >> 16);
}

static void put_q4_k(unsigned char *packed, int output, const unsigned char *block)
{
    memcpy(packed + output * 2, block, 2);
    memcpy(packed + Q4_K_MINIMA + output * 2, block + 2, 2);
    for (int i = 0; i < 3; i++)
        memcpy(packed + Q4_K_SCALES + i * GROUP_BYTES + output * 4, block + 4 + i * 4, 4);
    for (int k = 0; k < SUPERBLOCK_INPUTS; k += GROUP_INPUTS) {
        uint32_t group = halves_of(block + 16 + k / 64 * 32 + k % 32, k / 32 % 2 * 4);
        memcpy(packed + Q4_K_GROUPS + k / GROUP_INPUTS * GROUP_BYTES + output * 4, &group, sizeof group);
    }
}

/* q of the 16 inputs from k on of GGUF's block. */
static void q6_k_group(const unsigned char *block, int k, uint32_t *q)
{
    const int half = k / 128, part = k % 128 / 32, l = k % 32;
    const unsigned char *low = block + 64 * half + l + part % 2 * 32, *high = block + 128 + 32 * half + l;
    for (int i = 0; i < Q6_K_GROUP_INPUTS; i++)
        q[i] = (low[i] >> part / 2 * 4 & 15u) | (high[i] >> part * 2 & 3u) << 4;
}

static void put_q6_k(unsigned char *packed, int output, const unsigned char *block)
{
    memcpy(packed + output * 2, block + 208, 2);
    for (int i = 0; i < SUPERBLOCK_INPUTS / Q6_K_GROUP_INPUTS; i++)
        packed[Q6_K_SCALES + i * UNIT_OUTPUTS + output] = block[192 + i];
    for (int k = 0; k < SUPERBLOCK_INPUTS; k += Q6_K_GROUP_INPUTS) {
        uint32_t q[Q6_K_GROUP_INPUTS], word[3];
        q6_k_group(block, k, q);
        for (int w = 0; w < 3; w++) {
            word[w] = (q[15] >> 2 * w & 3) << 30;
            for (int i = 0; i < 5; i++)
                word[w] |= q[5 * w + i] << 6 * i;
            memcpy(packed + Q6_K_GROUPS + k / Q6_K_GROUP_INPUTS * Q6_K_GROUP_BYTES + w * GROUP_BYTES + output * 4, &word[w], 4);
        }
    }
}

static void put_q8(unsigned char *packed, int output, const unsigned char *block)
{
    memcpy(packed + 1024 + output * 2, block, 2);
    for (int i = 0; i < BLOCK_INPUTS; i += 4) {
        uint32_t four = get32(block + 2 + i) ^ 0x80808080u;
        memcpy(packed + i / 4 * UNIT_STEP_BYTES + output * 4, &four, sizeof four);
    }
}

static void put_q4(unsigned char *packed, int output, const unsigned char *block)
{
    memcpy(packed + 512 + output * 2, block, 2);
    for (int i = 0; i < BLOCK_INPUTS; i += 8) {
        const unsigned char *at = block + 2 + i % 16;
        uint32_t low = get32(at) >> i / 16 * 4 & 0x0f0f0f0fu, high = get32(at + 4) >> i / 16 * 4 & 0x0f0f0f0fu;
        low |= high << 4;
        memcpy(packed + i / 8 * UNIT_STEP_BYTES + output * 4, &low, sizeof low);
    }
}

void coded_put(enum weight_format format, unsigned char *unit, int output, int inputs, const unsigned char *row)
{
    if (format == FORMAT_FP8) {
        put_fp8(unit, output, inputs, row);
        return;
    }
    for (int b = 0; b < blocks_of(inputs, block_inputs(format)); b++, row += block_bytes(format))
        switch (format) {
        case FORMAT_Q8:
            put_q8(unit + (size_t)b * Q8_BLOCK_BYTES, output, row);
            break;
        case FORMAT_Q4:
            put_q4(unit + (size_t)b * Q4_BLOCK_BYTES, output, row);
            break;
        case FORMAT_MXFP4:
            put_mxfp4(unit + (size_t)(b / 2) * MXFP4_PAIR_BYTES, output, b % 2, row);
            break;
        case FORMAT_Q4_K:
            put_q4_k(unit + (size_t)b * Q4_K_BLOCK_BYTES, output, row);
            break;
        default:
            put_q6_k(unit + (size_t)b * Q6_K_BLOCK_BYTES, output, row);
        }
}

/* ---- coded rows as floats ---- */

static void values_plain(enum weight_format format, int inputs, const unsigned char *row, float *values)
{
    if (format == FORMAT_F32)
        memcpy(values, row, (size_t)inputs * sizeof *values);
    for (int k = 0; format != FORMAT_F32 && k < inputs; k++)
        values[k] = format == FORMAT_F16 ? f16_to_f32(get16(row + 2 * k)) : bf16_to_f32(get16(row + 2 * k));
}

static void values_fp8(int inputs, const unsigned char *row, float *values)
{
    const unsigned char *code = row + blocks_of(inputs, FP8_BLOCK_INPUTS) * 4;
    for (int k = 0; k < inputs; k++)
        values[k] = e4m3_to_f32(code[k]) * get_float(row + k / FP8_BLOCK_INPUTS * 4);
}

static float e2m1(unsigned code)
{
    static const float value[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return value[code];
}

static void q4_k_values(const unsigned char *block, float *values)
{
    const unsigned char *s = block + 4, *qs = block + 16;
    for (int j = 0; j < 8; j++) {
        int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        int minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
        float factor = f16_to_f32(get16(block)) * (float)scale, less = -(f16_to_f32(get16(block + 2)) * (float)minimum);
        for (int i = 0; i < 32; i++)
            values[32 * j + i] = fmaf(factor, (float)(qs[j / 2 * 32 + i] >> j % 2 * 4 & 15), less);
    }
}

static void q6_k_values(const unsigned char *block, float *values)
{
    for (int k = 0; k < SUPERBLOCK_INPUTS; k += Q6_K_GROUP_INPUTS) {
        uint32_t q[Q6_K_GROUP_INPUTS];
        float factor = f16_to_f32(get16(block + 208)) * (float)(int8_t)block[192 + k / Q6_K_GROUP_INPUTS];
        q6_k_group(block, k, q);
        for (int i = 0; i < Q6_K_GROUP_INPUTS; i++)
            values[k + i] = fmaf(factor, (float)(64 + q[i]), -96 * factor);
    }
}

static void block_values(enum weight_format format, const unsigned char *block, float *values)
{
    if (format == FORMAT_Q4_K || format == FORMAT_Q6_K) {
        (format == FORMAT_Q4_K ? q4_k_values : q6_k_values)(block, values);
        return;
    }
    for (int i = 0; i < BLOCK_INPUTS; i++)
        switch (format) {
        case FORMAT_Q8:
            values[i] = (float)(int8_t)block[2 + i] * f16_to_f32(get16(block));
            break;
        case FORMAT_Q4:
            values[i] = (float)((block[2 + i % 16] >> i / 16 * 4 & 15) - 8) * f16_to_f32(get16(block));
            break;
        default:
            values[i] = e2m1(block[i / 2] >> i % 2 * 4 & 15u) *
                        float_from_bits(block[16] ? (uint32_t)block[16] << 23 : 0x00400000u);
        }
}

void format_coded_values(enum weight_format format, int inputs, const void *row, float *values)
{
    const unsigned char *block = row;
    const int step = block_inputs(format);
    if (!format_scaled(format) || format == FORMAT_FP8) {
        if (format == FORMAT_FP8)
            values_fp8(inputs, row, values);
        else
            values_plain(format, inputs, row, values);
        return;
    }
    for (int k = 0; k < inputs; k += step, block += block_bytes(format)) {
        float all[SUPERBLOCK_INPUTS];
        block_values(format, block, all);
        memcpy(values + k, all, (size_t)(inputs - k < step ? inputs - k : step) * sizeof *values);
    }
}

/* ---- reading ---- */

static unsigned nibble_at(const unsigned char *groups, int output, int input)
{
    return get32(groups + input / GROUP_INPUTS * GROUP_BYTES + output * 4) >> input % GROUP_INPUTS * 4 & 15;
}

static float mxfp4_at(const unsigned char *pair, int output, int input)
{
    return ldexpf(e2m1(nibble_at(pair + MXFP4_GROUPS, output, input)),
                  pair[input / BLOCK_INPUTS * UNIT_OUTPUTS + output] - 127);
}

static float q4_k_at(const unsigned char *block, int output, int input)
{
    const int j = input / 32, i = j % 4 * 8;
    uint32_t s[3], scale, minimum;
    for (int k = 0; k < 3; k++)
        s[k] = get32(block + Q4_K_SCALES + k * GROUP_BYTES + output * 4) >> i;
    scale = j < 4 ? s[0] & 63 : (s[2] & 15) | (s[0] >> 6 & 3) << 4;
    minimum = j < 4 ? s[1] & 63 : (s[2] >> 4 & 15) | (s[1] >> 6 & 3) << 4;
    float d = f16_to_f32(get16(block + output * 2)), dmin = f16_to_f32(get16(block + Q4_K_MINIMA + output * 2));
    return fmaf(d * (float)scale, (float)nibble_at(block + Q4_K_GROUPS, output, input), -(dmin * (float)minimum));
}

static float q6_k_at(const unsigned char *block, int output, int input)
{
    const int i = input % Q6_K_GROUP_INPUTS, number = input / Q6_K_GROUP_INPUTS;
    const unsigned char *group = block + Q6_K_GROUPS + number * Q6_K_GROUP_BYTES + output * 4;
    uint32_t q = 0;
    if (i < 15)
        q = get32(group + i / 5 * GROUP_BYTES) >> i % 5 * 6 & 63;
    for (int d = 0; i == 15 && d < 3; d++)
        q |= get32(group + d * GROUP_BYTES) >> 30 << 2 * d;
    float scale = f16_to_f32(get16(block + output * 2)) * (float)(int8_t)block[Q6_K_SCALES + number * UNIT_OUTPUTS + output];
    return fmaf(scale, (float)(64 + q), -96 * scale);
}

float coded_at(enum weight_format format, const unsigned char *unit, int output, int input)
{
    const int super = input / SUPERBLOCK_INPUTS, k = input % SUPERBLOCK_INPUTS, i = input % FP8_BLOCK_INPUTS;
    const unsigned char *fp8 = unit + (size_t)(input / FP8_BLOCK_INPUTS) * FP8_BLOCK_BYTES;
    switch (format) {
    case FORMAT_FP8:
        return e4m3_to_f32(fp8[FP8_CODES + i / 2 * FP8_PAIR_BYTES + output * 2 + i % 2]) * get_float(fp8 + output * 4);
    case FORMAT_MXFP4:
        return mxfp4_at(unit + (size_t)(input / 64) * MXFP4_PAIR_BYTES, output, input % 64);
    case FORMAT_Q4_K:
        return q4_k_at(unit + (size_t)super * Q4_K_BLOCK_BYTES, output, k);
    default:
        return q6_k_at(unit + (size_t)super * Q6_K_BLOCK_BYTES, output, k);
    }
}
