#include "common/checkpoint/tensor_file.h"

#include <stdio.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/checkpoint/zip_write.h"

struct tensor_file {
    enum tensor_form form;
    const struct named_tensor *list;
    size_t count, at;               /* at: index of the tensor that is written now */
    uint64_t done;                  /* bytes of that tensor already written */
    struct output *out;
    struct zip_writer *zip;         /* only for TENSORS_TORCH */
    char archive[128];              /* NAME in the paths of the zip */
};

/* ---- safetensors ---- */

static int put_json(const struct tensor_file *file, struct text *out, struct err *err)
{
    uint64_t offset = 0;
    if (text_puts(out, "{\"__metadata__\":{\"format\":\"pt\"}", err))
        return -1;
    for (size_t i = 0; i < file->count; offset += file->list[i++].bytes) {
        const struct named_tensor *t = &file->list[i];
        if (text_printf(out, err, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype))
            return -1;
        for (int d = 0; d < t->dim_count; d++)
            if (text_printf(out, err, "%s%lld", d ? "," : "", (long long)t->dims[d]))
                return -1;
        if (text_printf(out, err, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
                        (unsigned long long)(offset + t->bytes)))
            return -1;
    }
    if (text_putc(out, '}', err))
        return -1;
    while (out->length % 8)
        if (text_putc(out, ' ', err))
            return -1;
    return 0;
}

static int begin_safetensors(struct tensor_file *file, struct err *err)
{
    struct text header = {0};
    unsigned char length[8];
    int rc = put_json(file, &header, err);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header.length >> 8 * i);
    rc = rc || output_write(file->out, length, sizeof length, err) ||
         output_write(file->out, header.data, header.length, err) ? -1 : 0;
    text_free(&header);
    return rc;
}

/* ---- the pickle ---- */

static const char EMPTY_DICT[] = "ccollections\nOrderedDict\n)R";       /* the call of a global without arguments */

static int put_number(struct text *out, uint64_t value, struct err *err)
{
    char bytes[11] = "\x8a\x08";                                        /* LONG1 of 8 bytes */
    size_t width = value < 256 ? 1 : value < 65536 ? 2 : value <= INT32_MAX ? 4 : 8, first = width == 8 ? 2 : 1;
    if (first == 1)
        bytes[0] = width == 1 ? 'K' : width == 2 ? 'M' : 'J';
    for (size_t i = 0; i < width; i++)
        bytes[first + i] = (char)(value >> 8 * i);
    return text_put(out, bytes, first + width, err);
}

static int put_string(struct text *out, const char *string, struct err *err)
{
    const size_t length = strlen(string);
    const char head[5] = {'X', (char)length, (char)(length >> 8), (char)(length >> 16), (char)(length >> 24)};
    return text_put(out, head, sizeof head, err) || text_put(out, string, length, err) ? -1 : 0;
}

static const char *storage_type(const char *dtype, uint64_t *element)
{
    static const struct { const char *dtype, *type; int bytes; } known[] = {
        {"F32", "FloatStorage", 4}, {"F16", "HalfStorage", 2}, {"BF16", "BFloat16Storage", 2}, {"I64", "LongStorage", 8},
        {"BOOL", "BoolStorage", 1}};
    size_t i = 0;
    while (strcmp(known[i].dtype, dtype))
        i++;
    *element = (uint64_t)known[i].bytes;
    return known[i].type;
}

/* Appends the tuple of sizes or, with `steps`, of contiguous strides. */
static int put_dims(struct text *out, const struct named_tensor *t, bool steps, struct err *err)
{
    int rc = text_putc(out, '(', err);
    for (int d = 0; d < t->dim_count && !rc; d++) {
        uint64_t value = steps ? 1 : (uint64_t)t->dims[d];
        for (int inner = d + 1; steps && inner < t->dim_count; inner++)
            value *= (uint64_t)t->dims[inner];
        rc = put_number(out, value, err);
    }
    return rc ? rc : text_putc(out, 't', err);
}

