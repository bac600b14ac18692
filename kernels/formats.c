#include "kernels/formats.h"

#include <math.h>
#include <string.h>

#include "common/base/float.h"
#include "common/base/mem.h"
#include "kernels/formats_coded.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "weights are mapped and used as they lie in the file");

#define NAME_OF(NAME, name, kind, step, block, bytes) [FORMAT_##NAME] = #name,
static const char *const NAMES[FORMAT_COUNT] = {WEIGHT_FORMATS(NAME_OF)};

const char *format_name(enum weight_format format) { return NAMES[format]; }

bool format_by_name(const char *name, enum weight_format *out)
{
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (strcmp(name, NAMES[i]) == 0) {
            *out = (enum weight_format)i;
            return true;
        }
    return false;
}

float format_limit(enum weight_format format)
{
    const float f16 = 65520.0f;                             /* this value and larger ones round to infinity */
    switch (format) {
    case FORMAT_F16: return f16;
    case FORMAT_Q8: return f16 * 127;
    case FORMAT_Q4: return f16 * 8;
    case FORMAT_FP8: return 0x1.fffp127f;                   /* a scale may be rounded up */
    default: return INFINITY;
    }
}

/* Returns the number of units of `width` elements for `count` elements. */
static uint64_t units_of(int64_t count, int width) { return (uint64_t)(count - 1) / (uint64_t)width + 1; }

static bool checked_unit_bytes(enum weight_format format, int64_t inputs, size_t *bytes)
{
    uint64_t steps = units_of(inputs, format_step_inputs(format));
    return inputs >= 1 && steps <= SIZE_MAX && size_mul((size_t)steps, format_step_bytes(format), bytes);
}

bool matrix_bytes(enum weight_format format, int64_t outputs, int64_t inputs, size_t *bytes)
{
    size_t unit;
    if (outputs < 1 || !checked_unit_bytes(format, inputs, &unit) || units_of(outputs, UNIT_OUTPUTS) > SIZE_MAX)
        return false;
    return size_mul(unit, (size_t)units_of(outputs, UNIT_OUTPUTS), bytes);
}

bool expert_bytes(enum weight_format format, int64_t hidden, int64_t inner, size_t *bytes)
{
    size_t unit, gate_up, down;
    if (hidden < 1 || inner < 1 || !checked_unit_bytes(format, hidden, &unit) || units_of(inner, UNIT_INNER) > SIZE_MAX)
        return false;
    return size_mul(unit, (size_t)units_of(inner, UNIT_INNER), &gate_up) && matrix_bytes(format, hidden, inner, &down) &&
           size_add(gate_up, down, bytes);
}

size_t unit_bytes(enum weight_format format, int inputs)
{
    return (size_t)units_of(inputs, format_step_inputs(format)) * format_step_bytes(format);
}

size_t expert_down_offset(enum weight_format format, int hidden, int inner)
{
    return unit_bytes(format, hidden) * (size_t)units_of(inner, UNIT_INNER);
}

bool ungated_expert_bytes(enum weight_format format, int64_t hidden, int64_t inner, size_t *bytes)
{
    size_t up, down;
    return matrix_bytes(format, inner, hidden, &up) && matrix_bytes(format, hidden, inner, &down) && size_add(up, down, bytes);
}

size_t ungated_down_offset(enum weight_format format, int hidden, int inner)
{
    return unit_bytes(format, hidden) * (size_t)units_of(inner, UNIT_OUTPUTS);
}

/* Returns the byte offset in a unit of the value of one output (0..31) and one input, for f32, f16 and bf16. */
static size_t offset_in_unit(enum weight_format format, int output, int input)
{
    size_t o = (size_t)output, k = (size_t)input;
    switch (format) {
    case FORMAT_F32:
        return k * UNIT_STEP_BYTES + o * 4;
    case FORMAT_F16:
        return k / 2 * UNIT_STEP_BYTES + k % 2 * (UNIT_STEP_BYTES / 2) + o * 2;
    default:
        return k / 2 * UNIT_STEP_BYTES + o * 4 + k % 2 * 2;
    }
}

