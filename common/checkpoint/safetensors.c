#include "common/checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "common/arch/config.h"
#include "common/base/json_walk.h"
#include "common/base/mem.h"

/* The format's own limit of the header's bytes, and a limit of tensors, so that they need no more than about 100 MB of
 * memory. */
enum { HEADER_MAX = 100000000, TENSORS_MAX = 1 << 18 };

static const struct { const char *name; int bytes; const struct source_coding *coding; } DTYPES[] = {
    {"F32", 4, &coding_f32}, {"F16", 2, &coding_f16}, {"BF16", 2, &coding_bf16},
    {"F64", 8, NULL}, {"I64", 8, NULL}, {"U64", 8, NULL}, {"C64", 8, NULL}, {"I32", 4, NULL}, {"U32", 4, NULL},
    {"I16", 2, NULL}, {"U16", 2, NULL}, {"I8", 1, NULL}, {"U8", 1, NULL}, {"BOOL", 1, NULL},
    {"F8_E4M3", 1, NULL}, {"F8_E5M2", 1, NULL}, {"F8_E8M0", 1, NULL},
};

int safetensors_header_bytes(const uint8_t prefix[SAFETENSORS_PREFIX], uint64_t file_bytes, size_t *bytes, struct err *err)
{
    uint64_t length = 0;
    for (int i = 0; i < SAFETENSORS_PREFIX; i++)
        length |= (uint64_t)prefix[i] << 8 * i;
    if (file_bytes < SAFETENSORS_PREFIX)
        return err_set(err, ERR_INPUT, "is too short to be a safetensors file; it is truncated or damaged");
    if (length < 2 || length > HEADER_MAX)
        return err_set(err, ERR_INPUT, "declares a header of %llu bytes, more than the limit; the file is damaged, or not a "
                       "safetensors file", (unsigned long long)length);
    if (length > file_bytes - SAFETENSORS_PREFIX)
        return err_set(err, ERR_INPUT, "declares a header of %llu bytes, but the whole file has only %llu; it is truncated",
                       (unsigned long long)length, (unsigned long long)file_bytes);
    *bytes = (size_t)length;
    return 0;
}

static int read_dtype(struct source_tensor *t, const json_t *entry, int *element, struct err *err)
{
    const char *name = NULL;
    if (config_text(entry, "dtype", true, &name, err))
        return -1;
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
        if (strcmp(DTYPES[i].name, name) == 0) {
            t->coding = DTYPES[i].coding;
            *element = DTYPES[i].bytes;
            memcpy(t->dtype_name, DTYPES[i].name, strlen(DTYPES[i].name) + 1);
            return 0;
        }
    return config_refuse(entry, "dtype", err, "unknown dtype");
}

static int read_range(struct source_tensor *t, const json_t *entry, struct err *err)
{
    const json_t *offsets = config_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0 ||
        json_integer_value(end) < json_integer_value(begin))
        return config_refuse(entry, "data_offsets", err, "it must be begin and end");
    t->offset = (uint64_t)json_integer_value(begin);
    t->bytes = (uint64_t)json_integer_value(end) - t->offset;
    return 0;
}

static int read_shape(struct source_tensor *t, const json_t *entry, int element, struct err *err)
{
    const json_t *shape = config_get(entry, "shape"), *dim;
    size_t bytes = (size_t)element, at;
    bool empty = false;
    if (!json_is_array(shape) || json_array_size(shape) > SOURCE_DIMS)
        return config_refuse(entry, "shape", err, "it must be a list of at most %d sizes", SOURCE_DIMS);
    json_array_foreach(shape, at, dim) {
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return config_refuse(entry, "shape", err, "sizes must be integers of at least 0");
        t->dims[at] = json_integer_value(dim);
        empty |= t->dims[at] == 0;
        if (!empty && !size_mul(bytes, (size_t)t->dims[at], &bytes))
            return config_refuse(entry, "shape", err, "this is more than any file holds");
    }
    t->dim_count = (int)json_array_size(shape);
    if (empty)
        bytes = 0;
    if (bytes != t->bytes)
        return config_refuse(entry, "shape", err, "with dtype %s that is %zu bytes, but its offsets span %llu", t->dtype_name,
                             bytes, (unsigned long long)t->bytes);
    return 0;
}

