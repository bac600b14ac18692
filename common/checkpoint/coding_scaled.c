#include "common/checkpoint/coding_scaled.h"

#include <string.h>

#include "common/base/float.h"
#include "common/base/mem.h"
#include "common/checkpoint/checkpoint.h"

/* Rows of a joined tensor, and where reading->raw contains the scales of the current row. */
struct scaled_rows {
    int64_t columns, first, count;          /* rows first .. first + count, counted over all matrices */
    int64_t rows, row_blocks, column_blocks;            /* in one matrix: rows; blocks with a scale each, along a column
                                             * and along a row */
    int64_t held;                           /* the row of scales that is in raw now; -1: none */
    size_t scales;                          /* byte offset in raw of the scales, as f32 */
};

static void scaled_begin(struct scaled_rows *s, const struct source_tensor *t, int64_t first, int64_t count, size_t code_bytes)
{
    int64_t columns = t->dims[t->dim_count - 1], rows = t->dim_count > 1 ? t->dims[t->dim_count - 2] : 1;
    *s = (struct scaled_rows){.columns = columns, .first = first / columns, .count = count / columns, .rows = rows,
                              .row_blocks = (rows + t->block[0] - 1) / t->block[0],
                              .column_blocks = (columns + t->block[1] - 1) / t->block[1], .held = -1};
    s->scales = size_align((size_t)count * code_bytes, sizeof(float));
}

/* Reads the scales of one row to the end of raw and converts them to f32 in place, from the last to the first, because the
 * result is larger. */
static int scaled_take(const struct checkpoint *cp, const struct source_tensor *t, struct scaled_rows *s, int64_t row,
                       struct source_reading *reading, struct err *err)
{
    const struct source_tensor *scale = &t->parts[1];
    int64_t number = (s->first + row) / s->rows * s->row_blocks + (s->first + row) % s->rows / t->block[0];
    size_t count = (size_t)s->column_blocks, element = scale->coding == &coding_f32 ? sizeof(float) : sizeof(uint16_t);
    if (number == s->held)
        return 0;
    if (mem_grow(&reading->raw, &reading->room, s->scales + count * sizeof(float), 1, err) ||
        source_raw(cp, scale, (uint64_t)number * count * element, count * element, reading, s->scales, err))
        return -1;
    s->held = number;
    uint8_t *at = reading->raw + s->scales;
    for (size_t i = count; element == sizeof(uint16_t) && i-- > 0;) {
        uint16_t half;
        memcpy(&half, at + i * sizeof half, sizeof half);
        float value = scale->coding == &coding_bf16 ? bf16_to_f32(half) : f16_to_f32(half);
        memcpy(at + i * sizeof value, &value, sizeof value);
    }
    return 0;
}

static float scaled_at(const struct source_reading *reading, const struct scaled_rows *s, int64_t block)
{
    float value;
    memcpy(&value, reading->raw + s->scales + (size_t)block * sizeof value, sizeof value);
    return value;
}

static int read_codes(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                      struct source_reading *reading, float *values, bool fp8, struct err *err)
{
    struct scaled_rows s;
    scaled_begin(&s, t, first, count, 1);
    if (source_raw(cp, &t->parts[0], (uint64_t)first, (size_t)count, reading, 0, err))
        return -1;
    for (int64_t row = 0; row < s.count; row++) {
        if (scaled_take(cp, t, &s, row, reading, err))
            return -1;
        const uint8_t *code = reading->raw + row * s.columns;
        for (int64_t i = 0; i < s.columns; i++)
            values[row * s.columns + i] = (fp8 ? e4m3_to_f32(code[i]) : (float)(int8_t)code[i]) *
                                          scaled_at(reading, &s, i / t->block[1]);
    }
    return 0;
}

static int read_fp8(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                    struct source_reading *reading, float *values, struct err *err)
{
    return read_codes(cp, t, first, count, reading, values, true, err);
}

static int read_i8(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                   struct source_reading *reading, float *values, struct err *err)
{
    return read_codes(cp, t, first, count, reading, values, false, err);
}

static int read_fp8_coded(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                          struct source_reading *reading, unsigned char *coded, struct err *err)
{
    struct scaled_rows s;
    scaled_begin(&s, t, first, count, 1);
    size_t bytes = format_coded_bytes(FORMAT_FP8, (int)s.columns), blocks = (bytes - (size_t)s.columns) / sizeof(float);
    if (source_raw(cp, &t->parts[0], (uint64_t)first, (size_t)count, reading, 0, err))
        return -1;
    for (int64_t row = 0; row < s.count; row++, coded += bytes) {
        if (scaled_take(cp, t, &s, row, reading, err))
            return -1;
        for (size_t i = 0; i < blocks; i++) {
            float scale = scaled_at(reading, &s, (int64_t)i * FP8_BLOCK_INPUTS / t->block[1]);
            memcpy(coded + i * sizeof scale, &scale, sizeof scale);
        }
        memcpy(coded + blocks * sizeof(float), reading->raw + row * s.columns, (size_t)s.columns);
    }
    return 0;
}

/* Interleaves blocks of 16 bytes with their scales, which are two tensors in the file. */
static int read_mxfp4_coded(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                            struct source_reading *reading, unsigned char *coded, struct err *err)
{
    size_t blocks = (size_t)count / 32, codes = blocks * 16;
    uint64_t begin = (uint64_t)first / 32;
    if (source_raw(cp, &t->parts[0], begin * 16, codes, reading, 0, err) ||
        source_raw(cp, &t->parts[1], begin, blocks, reading, codes, err))
        return -1;
    for (size_t i = 0; i < blocks; i++, coded += 17) {
        memcpy(coded, reading->raw + i * 16, 16);
        coded[16] = reading->raw[codes + i];
    }
    return 0;
}

