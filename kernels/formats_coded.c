#include "kernels/formats_coded.h"

#include <math.h>
#include <string.h>

#include "common/base/float.h"
#include "kernels/formats_woven.h"

/* Largest s for which the scale 2^(s - 127) keeps the largest E2M1, 6, finite. */
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
struct block { int inputs; size_t bytes; };
#define BLOCK_OF(NAME, name, kind, step, block, bytes) [FORMAT_##NAME] = {block, bytes},
static const struct block BLOCKS[FORMAT_COUNT] = {WEIGHT_FORMATS(BLOCK_OF)};

static int block_inputs(enum weight_format format) { return BLOCKS[format].inputs; }
static size_t block_bytes(enum weight_format format) { return BLOCKS[format].bytes; }

/* Fields of woven blocks (formats_woven.h). */
struct fields { int scales, floats, halves, bytes; };
#define FIELDS_OF(NAME, name, scales, floats, halves, bytes) [FORMAT_##NAME] = {scales, floats, halves, bytes},
static const struct fields FIELDS[FORMAT_COUNT] = {WOVEN_FIELDS(FIELDS_OF)};
enum { WOVEN_MAX = 256 };               /* bytes of a woven block */

static bool is_woven(enum weight_format format) { return FIELDS[format].halves + FIELDS[format].bytes > 0; }

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

/* Returns the first input whose value is not finite; -1: none. Checks adjacent values in a word at once: adding the lowest bit
 * of the exponent carries into the sign if all bits of the exponent are ones. */
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
    bool finite = true;
    if (format == FORMAT_MXFP4)
        return block[16] <= MXFP4_SCALE_MAX;
    for (int i = 0; format == FORMAT_NVFP4_S && i < 4; i++)
        finite &= block[i] < 0x7f;
    if (format == FORMAT_NVFP4_S)
        return finite && isfinite(get_float(block + 4) * (448 * 6));
    if (format_quantised(format))
        return finite16(block);
    for (int i = 0; i < FIELDS[format].floats; i++)
        finite &= finite16(block + FIELDS[format].scales + 2 * i);
    return finite;
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

/* Stores a coded block of mxfp4, whose 8 inputs of a group are 4 bytes in ascending order. */
static void put_mxfp4(unsigned char *pair, int output, int half, const unsigned char *block)
{
    const int groups = BLOCK_INPUTS / GROUP_INPUTS;
    pair[half * UNIT_OUTPUTS + output] = block[16];
    for (int g = 0; g < groups; g++)
        memcpy(pair + MXFP4_GROUPS + (half * groups + g) * GROUP_BYTES + output * 4, block + 4 * g, 4);
}

/* Returns the lower halves of 8 bytes, after a shift by `shift` bits, packed into a word. */
static uint32_t halves_of(const unsigned char *bytes, int shift)
{
    uint64_t x;
    memcpy(&x, bytes, sizeof x);
    x = x >> shift & 0x0f0f0f0f0f0f0f0fu;
    x = (x | x >> 4) & 0x00ff00ff00ff00ffu;
    x = (x | x >> 8) & 0x0000ffff0000ffffu;
    return (uint32_t)(x | x >> 16);
}

/* ---- weaving: all but the scales in f16 ---- */

static void q4_k_weave(const unsigned char *block, unsigned char *woven)
{
    memcpy(woven + 4, block + 4, 12);
    for (int k = 0; k < SUPERBLOCK_INPUTS; k += GROUP_INPUTS) {
        uint32_t group = halves_of(block + 16 + k / 64 * 32 + k % 32, k / 32 % 2 * 4);
        memcpy(woven + 16 + k / 2, &group, sizeof group);
    }
}

/* Unpacks q of the 16 inputs from k on of GGUF's block. */
static void q6_k_group(const unsigned char *block, int k, uint32_t *q)
{
    const int half = k / 128, part = k % 128 / 32, l = k % 32;
    const unsigned char *low = block + 64 * half + l + part % 2 * 32, *high = block + 128 + 32 * half + l;
    for (int i = 0; i < Q6_K_GROUP_INPUTS; i++)
        q[i] = (low[i] >> part / 2 * 4 & 15u) | (high[i] >> part * 2 & 3u) << 4;
}

