#include "common/checkpoint/coding_packed.h"

#include <string.h>

#include "common/base/float.h"
#include "common/base/mem.h"
#include "common/checkpoint/checkpoint.h"

enum { WORD = sizeof(uint32_t), AWQ_CODES = 8, HALF = 16 };

/* Some rows of a joined tensor in reading->raw. Offsets of its parts are in units of 4 bytes. */
struct packed_rows {
    const struct source_tensor *tensor;
    const uint8_t *raw;
    bool awq, across;                       /* across: a word contains neighbouring inputs of one output */
    int bits, per;                          /* per: codes in a word */
    int64_t columns, outputs, first, count, groups, group;          /* group: inputs of one group */
    int64_t first_word, words;              /* range of words, if a word contains several outputs: of codes (AWQ) and of
                                             * zeros (except format packed) */
    size_t codes, scales, zeros, order, end;
};

static void packed_begin(struct packed_rows *p, const struct source_tensor *t, int64_t first, int64_t count)
{
    *p = (struct packed_rows){.tensor = t, .awq = t->coding == &coding_awq, .bits = t->bits, .per = 32 / t->bits};
    p->across = t->coding == &coding_packed || t->coding == &coding_packed_q4;
    p->columns = t->dims[1];
    p->outputs = t->dims[0];
    p->first = first / p->columns;
    p->count = count / p->columns;
    p->group = t->block[1];
    p->groups = t->parts[PACKED_SCALES].dims[p->across ? 1 : 0];
    p->first_word = p->first / p->per;
    p->words = p->count ? (p->first + p->count - 1) / p->per - p->first_word + 1 : 0;
    int64_t inner = (p->columns + p->per - 1) / p->per, codes = p->awq ? p->columns * p->words : inner * p->count;
    p->scales = (size_t)codes;
    p->zeros = p->scales + (size_t)(p->groups * p->count);
    p->order = p->zeros + (t->parts[PACKED_ZEROS].name ? (size_t)(p->groups * p->words) : 0);
    p->end = p->order + (t->parts[PACKED_ORDER].name ? (size_t)p->columns : 0);
}

/* Reads columns first .. first + count of a part [rows][width] with elements of `element` bytes to raw + at. */
static int read_slices(const struct checkpoint *cp, const struct source_tensor *part, int64_t rows, int64_t width,
                       int64_t first, int64_t count, size_t element, struct source_reading *reading, size_t at, struct err *err)
{
    const size_t bytes = (size_t)count * element;
    if (count == width)
        return source_raw(cp, part, 0, (size_t)rows * bytes, reading, at, err);
    for (int64_t row = 0; row < rows; row++)
        if (source_raw(cp, part, (uint64_t)(row * width + first) * element, bytes, reading, at + (size_t)row * bytes, err))
            return -1;
    return 0;
}

/* Reads the scales and converts them to f32 in place, from the last to the first, because the result is larger. */
static int read_scales(const struct checkpoint *cp, const struct packed_rows *p, struct source_reading *reading,
                       struct err *err)
{
    const struct source_tensor *part = &p->tensor->parts[PACKED_SCALES];
    const size_t element = part->coding == &coding_f32 ? sizeof(float) : sizeof(uint16_t), at = p->scales * WORD;
    const size_t count = (size_t)(p->groups * p->count);
    if (p->across ? source_raw(cp, part, (uint64_t)(p->first * p->groups) * element, count * element, reading, at, err)
                  : read_slices(cp, part, p->groups, p->outputs, p->first, p->count, element, reading, at, err))
        return -1;
    for (size_t i = count; element == sizeof(uint16_t) && i-- > 0;) {
        uint16_t half;
        memcpy(&half, reading->raw + at + i * sizeof half, sizeof half);
        float value = part->coding == &coding_bf16 ? bf16_to_f32(half) : f16_to_f32(half);
        memcpy(reading->raw + at + i * sizeof value, &value, sizeof value);
    }
    return 0;
}