static void unit_put(enum weight_format format, unsigned char *unit, int output, int input, float value)
{
    unsigned char *at = unit + offset_in_unit(format, output, input);
    if (format == FORMAT_F32) {
        memcpy(at, &value, sizeof value);
    } else {
        uint16_t half = format == FORMAT_F16 ? f32_to_f16(value) : f32_to_bf16(value);
        memcpy(at, &half, sizeof half);
    }
}

/* ---- blocks of q8 and q4 ---- */

/* Returns the byte offset of a weight in a block's integers: two groups of inputs share their bytes in q4. */
static size_t offset_in_block(enum weight_format format, int output, int input)
{
    int group = format == FORMAT_Q8 ? input / 4 : input / 8;
    return (size_t)group * UNIT_STEP_BYTES + (size_t)output * 4 + (size_t)(input % 4);
}

/* Quantises and stores one output's weights of one block, `count` of them (the last block of a row may have fewer than 32). */
static void block_put(enum weight_format format, unsigned char *block, int output, int count, const float *values)
{
    const int low = format == FORMAT_Q8 ? -127 : -8, high = format == FORMAT_Q8 ? 127 : 7;
    float largest = 0;
    for (int i = 0; i < count; i++)
        if (fabsf(values[i]) > fabsf(largest))
            largest = values[i];
    uint16_t half = f32_to_f16(format == FORMAT_Q8 ? fabsf(largest) / 127 : largest / -8);
    float scale = f16_to_f32(half);
    memcpy(block + format_step_bytes(format) - BLOCK_SCALE_BYTES + output * 2, &half, sizeof half);
    for (int i = 0; i < BLOCK_INPUTS; i++) {
        float exact = i < count && scale != 0 ? rintf(values[i] / scale) : 0;
        int q = !(exact > (float)low) ? low : exact > (float)high ? high : (int)exact;
        unsigned char *at = block + offset_in_block(format, output, i);
        if (format == FORMAT_Q8)
            *at = (unsigned char)(q + 128);
        else if (i % 8 < 4)
            *at = (unsigned char)((*at & 0xf0) | (q + 8));
        else
            *at = (unsigned char)((*at & 0x0f) | (q + 8) << 4);
    }
}

static void row_put(enum weight_format format, unsigned char *unit, int output, int inputs, const float *values)
{
    if (format == FORMAT_FP8) {
        coded_put_floats(unit, output, inputs, values);
        return;
    }
    if (!format_quantised(format)) {
        for (int k = 0; k < inputs; k++)
            unit_put(format, unit, output, k, values[k]);
        return;
    }
    for (int k = 0; k < inputs; k += BLOCK_INPUTS, unit += format_step_bytes(format))
        block_put(format, unit, output, inputs - k < BLOCK_INPUTS ? inputs - k : BLOCK_INPUTS, values + k);
}

static int block_integer(enum weight_format format, const unsigned char *block, int output, int input, float *scale)
{
    unsigned byte = block[offset_in_block(format, output, input)];
    uint16_t half;
    memcpy(&half, block + format_step_bytes(format) - BLOCK_SCALE_BYTES + output * 2, sizeof half);
    *scale = f16_to_f32(half);
    return format == FORMAT_Q8 ? (int)byte - 128 : (int)(input % 8 < 4 ? byte & 15 : byte >> 4) - 8;
}

