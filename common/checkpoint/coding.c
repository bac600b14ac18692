#include "common/checkpoint/coding.h"

#include <string.h>

#include "common/base/float.h"
#include "common/base/mem.h"
#include "common/checkpoint/checkpoint.h"

int source_raw(const struct checkpoint *checkpoint, const struct source_tensor *tensor, uint64_t offset, size_t bytes,
               struct source_reading *reading, size_t at, struct err *err)
{
    if (mem_grow(&reading->raw, &reading->room, at + bytes, 1, err) ||
        checkpoint_read(checkpoint, tensor, offset, reading->raw + at, bytes, err))
        return -1;
    return reading->digest ? sha256_stream_put(reading->digest, reading->raw + at, bytes, err) : 0;
}

void source_reading_free(struct source_reading *reading)
{
    mem_free(&reading->raw);
    reading->room = 0;
}

static int read_f32(const struct checkpoint *checkpoint, const struct source_tensor *tensor, int64_t first, int64_t count,
                    struct source_reading *reading, float *values, struct err *err)
{
    size_t bytes = (size_t)count * sizeof *values;
    if (source_raw(checkpoint, tensor, (uint64_t)first * sizeof *values, bytes, reading, 0, err))
        return -1;
    memcpy(values, reading->raw, bytes);
    return 0;
}

static int read_half(const struct checkpoint *checkpoint, const struct source_tensor *tensor, int64_t first, int64_t count,
                     struct source_reading *reading, const uint16_t **half, struct err *err)
{
    if (source_raw(checkpoint, tensor, (uint64_t)first * sizeof **half, (size_t)count * sizeof **half, reading, 0, err))
        return -1;
    *half = (const uint16_t *)(const void *)reading->raw;
    return 0;
}

static int read_f16(const struct checkpoint *checkpoint, const struct source_tensor *tensor, int64_t first, int64_t count,
                    struct source_reading *reading, float *values, struct err *err)
{
    const uint16_t *half;
    if (read_half(checkpoint, tensor, first, count, reading, &half, err))
        return -1;
    for (int64_t i = 0; i < count; i++)
        values[i] = f16_to_f32(half[i]);
    return 0;
}

static int read_bf16(const struct checkpoint *checkpoint, const struct source_tensor *tensor, int64_t first, int64_t count,
                     struct source_reading *reading, float *values, struct err *err)
{
    const uint16_t *half;
    if (read_half(checkpoint, tensor, first, count, reading, &half, err))
        return -1;
    for (int64_t i = 0; i < count; i++)
        values[i] = bf16_to_f32(half[i]);
    return 0;
}

const struct source_coding coding_f32 = {.name = "F32", .format = FORMAT_F32, .read = read_f32};
const struct source_coding coding_f16 = {.name = "F16", .format = FORMAT_F16, .read = read_f16};
const struct source_coding coding_bf16 = {.name = "BF16", .format = FORMAT_BF16, .read = read_bf16};