static int read_zeros(const struct checkpoint *cp, const struct packed_rows *p, struct source_reading *reading, struct err *err)
{
    const struct source_tensor *part = &p->tensor->parts[PACKED_ZEROS];
    const size_t at = p->zeros * WORD;
    if (!part->name)
        return 0;
    if (p->across)
        return source_raw(cp, part, (uint64_t)(p->first_word * p->groups) * WORD, (size_t)(p->words * p->groups) * WORD,
                          reading, at, err);
    return read_slices(cp, part, p->groups, p->outputs / p->per, p->first_word, p->words, WORD, reading, at, err);
}

static uint32_t word_at(const struct packed_rows *p, size_t index)
{
    uint32_t word;
    memcpy(&word, p->raw + index * WORD, WORD);
    return word;
}

static int64_t group_of(const struct packed_rows *p, int64_t input)
{
    return p->tensor->parts[PACKED_ORDER].name ? (int64_t)word_at(p, p->order + (size_t)input) : input / p->group;
}

static int read_order(const struct checkpoint *cp, const struct packed_rows *p, struct source_reading *reading, struct err *err)
{
    const struct source_tensor *part = &p->tensor->parts[PACKED_ORDER];
    if (!part->name)
        return 0;
    if (source_raw(cp, part, 0, (size_t)p->columns * WORD, reading, p->order * WORD, err))
        return -1;
    for (int64_t i = 0; i < p->columns; i++) {
        uint32_t group;
        memcpy(&group, reading->raw + (p->order + (size_t)i) * WORD, WORD);
        if (group >= (uint64_t)p->groups)
            return err_set(err, ERR_INPUT, "%s: tensor %s: element [%lld] is %d, but there are %lld groups; the checkpoint is "
                           "damaged", cp->files[part->file].name, part->name, (long long)i, (int)group, (long long)p->groups);
    }
    return 0;
}

static int packed_read(const struct checkpoint *cp, struct packed_rows *p, struct source_reading *reading, struct err *err)
{
    const struct source_tensor *codes = &p->tensor->parts[PACKED_CODES];
    const int64_t inner = (p->columns + p->per - 1) / p->per;
    int rc;
    if (mem_grow(&reading->raw, &reading->room, p->end * WORD, 1, err))
        return -1;
    if (p->across)
        rc = source_raw(cp, codes, (uint64_t)(p->first * inner) * WORD, (size_t)(p->count * inner) * WORD, reading, 0, err);
    else if (p->awq)
        rc = read_slices(cp, codes, p->columns, p->outputs / p->per, p->first_word, p->words, WORD, reading, 0, err);
    else
        rc = read_slices(cp, codes, inner, p->outputs, p->first, p->count, WORD, reading, 0, err);
    if (rc || read_scales(cp, p, reading, err) || read_zeros(cp, p, reading, err) || read_order(cp, p, reading, err))
        return -1;
    p->raw = reading->raw;
    return 0;
}

/* Returns the shift in bits of an output's code within its word. */
static int output_shift(const struct packed_rows *p, int64_t output)
{
    static const int AWQ_POSITION[AWQ_CODES] = {0, 4, 1, 5, 2, 6, 3, 7};
    int position = (int)(output % p->per);
    return (p->awq ? AWQ_POSITION[position] : position) * p->bits;
}

static int code_at(const struct packed_rows *p, int64_t row, int64_t input)
{
    const uint32_t mask = (1u << p->bits) - 1;
    if (p->awq) {
        int64_t output = p->first + row, word = input * p->words + output / p->per - p->first_word;
        return (int)(word_at(p, (size_t)word) >> output_shift(p, output) & mask);
    }
    int64_t inner = (p->columns + p->per - 1) / p->per, at = input / p->per;
    uint32_t word = word_at(p, (size_t)(p->across ? row * inner + at : at * p->count + row));
    return (int)(word >> (int)(input % p->per) * p->bits & mask);
}