static void q6_k_weave(const unsigned char *block, unsigned char *woven)
{
    memcpy(woven + 2, block + 192, 16);
    for (int k = 0; k < SUPERBLOCK_INPUTS; k += Q6_K_GROUP_INPUTS) {
        uint32_t q[Q6_K_GROUP_INPUTS], word[3];
        q6_k_group(block, k, q);
        for (int w = 0; w < 3; w++) {
            word[w] = (q[15] >> 2 * w & 3) << 30;
            for (int i = 0; i < 5; i++)
                word[w] |= q[5 * w + i] << 6 * i;
        }
        memcpy(woven + 18 + k / Q6_K_GROUP_INPUTS * 12, word, sizeof word);
    }
}

/* Returns code i of Q5_K. Its fifth bit is bit i / 32 of the byte 16 + i % 32. */
static uint32_t q5_k_code(const unsigned char *block, int i)
{
    return (block[48 + i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15u) | (block[16 + i % 32] >> i / 32 & 1u) << 4;
}

static void q5_k_weave(const unsigned char *block, unsigned char *woven)
{
    memcpy(woven + 4, block + 4, 12);
    for (int k = 0; k < SUPERBLOCK_INPUTS; k += 32) {
        uint32_t word[5];
        const uint32_t last = q5_k_code(block, k + 30), after = q5_k_code(block, k + 31);
        for (int w = 0; w < 5; w++) {
            word[w] = 0;
            for (int i = 0; i < 6; i++)
                word[w] |= q5_k_code(block, k + 6 * w + i) << 5 * i;
        }
        word[0] |= last << 30;
        word[1] |= last >> 2 << 30;
        word[2] |= last >> 4 << 30 | after >> 4 << 31;
        word[3] |= after << 30;
        word[4] |= after >> 2 << 30;
        memcpy(woven + 16 + k / 32 * 20, word, sizeof word);
    }
}

/* Weaves 32 codes of 4 bits to words of 8. The lower halves of 16 bytes are the first 16 codes, the upper halves the others. */
static void weave_halves(const unsigned char *bytes, unsigned char *woven)
{
    for (int g = 0; g < 4; g++) {
        const uint32_t group = halves_of(bytes + g % 2 * 8, g / 2 * 4);
        memcpy(woven + 4 * g, &group, sizeof group);
    }
}

static void iq4_xs_weave(const unsigned char *block, unsigned char *woven)
{
    memcpy(woven + 2, block + 2, 6);
    for (int j = 0; j < 8; j++)
        weave_halves(block + 8 + 16 * j, woven + 8 + 16 * j);
}

static void iq4_nl_weave(const unsigned char *block, unsigned char *woven) { weave_halves(block + 2, woven + 2); }

static uint32_t q3_k_code(const unsigned char *block, int i)
{
    return (block[32 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3u) | (block[i % 32] >> i / 32 & 1u) << 2;
}

static void q3_k_weave(const unsigned char *block, unsigned char *woven)
{
    memcpy(woven + 2, block + 96, 12);
    for (int k = 0; k < SUPERBLOCK_INPUTS; k += 32) {
        uint32_t word[3] = {0};
        for (int half = 0; half < 2; half++) {
            const int first = k + 16 * half;
            const uint32_t last = q3_k_code(block, first + 15);
            for (int i = 0; i < 10; i++)
                word[half] |= q3_k_code(block, first + i) << 3 * i;
            for (int i = 10; i < 15; i++)
                word[2] |= q3_k_code(block, first + i) << (16 * half + 3 * i - 30);
            word[half] |= last << 30;
            word[2] |= last >> 2 << (16 * half + 15);
        }
        memcpy(woven + 14 + k / 32 * 12, word, sizeof word);
    }
}

static void q2_k_weave(const unsigned char *block, unsigned char *woven)
{
    memcpy(woven + 4, block, 16);
    for (int k = 0; k < SUPERBLOCK_INPUTS; k += 16) {
        uint32_t word = 0;
        for (int i = 0; i < 16; i++)
            word |= (block[16 + k / 128 * 32 + k % 32 + i] >> k / 32 % 4 * 2 & 3u) << 2 * i;
        memcpy(woven + 20 + k / 4, &word, sizeof word);
    }
}

static void nvfp4_weave(const unsigned char *block, unsigned char *woven)
{
    memcpy(woven, block, 4);
    for (int g = 0; g < 8; g++) {
        const uint32_t group = halves_of(block + 4 + g / 2 * 8, g % 2 * 4);
        memcpy(woven + 4 + 4 * g, &group, sizeof group);
    }
}

/* Blocks of these formats are not rearranged. */
static void nvfp4_s_weave(const unsigned char *block, unsigned char *woven) { memcpy(woven, block, 40); }
static void iq3_s_weave(const unsigned char *block, unsigned char *woven) { memcpy(woven + 2, block + 2, 108); }
static void iq3_xxs_weave(const unsigned char *block, unsigned char *woven) { memcpy(woven + 2, block + 2, 96); }
static void iq2_s_weave(const unsigned char *block, unsigned char *woven) { memcpy(woven + 2, block + 2, 80); }
static void iq2_xs_weave(const unsigned char *block, unsigned char *woven) { memcpy(woven + 2, block + 2, 72); }
static void iq2_xxs_weave(const unsigned char *block, unsigned char *woven) { memcpy(woven + 2, block + 2, 64); }

static void weave(enum weight_format format, const unsigned char *block, unsigned char *woven)
{
#define WEAVE_OF(NAME, name, scales, floats, halves, bytes) case FORMAT_##NAME: name##_weave(block, woven); break;
    memcpy(woven, block + FIELDS[format].scales, 2 * (size_t)FIELDS[format].floats);
    switch (format) {
        WOVEN_FIELDS(WEAVE_OF)
    default: break;
    }
}

static void put_woven(enum weight_format format, unsigned char *packed, int output, const unsigned char *block)
{
    const size_t total = block_bytes(format), o = (size_t)output, halves = 2 * (size_t)FIELDS[format].halves;
    unsigned char woven[WOVEN_MAX];
    size_t x = 0;
    weave(format, block, woven);
    for (; x < halves; x += 2)
        memcpy(packed + UNIT_OUTPUTS * x + 2 * o, woven + x, 2);
    for (; x < halves + (size_t)FIELDS[format].bytes; x++)
        packed[UNIT_OUTPUTS * x + o] = woven[x];
    for (; x < total; x += 4)
        memcpy(packed + UNIT_OUTPUTS * x + 4 * o, woven + x, 4);
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
        default:
            put_woven(format, unit + (size_t)b * format_step_bytes(format), output, row);
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

static void block_values(enum weight_format format, const unsigned char *block, float *values)
{
    if (is_woven(format)) {
        unsigned char woven[WOVEN_MAX];
        weave(format, block, woven);
        for (int i = 0; i < block_inputs(format); i++)
            values[i] = woven_weight(format, woven, 1, 0, i);
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

static struct woven_parts mxfp4_parts(const unsigned char *pair, int output, int input)
{
    const float scale = ldexpf(0.5f, pair[input / BLOCK_INPUTS * UNIT_OUTPUTS + output] - 127);
    return woven_product(scale, 1, e2m1_twice(nibble_at(pair + MXFP4_GROUPS, output, input)), 0);
}

static float mxfp4_at(const unsigned char *pair, int output, int input)
{
    return ldexpf(e2m1(nibble_at(pair + MXFP4_GROUPS, output, input)),
                  pair[input / BLOCK_INPUTS * UNIT_OUTPUTS + output] - 127);
}

float coded_at(enum weight_format format, const unsigned char *unit, int output, int input)
{
    const int step = format_step_inputs(format), i = input % step;
    const unsigned char *block = unit + (size_t)(input / step) * format_step_bytes(format);
    switch (format) {
    case FORMAT_FP8:
        return e4m3_to_f32(block[FP8_CODES + i / 2 * FP8_PAIR_BYTES + output * 2 + i % 2]) * get_float(block + output * 4);
    case FORMAT_MXFP4:
        return mxfp4_at(block, output, i);
    default:
        return woven_weight(format, block, UNIT_OUTPUTS, output, i);
    }
}

struct woven_parts coded_parts(enum weight_format format, const unsigned char *unit, int output, int input)
{
    const int step = format_step_inputs(format), i = input % step;
    const unsigned char *block = unit + (size_t)(input / step) * format_step_bytes(format);
    return format == FORMAT_MXFP4 ? mxfp4_parts(block, output, i) : woven_parts_of(format, block, UNIT_OUTPUTS, output, i);
}
