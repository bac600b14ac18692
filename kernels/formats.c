#include "kernels/formats.h"

#include <string.h>

#include "common/base/float.h"
#include "common/base/mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "weights are mapped and used as they lie in the file");

static const char *const NAMES[FORMAT_COUNT] = {[FORMAT_F32] = "f32", [FORMAT_F16] = "f16", [FORMAT_BF16] = "bf16"};

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

static bool checked_unit_bytes(enum weight_format format, int64_t inputs, size_t *bytes)
{
    uint64_t steps = format == FORMAT_F32 ? (uint64_t)inputs : (uint64_t)inputs / 2 + (uint64_t)inputs % 2;
    return inputs >= 1 && steps <= SIZE_MAX && size_mul((size_t)steps, UNIT_STEP_BYTES, bytes);
}

/* Units of `width` that hold `count` things. */
static uint64_t units_of(int64_t count, int width) { return (uint64_t)(count - 1) / (uint64_t)width + 1; }

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
    size_t steps = format == FORMAT_F32 ? (size_t)inputs : ((size_t)inputs + 1) / 2;
    return steps * UNIT_STEP_BYTES;
}

size_t expert_down_offset(enum weight_format format, int hidden, int inner)
{
    return unit_bytes(format, hidden) * (size_t)units_of(inner, UNIT_INNER);
}

/* Byte offset in a unit of the value of one output (0..31) and one input. */
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

static float unit_at(enum weight_format format, const unsigned char *unit, int output, int input)
{
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

/* Row `row` of a matrix whose units hold `width` of its rows, beginning at output `shift` of each unit. */
static const unsigned char *unit_of(enum weight_format format, const void *packed, int inputs, int row, int width)
{
    return (const unsigned char *)packed + unit_bytes(format, inputs) * (size_t)(row / width);
}

static void pack_rows(enum weight_format format, void *packed, int inputs, int width, int shift, int first, int rows,
                      const float *values)
{
    for (int r = 0; r < rows; r++) {
        int row = first + r;
        unsigned char *unit = (unsigned char *)packed + unit_bytes(format, inputs) * (size_t)(row / width);
        for (int k = 0; k < inputs; k++)
            unit_put(format, unit, shift + row % width, k, values[(size_t)r * (size_t)inputs + (size_t)k]);
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

float matrix_at(enum weight_format format, const void *packed, int inputs, int output, int input)
{
    return unit_at(format, unit_of(format, packed, inputs, output, UNIT_OUTPUTS), output % UNIT_OUTPUTS, input);
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