static int zero_at(const struct packed_rows *p, int64_t row, int64_t group)
{
    const uint32_t mask = (1u << p->bits) - 1;
    int64_t output = p->first + row, word = output / p->per - p->first_word;
    if (!p->tensor->parts[PACKED_ZEROS].name)
        return 1 << (p->bits - 1);
    uint32_t stored = word_at(p, p->zeros + (size_t)(p->across ? word * p->groups + group : group * p->words + word));
    return (int)(((stored >> output_shift(p, output)) + (uint32_t)p->tensor->zero_add) & mask);
}

static float scale_at(const struct packed_rows *p, int64_t row, int64_t group)
{
    float scale;
    memcpy(&scale, p->raw + (p->scales + (size_t)(p->across ? row * p->groups + group : group * p->count + row)) * WORD, WORD);
    return scale;
}

static int read_packed(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                       struct source_reading *reading, float *values, struct err *err)
{
    struct packed_rows p;
    packed_begin(&p, t, first, count);
    if (packed_read(cp, &p, reading, err))
        return -1;
    for (int64_t row = 0; row < p.count; row++) {
        int64_t held = -1;
        int zero = 0;
        float scale = 0;
        for (int64_t i = 0; i < p.columns; i++) {
            int64_t group = group_of(&p, i);
            if (group != held) {
                zero = zero_at(&p, row, group);
                scale = scale_at(&p, row, group);
                held = group;
            }
            values[row * p.columns + i] = (float)(code_at(&p, row, i) - zero) * scale;
        }
    }
    return 0;
}

/* Writes 32 inputs as one q4 block. Fails unless they are what config.json declared: in one group, zero point in the middle,
 * scale exact in f16. */
static int put_block(const struct checkpoint *cp, const struct packed_rows *p, int64_t row, int64_t first, unsigned char *out,
                     struct err *err)
{
    const int64_t group = group_of(p, first);
    const float scale = scale_at(p, row, group);
    const uint16_t half = f32_to_f16(scale);
    bool other = zero_at(p, row, group) != 8 || !(f16_to_f32(half) == scale);
    for (int64_t i = first; i < first + BLOCK_INPUTS; i++)
        other |= group_of(p, i) != group;
    if (other && scale == scale)
        return err_set(err, ERR_INPUT, "%s: tensor %s: the group at output %lld, input %lld is not symmetric with an f16 "
                       "scale, as config.json declares; convert with --dtype f32 or bf16",
                       cp->files[p->tensor->file].name,
                       p->tensor->name, (long long)(p->first + row), (long long)first);
    memcpy(out, &half, sizeof half);
    for (int i = 0; i < HALF; i++)
        out[2 + i] = (unsigned char)(code_at(p, row, first + i) | code_at(p, row, first + i + HALF) << 4);
    return 0;
}

static int read_packed_coded(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                             struct source_reading *reading, unsigned char *coded, struct err *err)
{
    struct packed_rows p;
    packed_begin(&p, t, first, count);
    if (packed_read(cp, &p, reading, err))
        return -1;
    for (int64_t row = 0; row < p.count; row++)
        for (int64_t i = 0; i < p.columns; i += BLOCK_INPUTS, coded += 2 + HALF)
            if (put_block(cp, &p, row, i, coded, err))
                return -1;
    return 0;
}

const struct source_coding coding_gptq = {"GPTQ", FORMAT_F32, read_packed, NULL};
const struct source_coding coding_awq = {"AWQ", FORMAT_F32, read_packed, NULL};
const struct source_coding coding_packed = {"packed", FORMAT_F32, read_packed, NULL};
const struct source_coding coding_gptq_q4 = {"GPTQ", FORMAT_Q4, read_packed, read_packed_coded};
const struct source_coding coding_packed_q4 = {"packed", FORMAT_Q4, read_packed, read_packed_coded};