static float unit_at(enum weight_format format, const unsigned char *unit, int output, int input)
{
    if (format_quantised(format)) {
        float scale;
        int q = block_integer(format, unit + (size_t)(input / BLOCK_INPUTS) * format_step_bytes(format), output,
                              input % BLOCK_INPUTS, &scale);
        return (float)q * scale;
    }
    if (format_scaled(format))
        return coded_at(format, unit, output, input);
    const unsigned char *at = unit + offset_in_unit(format, output, input);
    if (format == FORMAT_F32) {
        float value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return format == FORMAT_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

/* Returns the unit that contains row `row` of a matrix with `width` of its rows per unit. */
static const unsigned char *unit_of(enum weight_format format, const void *packed, int inputs, int row, int width)
{
    return (const unsigned char *)packed + unit_bytes(format, inputs) * (size_t)(row / width);
}

static unsigned char *unit_at_row(enum weight_format format, void *packed, int inputs, int row, int width)
{
    return (unsigned char *)packed + unit_bytes(format, inputs) * (size_t)(row / width);
}

static void pack_rows(enum weight_format format, void *packed, int inputs, int width, int shift, int first, int rows,
                      const float *values)
{
    for (int row = first; row < first + rows; row++, values += inputs)
        row_put(format, unit_at_row(format, packed, inputs, row, width), shift + row % width, inputs, values);
}

static uint64_t get64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void put64(unsigned char *at, uint64_t low, uint64_t high)
{
    uint64_t value = (uint32_t)low | high << 32;
    memcpy(at, &value, sizeof value);
}

/* Coded rows of plain elements, and the unit into which put_words and put_halves transpose them. */
struct plain_rows {
    unsigned char *unit;                /* begins at the first output of these rows */
    const unsigned char *coded;
    size_t row_bytes, size, step;       /* row_bytes: of a coded row; size: of an element; step: of a step of the unit, with
                                         * one element per output */
};

static void put_each(const struct plain_rows *p, size_t row, size_t rows, size_t first, size_t count)
{
    for (; row < rows; row++)
        for (size_t k = first; k < count; k++)
            memcpy(p->unit + k * p->step + row * p->size, p->coded + row * p->row_bytes + k * p->size, p->size);
}

/* Transposes blocks of 2 x 2 elements of 4 bytes. */
static void put_words(const struct plain_rows *p, size_t rows, size_t count)
{
    const size_t rows_at_once = rows & ~(size_t)1, at_once = count & ~(size_t)1;
    for (size_t k = 0; k < at_once; k += 2)
        for (size_t row = 0; row < rows_at_once; row += 2) {
            const unsigned char *from = p->coded + row * p->row_bytes + k * 4;
            unsigned char *to = p->unit + k * p->step + row * 4;
            const uint64_t a = get64(from), b = get64(from + p->row_bytes);
            put64(to, a, b);
            put64(to + p->step, a >> 32, b >> 32);
        }
    put_each(p, 0, rows_at_once, at_once, count);
    put_each(p, rows_at_once, rows, 0, count);
}

/* Transposes blocks of 4 x 4 elements of 2 bytes, first within pairs. */
static void put_halves(const struct plain_rows *p, size_t rows, size_t count)
{
    const size_t rows_at_once = rows & ~(size_t)3, at_once = count & ~(size_t)3;
    const uint64_t even = 0x0000ffff0000ffffu;
    for (size_t k = 0; k < at_once; k += 4)
        for (size_t row = 0; row < rows_at_once; row += 4) {
            const unsigned char *from = p->coded + row * p->row_bytes + k * 2;
            unsigned char *to = p->unit + k * p->step + row * 2;
            const uint64_t a = get64(from), b = get64(from + p->row_bytes);
            const uint64_t c = get64(from + 2 * p->row_bytes), d = get64(from + 3 * p->row_bytes);
            const uint64_t ab = (a & even) | (b & even) << 16, ab_odd = (a >> 16 & even) | (b & ~even);
            const uint64_t cd = (c & even) | (d & even) << 16, cd_odd = (c >> 16 & even) | (d & ~even);
            put64(to, ab, cd);
            put64(to + p->step, ab_odd, cd_odd);
            put64(to + 2 * p->step, ab >> 32, cd >> 32);
            put64(to + 3 * p->step, ab_odd >> 32, cd_odd >> 32);
        }
    put_each(p, 0, rows_at_once, at_once, count);
    put_each(p, rows_at_once, rows, 0, count);
}

/* Copies rows of f32, f16 or bf16 into one unit, as its outputs from `output` on. Pairs of bf16 are elements of 4 bytes. */
static void put_plain(enum weight_format format, unsigned char *unit, int output, int rows, int inputs,
                      const unsigned char *coded)
{
    const size_t size = format == FORMAT_F16 ? 2 : 4, bytes = format_coded_bytes(format, inputs);
    const struct plain_rows p = {unit + (size_t)output * size, coded, bytes, size, UNIT_OUTPUTS * size};
    (size == 2 ? put_halves : put_words)(&p, (size_t)rows, bytes / size);
    for (int row = 0; bytes % size && row < rows; row++)
        memcpy(unit + offset_in_unit(format, output + row, inputs - 1), coded + (size_t)(row + 1) * bytes - 2, 2);
}

static void pack_coded(enum weight_format format, void *packed, int inputs, int width, int shift, int first, int rows,
                       const unsigned char *coded)
{
    const size_t bytes = format_coded_bytes(format, inputs);
    for (int row = first, some; row < first + rows; row += some, coded += bytes * (size_t)some) {
        const int left = first + rows - row, room = width - row % width, output = shift + row % width;
        unsigned char *unit = unit_at_row(format, packed, inputs, row, width);
        some = format_scaled(format) ? 1 : left < room ? left : room;
        if (format_scaled(format))
            coded_put(format, unit, output, inputs, coded);
        else
            put_plain(format, unit, output, some, inputs, coded);
    }
}

void matrix_pack(enum weight_format format, void *packed, int inputs, int first, int rows, const float *values)
{
    pack_rows(format, packed, inputs, UNIT_OUTPUTS, 0, first, rows, values);
}

void expert_pack_gate_up(enum weight_format format, void *packed, int hidden, int part, int first, int rows,
                         const float *values)
{
    pack_rows(format, packed, hidden, UNIT_INNER, part * UNIT_INNER, first, rows, values);
}

void expert_pack_down(enum weight_format format, void *packed, int hidden, int inner, int first, int rows, const float *values)
{
    matrix_pack(format, (unsigned char *)packed + expert_down_offset(format, hidden, inner), inner, first, rows, values);
}

void matrix_pack_coded(enum weight_format format, void *packed, int inputs, int first, int rows, const void *coded)
{
    pack_coded(format, packed, inputs, UNIT_OUTPUTS, 0, first, rows, coded);
}

void expert_pack_gate_up_coded(enum weight_format format, void *packed, int hidden, int part, int first, int rows,
                               const void *coded)
{
    pack_coded(format, packed, hidden, UNIT_INNER, part * UNIT_INNER, first, rows, coded);
}

size_t operand_bytes(enum weight_format format, int inputs)
{
    const size_t blocks = (size_t)quantised_blocks(inputs);
    if (format == FORMAT_BF16)
        return blocks * PARTS_STEP + PARTS_LINE;
    return format_integers(format) ? blocks * sizeof(struct quantised) : 0;
}

void expert_pack_down_coded(enum weight_format format, void *packed, int hidden, int inner, int first, int rows,
                            const void *coded)
{
    unsigned char *down = (unsigned char *)packed + expert_down_offset(format, hidden, inner);
    matrix_pack_coded(format, down, inner, first, rows, coded);
}

float matrix_at(enum weight_format format, const void *packed, int inputs, int output, int input)
{
    return unit_at(format, unit_of(format, packed, inputs, output, UNIT_OUTPUTS), output % UNIT_OUTPUTS, input);
}

int matrix_integer(enum weight_format format, const void *packed, int inputs, int output, int input, float *scale)
{
    const unsigned char *unit = unit_of(format, packed, inputs, output, UNIT_OUTPUTS);
    if (!format_quantised(format)) {
        const struct woven_parts parts = coded_parts(format, unit, output % UNIT_OUTPUTS, input);
        *scale = format_halves(format) ? parts.scale : parts.scale * (float)parts.factor;
        return format_halves(format) ? parts.factor * parts.code : parts.code;
    }
    return block_integer(format, unit + (size_t)(input / BLOCK_INPUTS) * format_step_bytes(format), output % UNIT_OUTPUTS,
                         input % BLOCK_INPUTS, scale);
}

float matrix_less(enum weight_format format, const void *packed, int inputs, int output, int input)
{
    return coded_parts(format, unit_of(format, packed, inputs, output, UNIT_OUTPUTS), output % UNIT_OUTPUTS, input).less;
}

float expert_gate_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column)
{
    (void)inner;
    return unit_at(format, unit_of(format, packed, hidden, row, UNIT_INNER), row % UNIT_INNER, column);
}

float expert_up_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column)
{
    (void)inner;
    return unit_at(format, unit_of(format, packed, hidden, row, UNIT_INNER), UNIT_INNER + row % UNIT_INNER, column);
}

float expert_down_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column)
{
    const unsigned char *down = (const unsigned char *)packed + expert_down_offset(format, hidden, inner);
    return matrix_at(format, down, inner, row, column);
}