static int read_tensor(struct source_tensor *t, const json_t *entry, struct err *err)
{
    int element = 0;
    if (!json_is_object(entry))
        return err_set(err, ERR_INPUT, "must be an object with dtype, shape and data_offsets");
    return read_dtype(t, entry, &element, err) || read_range(t, entry, err) || read_shape(t, entry, element, err) ? -1 : 0;
}

/* Checks that the data of the tensors, from offset 0 on, have no gaps or overlaps. *end: their total size in bytes. */
static int check_order(struct source_tensor *tensors, size_t count, uint64_t *end, struct err *err)
{
    uint64_t at = 0;
    if (count)
        qsort(tensors, count, sizeof *tensors, source_by_offset);
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].offset != at)
            return err_set(err, ERR_INPUT, "tensor %s: its data begin at offset %llu, but the previous tensor ends at %llu; "
                           "the header is damaged", tensors[i].name, (unsigned long long)tensors[i].offset,
                           (unsigned long long)at);
        at += tensors[i].bytes;
    }
    *end = at;
    return 0;
}

static int add_tensor(struct checkpoint *checkpoint, int file, const char *name, struct json_part part, struct err *err)
{
    if (mem_grow(&checkpoint->tensors, &checkpoint->tensor_room, checkpoint->tensor_count + 1, sizeof *checkpoint->tensors,
                 err))
        return -1;
    struct source_tensor *t = &checkpoint->tensors[checkpoint->tensor_count];
    *t = (struct source_tensor){.file = file};
    json_t *entry = json_part_read(part, err);
    int rc = entry ? read_tensor(t, entry, err) : -1;
    json_decref(entry);
    if (rc || !(t->name = mem_string(name, err)))
        return err_at(err, "tensor %.200s", name);
    checkpoint->tensor_count++;
    return 0;
}

static int add_tensors(struct checkpoint *checkpoint, int file, struct json_part whole, struct err *err)
{
    struct json_walk walk;
    struct text name = {0};
    size_t count = 0;
    int more = 1;
    for (json_walk_start(&walk, whole); more > 0 && (more = json_walk_next(&walk, err)) > 0;)
        if (json_part_string(walk.key, &name, err))
            more = -1;
        else if (strcmp(name.data, "__metadata__") && count++ == TENSORS_MAX)
            more = err_set(err, ERR_INPUT, "has more than %d tensors, the limit for one file; the file is damaged",
                           TENSORS_MAX);
        else if (strcmp(name.data, "__metadata__") && add_tensor(checkpoint, file, name.data, walk.value, err))
            more = -1;
    text_free(&name);
    return more;
}

int safetensors_parse(struct checkpoint *checkpoint, int file, const char *header, size_t bytes, uint64_t *data_bytes,
                      struct err *err)
{
    size_t before = checkpoint->tensor_count;
    struct json_part whole;
    int rc = -1;
    if (!bytes || header[0] != '{') {
        err_set(err, ERR_INPUT, "does not begin with '{'; the file is damaged, or not a safetensors file");
        goto done;
    }
    if (json_whole(&whole, header, bytes, err) || add_tensors(checkpoint, file, whole, err))
        goto done;
    size_t added = checkpoint->tensor_count - before;           /* may be 0, and then no memory is allocated */
    if (check_order(added ? checkpoint->tensors + before : NULL, added, data_bytes, err))
        goto done;
    for (size_t i = before; i < checkpoint->tensor_count; i++)
        checkpoint->tensors[i].offset += SAFETENSORS_PREFIX + bytes;
    rc = 0;
done:
    return rc ? err_at(err, "header") : 0;
}