/* Appends a name and the call of _rebuild_tensor_v2 with storage, offset, sizes, strides, no gradient, no hooks. */
static int put_tensor(struct text *out, const struct named_tensor *t, size_t index, struct err *err)
{
    uint64_t element;
    const char *type = storage_type(t->dtype, &element);
    char key[24];
    snprintf(key, sizeof key, "%zu", index);
    if (put_string(out, t->name, err) || text_puts(out, "ctorch._utils\n_rebuild_tensor_v2\n((", err) ||
        put_string(out, "storage", err) || text_printf(out, err, "ctorch\n%s\n", type) || put_string(out, key, err) ||
        put_string(out, "cpu", err) || put_number(out, t->bytes / element, err) || text_puts(out, "tQ", err))
        return -1;
    return put_number(out, 0, err) || put_dims(out, t, false, err) || put_dims(out, t, true, err) ||
           text_putc(out, '\x89', err) || text_puts(out, EMPTY_DICT, err) || text_puts(out, "tR", err) ? -1 : 0;
}

static int put_pickle(const struct tensor_file *file, struct text *out, struct err *err)
{
    if (text_put(out, "\x80\x02", 2, err) || text_puts(out, EMPTY_DICT, err) || text_putc(out, '(', err))
        return -1;
    for (size_t i = 0; i < file->count; i++)
        if (put_tensor(out, &file->list[i], i, err))
            return -1;
    return text_puts(out, "u.", err);
}

/* ---- torch ---- */

static int begin_member(struct tensor_file *file, const char *name, uint64_t bytes, struct err *err)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", file->archive, name);
    return zip_member(file->zip, path, bytes, err);
}

static int put_member(struct tensor_file *file, const char *name, const void *data, size_t bytes, struct err *err)
{
    return begin_member(file, name, bytes, err) || zip_put(file->zip, data, bytes, err) || zip_member_end(file->zip, err) ? -1
                                                                                                                     : 0;
}

static int begin_torch(struct tensor_file *file, struct err *err)
{
    struct text pickle = {0};
    int rc = zip_open(&file->zip, file->out, UINT32_MAX, err) || put_pickle(file, &pickle, err) ||
             put_member(file, "data.pkl", pickle.data, pickle.length, err) ||
             put_member(file, "byteorder", "little", 6, err) ? -1 : 0;
    text_free(&pickle);
    return rc;
}

/* ---- both forms ---- */

static void name_archive(struct tensor_file *file, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    snprintf(file->archive, sizeof file->archive, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
}

int tensor_file_open(struct tensor_file **out, const char *path, enum tensor_form form, const struct named_tensor *list,
                     size_t count, struct err *err)
{
    struct tensor_file *file = mem_alloc(1, sizeof *file, err);
    if (!file)
        return -1;
    *file = (struct tensor_file){.form = form, .list = list, .count = count};
    name_archive(file, path);
    if (output_open(&file->out, path, err) || (form == TENSORS_TORCH ? begin_torch(file, err) : begin_safetensors(file, err))) {
        tensor_file_discard(&file);
        return -1;
    }
    *out = file;
    return 0;
}

int tensor_file_put(struct tensor_file *file, const void *data, size_t bytes, struct err *err)
{
    const uint64_t whole = file->list[file->at].bytes;
    char name[32];
    if (!file->zip) {
        if (output_write(file->out, data, bytes, err))
            return -1;
    } else {
        snprintf(name, sizeof name, "data/%zu", file->at);
        if ((!file->done && begin_member(file, name, whole, err)) || zip_put(file->zip, data, bytes, err) ||
            (file->done + bytes == whole && zip_member_end(file->zip, err)))
            return -1;
    }
    file->done += bytes;
    if (file->done == whole) {
        file->at++;
        file->done = 0;
    }
    return 0;
}

int tensor_file_commit(struct tensor_file **address, struct err *err)
{
    struct tensor_file *file = *address;
    int rc = file->zip && (put_member(file, "version", "3\n", 2, err) || zip_end(file->zip, err)) ? -1 : 0;
    rc = rc || output_commit(&file->out, err) ? -1 : 0;
    tensor_file_discard(address);
    return rc;
}

void tensor_file_discard(struct tensor_file **address)
{
    if (*address) {
        zip_free(&(*address)->zip);
        output_discard(&(*address)->out);
    }
    mem_free(address);
}
