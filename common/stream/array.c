#include "common/stream/array.h"

#include <string.h>

#include "common/base/mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are written and read as they lie in memory");

static const struct { const char *name, *numpy; size_t size; } dtypes[DTYPE_COUNT] = {
    [DTYPE_I8]  = {"i8",  "|i1", 1}, [DTYPE_U8]  = {"u8",  "|u1", 1}, [DTYPE_I16] = {"i16", "<i2", 2},
    [DTYPE_U16] = {"u16", "<u2", 2}, [DTYPE_I32] = {"i32", "<i4", 4}, [DTYPE_U32] = {"u32", "<u4", 4},
    [DTYPE_I64] = {"i64", "<i8", 8}, [DTYPE_F32] = {"f32", "<f4", 4}, [DTYPE_F64] = {"f64", "<f8", 8},
    [DTYPE_F16] = {"f16", "<f2", 2}, [DTYPE_BF16] = {"bf16", "<V2", 2},
};

size_t array_dtype_size(enum dtype dtype) { return dtypes[dtype].size; }
const char *array_dtype_name(enum dtype dtype) { return dtypes[dtype].name; }

int array_measure(enum dtype dtype, int rank, const uint64_t *shape, size_t *count, size_t *bytes, struct err *err)
{
    size_t elements = 1, total;
    for (int i = 0; i < rank; i++)
        if (shape[i] > SIZE_MAX || !size_mul(elements, (size_t)shape[i], &elements))
            return err_set(err, ERR_INPUT, "an array is larger than memory can be; the stream is damaged");
    if (!size_mul(elements, dtypes[dtype].size, &total))
        return err_set(err, ERR_INPUT, "an array is larger than memory can be; the stream is damaged");
    *count = elements;
    *bytes = total;
    return 0;
}

static uint64_t little_endian(const uint8_t *at)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

int array_decode(struct array *array, const uint8_t *payload, size_t bytes, struct err *err)
{
    struct array found = {.dtype = DTYPE_COUNT};
    size_t need;
    if (bytes < 8)
        return err_set(err, ERR_INPUT, "an array has no header; the stream is damaged");
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (payload[1] == (uint8_t)dtypes[i].numpy[1] && !memcmp(payload, dtypes[i].numpy, 3))
            found.dtype = (enum dtype)i;
    if (found.dtype == DTYPE_COUNT)
        return err_set(err, ERR_INPUT, "an array has an unknown element type; the stream is damaged or newer");
    found.rank = payload[3];
    if (found.rank > ARRAY_RANK || memcmp(payload + 4, "\0\0\0\0", 4))
        return err_set(err, ERR_INPUT, "an array's header is invalid; the stream is damaged or newer");
    size_t head = 8 + 8 * (size_t)found.rank;
    if (bytes < head)
        return err_set(err, ERR_INPUT, "an array's shape is truncated; the stream is damaged");
    for (int i = 0; i < found.rank; i++)
        found.shape[i] = little_endian(payload + 8 + 8 * (size_t)i);
    if (array_measure(found.dtype, found.rank, found.shape, &found.count, &need, err))
        return -1;
    if (need != bytes - head)
        return err_set(err, ERR_INPUT, "an array's shape requires %zu bytes of data, but there are %zu; the stream is damaged",
                       need,
                       bytes - head);
    found.data = payload + head;
    *array = found;
    return 0;
}

size_t array_encode_head(uint8_t head[8 + 8 * ARRAY_RANK], enum dtype dtype, int rank, const uint64_t *shape)
{
    memset(head, 0, 8);
    memcpy(head, dtypes[dtype].numpy, 3);
    head[3] = (uint8_t)rank;
    for (int i = 0; i < rank; i++)
        for (int j = 0; j < 8; j++)
            head[8 + 8 * i + j] = (uint8_t)(shape[i] >> 8 * j);
    return 8 + 8 * (size_t)rank;
}