static int read_mxfp4(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                      struct source_reading *reading, float *values, struct err *err)
{
    int columns = (int)t->dims[t->dim_count - 1];
    size_t bytes = format_coded_bytes(FORMAT_MXFP4, columns);
    unsigned char *coded = mem_alloc((size_t)(count / columns), bytes, err);
    if (!coded || read_mxfp4_coded(cp, t, first, count, reading, coded, err)) {
        mem_free(&coded);
        return -1;
    }
    for (int64_t row = 0; row < count / columns; row++)
        format_coded_values(FORMAT_MXFP4, columns, coded + (size_t)row * bytes, values + row * columns);
    mem_free(&coded);
    return 0;
}

/* Reads codes and then scales to raw, and the scale of the matrix. */
static int nvfp4_take(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                      struct source_reading *reading, float *whole, struct err *err)
{
    const size_t codes = (size_t)count / 2, scales = (size_t)count / 16;
    return source_raw(cp, &t->parts[0], (uint64_t)first / 2, codes, reading, 0, err) ||
           source_raw(cp, &t->parts[1], (uint64_t)first / 16, scales, reading, codes, err) ||
           source_bytes(cp, &t->parts[2], 0, sizeof *whole, reading, whole, err) ? -1 : 0;
}

static bool nvfp4_divides(const struct source_tensor *t)
{
    return t->coding == &coding_nvfp4_divided || t->coding == &coding_nvfp4_divided_narrow;
}

static int read_nvfp4(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                      struct source_reading *reading, float *values, struct err *err)
{
    static const float magnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const size_t codes = (size_t)count / 2, scales = (size_t)count / 16;
    float whole;
    if (nvfp4_take(cp, t, first, count, reading, &whole, err))
        return -1;
    for (size_t block = 0; block < scales; block++, values += 16) {
        const uint8_t *code = reading->raw + block * 8;
        const float own = e4m3_to_f32(reading->raw[codes + block]);
        const float scale = nvfp4_divides(t) ? own / whole : own * whole;
        for (int i = 0; i < 16; i++) {
            const int bits = code[i / 2] >> i % 2 * 4 & 15;
            values[i] = (bits & 8 ? -magnitude[bits & 7] : magnitude[bits]) * scale;
        }
    }
    return 0;
}

/* Joins blocks of 64 inputs. A minus sign of a scale moves to its codes. */
static int read_nvfp4_coded(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                            struct source_reading *reading, unsigned char *coded, struct err *err)
{
    enum { SCALES = 4, EACH = 8, CODES = SCALES * EACH };
    float whole;
    if (nvfp4_take(cp, t, first, count, reading, &whole, err))
        return -1;
    const float factor = nvfp4_divides(t) ? 1 / whole : whole;
    const uint8_t *code = reading->raw, *scale = reading->raw + (size_t)count / 2;
    for (int64_t k = 0; k < count; k += 2 * CODES, code += CODES, scale += SCALES, coded += SCALES + sizeof factor + CODES) {
        memcpy(coded + SCALES, &factor, sizeof factor);
        for (int i = 0; i < SCALES; i++) {
            coded[i] = scale[i] & 0x7f;
            for (int j = i * EACH; j < (i + 1) * EACH; j++)
                coded[SCALES + sizeof factor + (size_t)j] = code[j] ^ (scale[i] & 0x80 ? 0x88 : 0);
        }
    }
    return 0;
}

static int read_gguf_scaled(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                            struct source_reading *reading, float *values, struct err *err)
{
    const int64_t matrix = t->dims[t->dim_count - 1] * (t->dim_count > 1 ? t->dims[t->dim_count - 2] : 1);
    const bool one = t->parts[1].bytes == sizeof(float);
    if (t->parts[0].coding->read(cp, &t->parts[0], first, count, reading, values, err))
        return -1;
    for (int64_t at = 0, end; at < count; at = end) {
        const int64_t number = (first + at) / matrix;
        float scale;
        end = one || (number + 1) * matrix - first > count ? count : (number + 1) * matrix - first;
        if (source_bytes(cp, &t->parts[1], one ? 0 : (uint64_t)number * sizeof scale, sizeof scale, reading, &scale, err))
            return -1;
        for (; at < end; at++)
            values[at] *= scale;
    }
    return 0;
}

const struct source_coding coding_fp8 = {"F8_E4M3", FORMAT_FP8, read_fp8, read_fp8_coded};
const struct source_coding coding_fp8_narrow = {"F8_E4M3", FORMAT_F32, read_fp8, NULL};
const struct source_coding coding_i8 = {"I8", FORMAT_F32, read_i8, NULL};
const struct source_coding coding_mxfp4 = {"MXFP4", FORMAT_MXFP4, read_mxfp4, read_mxfp4_coded};
const struct source_coding coding_nvfp4 = {"NVFP4", FORMAT_NVFP4_S, read_nvfp4, read_nvfp4_coded};
const struct source_coding coding_nvfp4_divided = {"NVFP4", FORMAT_NVFP4_S, read_nvfp4, read_nvfp4_coded};
const struct source_coding coding_nvfp4_narrow = {"NVFP4", FORMAT_F32, read_nvfp4, NULL};
const struct source_coding coding_nvfp4_divided_narrow = {"NVFP4", FORMAT_F32, read_nvfp4, NULL};
const struct source_coding coding_gguf_scaled = {"scaled", FORMAT_F32, read_gguf_scaled, NULL};
