#include "common/checkpoint/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/checkpoint/coding_gguf.h"

const char gguf_magic[GGUF_MAGIC_BYTES] = {'G', 'G', 'U', 'F'};

enum {
    ENTRIES_MAX = 1 << 16, TENSORS_MAX = 1 << 17, KEY_BYTES = 255, ALIGNMENT = 32, ALIGNMENT_MAX = 1 << 20, STEP = 64 << 10
};

static const int TYPE_BYTES[GGUF_TYPES] = {
    [GGUF_U8] = 1, [GGUF_I8] = 1, [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4,
    [GGUF_BOOL] = 1, [GGUF_STRING] = 8, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};

/* Types of tensors without blocks. If a type has no coding, only its size is known. */
static const struct gguf_dtype {
    int id;
    const char *name;
    int block, bytes;
    const struct source_coding *coding;
} DTYPES[] = {
    {0, "F32", 1, 4, &coding_f32}, {1, "F16", 1, 2, &coding_f16}, {30, "BF16", 1, 2, &coding_bf16}, {9, "Q8_1", 32, 36, NULL},
    {15, "Q8_K", 256, 292, NULL}, {24, "I8", 1, 1, NULL}, {25, "I16", 1, 2, NULL}, {26, "I32", 1, 4, NULL},
    {27, "I64", 1, 8, NULL}, {28, "F64", 1, 8, NULL},
};

void gguf_free(struct gguf *g)
{
    mem_free(&g->data);
    mem_free(&g->entries);
    *g = (struct gguf){0};
}

/* ---- parsing the header ---- */

struct header {
    struct gguf *gguf;
    struct checkpoint *cp;
    int file;
    size_t at;
    uint64_t alignment;
};

/* Reads the header until its next `bytes` bytes are in memory. */
static int need(struct header *h, uint64_t bytes, struct err *err)
{
    struct gguf *g = h->gguf;
    const uint64_t all = h->cp->files[h->file].bytes;
    struct source_tensor whole = {.file = h->file};
    if (bytes > all - h->at)
        return err_set(err, ERR_INPUT, "the header is longer than the file's %llu bytes; the file is truncated or damaged",
                       (unsigned long long)all);
    if (bytes > GGUF_HEADER_MAX - h->at)
        return err_set(err, ERR_INPUT, "the header has more than %d bytes, the limit; the file is damaged", GGUF_HEADER_MAX);
    if (h->at + bytes <= g->bytes)
        return 0;
    uint64_t want = h->at + bytes + STEP > 2 * g->bytes ? h->at + bytes + STEP : 2 * g->bytes;
    size_t end = (size_t)(want < all ? want : all);
    if (mem_grow(&g->data, &g->room, end, 1, err) || checkpoint_read(h->cp, &whole, g->bytes, g->data + g->bytes,
                                                                    end - g->bytes, err))
        return -1;
    g->bytes = end;
    return 0;
}

static uint64_t number_at(const struct gguf *g, size_t at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)(unsigned char)g->data[at + (size_t)i] << 8 * i;
    return value;
}

static int take_number(struct header *h, int bytes, uint64_t *out, struct err *err)
{
    if (need(h, (uint64_t)bytes, err))
        return -1;
    *out = number_at(h->gguf, h->at, bytes);
    h->at += (size_t)bytes;
    return 0;
}

static int take_string(struct header *h, size_t *at, size_t *bytes, struct err *err)
{
    uint64_t length;
    if (take_number(h, 8, &length, err) || need(h, length, err))
        return -1;
    *at = h->at;
    *bytes = (size_t)length;
    h->at += (size_t)length;
    return 0;
}

/* Reads a key or name, which must be short, and UTF-8 without NULs. */
static int take_name(struct header *h, const char *what, size_t *at, size_t *bytes, struct err *err)
{
    if (take_string(h, at, bytes, err))
        return -1;
    const char *name = h->gguf->data + *at;
    if (!*bytes || *bytes > KEY_BYTES || memchr(name, 0, *bytes) || utf8_fault(name, *bytes) < *bytes)
        return err_set(err, ERR_INPUT, "%s has a name that is not UTF-8 of 1 to %d bytes; the file is damaged", what,
                       KEY_BYTES);
    return 0;
}

static int take_entry(struct header *h, struct gguf_entry *entry, struct err *err)
{
    uint64_t type, count = 1, bytes;
    if (take_name(h, "an entry", &entry->key, &entry->key_bytes, err) || take_number(h, 4, &type, err))
        return -1;
    entry->array = type == GGUF_ARRAY;
    if (entry->array && (take_number(h, 4, &type, err) || take_number(h, 8, &count, err)))
        return -1;
    if (type >= GGUF_TYPES || type == GGUF_ARRAY)
        return err_set(err, ERR_INPUT, "entry %.*s has the unknown type %llu; the file is damaged",
                       (int)entry->key_bytes, h->gguf->data + entry->key, (unsigned long long)type);
    if (count > UINT64_MAX / 8)
        count = UINT64_MAX / 8;                         /* more than any file contains: need() fails */
    bytes = count * (uint64_t)TYPE_BYTES[type];
    entry->at = h->at;
    if (need(h, bytes, err))
        return -1;
    entry->type = (enum gguf_type)type;
    entry->count = (size_t)count;
    for (uint64_t i = 0; type == GGUF_STRING && i < count; i++) {
        size_t at, length;
        if (take_string(h, &at, &length, err))
            return -1;
    }
    if (type != GGUF_STRING)
        h->at += (size_t)bytes;
    entry->bytes = h->at - entry->at;
    return 0;
}

/* An entry for by_key: qsort passes no context, so each entry includes the bytes of its key. */
struct sorted_entry {
    const char *key;
    struct gguf_entry entry;
};

static int compare_bytes(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static int by_key(const void *a, const void *b)
{
    const struct sorted_entry *x = a, *y = b;
    return compare_bytes(x->key, x->entry.key_bytes, y->key, y->entry.key_bytes);
}

static int sort_entries(struct gguf *g, struct err *err)
{
    struct sorted_entry *sorted = mem_alloc(g->entry_count, sizeof *sorted, err);
    int rc = sorted ? 0 : -1;
    for (size_t i = 0; !rc && i < g->entry_count; i++)
        sorted[i] = (struct sorted_entry){g->data + g->entries[i].key, g->entries[i]};
    if (!rc && g->entry_count)
        qsort(sorted, g->entry_count, sizeof *sorted, by_key);
    for (size_t i = 0; !rc && i < g->entry_count; i++) {
        g->entries[i] = sorted[i].entry;
        if (i && by_key(&sorted[i - 1], &sorted[i]) == 0)
            rc = err_set(err, ERR_INPUT, "entry %.*s occurs twice; the file is damaged", (int)sorted[i].entry.key_bytes,
                         sorted[i].key);
    }
    mem_free(&sorted);
    return rc;
}

static int take_entries(struct header *h, uint64_t count, struct err *err)
{
    struct gguf *g = h->gguf;
    if (count > ENTRIES_MAX)
        return err_set(err, ERR_INPUT, "declares %llu entries of metadata, more than the limit of %d; the file is damaged",
                       (unsigned long long)count,
                       ENTRIES_MAX);
    g->entries = mem_alloc((size_t)count, sizeof *g->entries, err);
    if (!g->entries)
        return -1;
    for (uint64_t i = 0; i < count; i++, g->entry_count++)
        if (take_entry(h, &g->entries[i], err))
            return -1;
    return sort_entries(g, err);
}

/* ---- tensors ---- */

/* Returns the type with this id; its name is NULL if the id is unknown. */
static struct gguf_dtype dtype_of(uint64_t id)
{
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
        if ((uint64_t)DTYPES[i].id == id)
            return DTYPES[i];
    for (const struct gguf_coding *c = gguf_codings; c->coding.name; c++)
        if ((uint64_t)c->id == id)
            return (struct gguf_dtype){c->id, c->coding.name, c->block, c->bytes, &c->coding};
    return (struct gguf_dtype){0};
}

static int take_dtype(struct header *h, struct source_tensor *t, uint64_t *values, struct err *err)
{
    uint64_t id;
    if (take_number(h, 4, &id, err))
        return -1;
    const struct gguf_dtype type = dtype_of(id);
    if (!type.name)
        return err_set(err, ERR_INPUT, "has the unknown type %llu; supported are %s", (unsigned long long)id,
                       coding_gguf_names);
    if (t->dims[t->dim_count - 1] % type.block)
        return err_set(err, ERR_INPUT, "has rows of %lld values, but %s stores blocks of %d; the file is damaged",
                       (long long)t->dims[t->dim_count - 1], type.name, type.block);
    memcpy(t->dtype_name, type.name, strlen(type.name) + 1);
    t->coding = type.coding;
    if (__builtin_mul_overflow(*values / (uint64_t)type.block, (uint64_t)type.bytes, &t->bytes))
        return err_set(err, ERR_INPUT, "is larger than a file can be; the file is damaged");
    return 0;
}

static int take_shape(struct header *h, struct source_tensor *t, struct err *err)
{
    uint64_t dims, values = 1;
    if (take_number(h, 4, &dims, err))
        return -1;
    if (dims < 1 || dims > 4)
        return err_set(err, ERR_INPUT, "has %llu dimensions, but 1 to 4 are possible; the file is damaged",
                       (unsigned long long)dims);
    t->dim_count = (int)dims;
    for (int i = t->dim_count; i-- > 0;) {
        uint64_t size;
        if (take_number(h, 8, &size, err))
            return -1;
        if (size < 1 || size > INT64_MAX || __builtin_mul_overflow(values, size, &values) || values > INT64_MAX)
            return err_set(err, ERR_INPUT, "has a dimension of size %llu, which is impossible; the file is damaged",
                           (unsigned long long)size);
        t->dims[i] = (int64_t)size;
    }
    return take_dtype(h, t, &values, err);
}

static int take_tensor(struct header *h, struct source_tensor *t, struct err *err)
{
    if (take_shape(h, t, err) || take_number(h, 8, &t->offset, err))
        return -1;
    if (t->offset % h->alignment)
        return err_set(err, ERR_INPUT, "has offset %llu, which is not a multiple of the alignment %llu; the file is damaged",
                       (unsigned long long)t->offset, (unsigned long long)h->alignment);
    return 0;
}

static int take_tensors(struct header *h, uint64_t count, struct err *err)
{
    struct checkpoint *cp = h->cp;
    if (count > TENSORS_MAX)
        return err_set(err, ERR_INPUT, "declares %llu tensors, more than the limit of %d; the file is damaged",
                       (unsigned long long)count,
                       TENSORS_MAX);
    for (uint64_t i = 0; i < count; i++) {
        size_t name = 0, bytes = 0;
        if (take_name(h, "a tensor", &name, &bytes, err) ||
            mem_grow(&cp->tensors, &cp->tensor_room, cp->tensor_count + 1, sizeof *cp->tensors, err))
            return -1;
        struct source_tensor *t = &cp->tensors[cp->tensor_count];
        *t = (struct source_tensor){.file = h->file};
        if (take_tensor(h, t, err))
            return err_at(err, "tensor %.*s", (int)bytes, h->gguf->data + name);
        t->name = mem_copy(h->gguf->data + name, bytes, err);
        if (!t->name)
            return -1;
        cp->tensor_count++;
    }
    return 0;
}

static uint64_t rounded(uint64_t value, uint64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }

/* Sets the tensors' offsets in the file. Tensors must follow each other with only the alignment between them, and end within
 * the file. */
static int locate_tensors(struct header *h, size_t before, struct err *err)
{
    struct checkpoint *cp = h->cp;
    const uint64_t all = cp->files[h->file].bytes, begin = rounded(h->at, h->alignment);
    uint64_t at = 0;
    if (cp->tensor_count > before)
        qsort(cp->tensors + before, cp->tensor_count - before, sizeof *cp->tensors, source_by_offset);
    for (size_t i = before; i < cp->tensor_count; i++) {
        struct source_tensor *t = &cp->tensors[i];
        if (t->offset != rounded(at, h->alignment))
            return err_set(err, ERR_INPUT, "tensor %s: its data begin at offset %llu, but the previous tensor ends at %llu; "
                           "the header is damaged", t->name, (unsigned long long)t->offset, (unsigned long long)at);
        if (begin > all || t->offset > all - begin || t->bytes > all - begin - t->offset)
            return err_set(err, ERR_INPUT, "tensor %s: its %llu bytes begin at offset %llu, but the file has only %llu bytes; "
                           "it is truncated or damaged", t->name, (unsigned long long)t->bytes,
                           (unsigned long long)begin + (unsigned long long)t->offset, (unsigned long long)all);
        at = t->offset + t->bytes;
        t->offset += begin;
    }
    return 0;
}

/* ---- the whole ---- */

static int check_version(uint64_t version, struct err *err)
{
    if (version == 2 || version == 3)
        return 0;
    if (version == 2u << 24 || version == 3u << 24)
        return err_set(err, ERR_INPUT, "is a big-endian GGUF file; only little-endian files are supported");
    return err_set(err, ERR_INPUT, "has GGUF version %llu; versions 2 and 3 are supported", (unsigned long long)version);
}

static int read_settings(struct header *h, struct err *err)
{
    struct gguf *g = h->gguf;
    struct gguf_string arch = {"", 0};
    int64_t alignment = ALIGNMENT;
    if (gguf_integer(g, "general.alignment", false, &alignment, err) ||
        gguf_text(g, "general.architecture", false, &arch, err))
        return -1;
    if (alignment < 1 || alignment > ALIGNMENT_MAX || alignment & (alignment - 1))
        return err_set(err, ERR_INPUT, "general.alignment is %lld; it must be a power of two, at most %d", (long long)alignment,
                       ALIGNMENT_MAX);
    if (arch.bytes >= sizeof g->arch)
        return err_set(err, ERR_INPUT, "general.architecture is unknown: \"%.*s\"...", 31, arch.data);
    memcpy(g->arch, arch.data, arch.bytes);
    h->alignment = (uint64_t)alignment;
    return 0;
}

int gguf_read(struct gguf *out, struct checkpoint *cp, int file, struct err *err)
{
    struct gguf g = {0};
    struct header h = {.gguf = &g, .cp = cp, .file = file};
    const size_t before = cp->tensor_count;
    uint64_t version, tensors, entries;
    if (need(&h, GGUF_MAGIC_BYTES, err))
        goto failed;
    if (memcmp(g.data, gguf_magic, GGUF_MAGIC_BYTES)) {
        err_set(err, ERR_INPUT, "does not begin with \"GGUF\"; the file is damaged, or not a GGUF file");
        goto failed;
    }
    h.at = GGUF_MAGIC_BYTES;
    if (take_number(&h, 4, &version, err) || check_version(version, err) || take_number(&h, 8, &tensors, err) ||
        take_number(&h, 8, &entries, err) || take_entries(&h, entries, err) || read_settings(&h, err) ||
        take_tensors(&h, tensors, err) || locate_tensors(&h, before, err))
        goto failed;
    *out = g;
    return 0;
failed:
    gguf_free(&g);
    return -1;
}

/* ---- values ---- */

const struct gguf_entry *gguf_find(const struct gguf *g, const char *key)
{
    char full[KEY_BYTES + 1];
    const char *hole = strstr(key, "{}");
    if (hole)
        snprintf(full, sizeof full, "%.*s%s%s", (int)(hole - key), key, g->arch, hole + 2);
    else
        snprintf(full, sizeof full, "%s", key);
    const size_t bytes = strlen(full);
    size_t low = 0, high = g->entry_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct gguf_entry *entry = &g->entries[middle];
        int order = compare_bytes(full, bytes, g->data + entry->key, entry->key_bytes);
        if (order == 0)
            return entry;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Writes a key as messages show it. */
static void show_key(const struct gguf *g, const char *key, char out[KEY_BYTES + 1])
{
    const char *hole = strstr(key, "{}");
    snprintf(out, KEY_BYTES + 1, "%.*s%s%s", hole ? (int)(hole - key) : (int)strlen(key), key, hole ? g->arch : "",
             hole ? hole + 2 : "");
}

static int refuse(const struct gguf *g, const char *key, const char *why, struct err *err)
{
    char shown[KEY_BYTES + 1];
    show_key(g, key, shown);
    return err_set(err, ERR_INPUT, "%s %s", shown, why);
}

static int check_absent(const struct gguf *g, const char *key, bool required, struct err *err)
{
    return required ? refuse(g, key, "is missing; the model cannot be converted without it", err) : 0;
}

bool gguf_is_integer(enum gguf_type type)
{
    return type != GGUF_F32 && type != GGUF_F64 && type != GGUF_STRING && type != GGUF_BOOL;
}

int64_t gguf_integer_at(const struct gguf *g, const struct gguf_entry *entry, size_t index)
{
    const int bytes = TYPE_BYTES[entry->type];
    uint64_t value = number_at(g, entry->at + index * (size_t)bytes, bytes);
    bool is_signed = entry->type == GGUF_I8 || entry->type == GGUF_I16 || entry->type == GGUF_I32;
    if (is_signed && value >> (8 * bytes - 1))
        value |= UINT64_MAX << 8 * bytes;
    return (int64_t)value;
}

double gguf_real_at(const struct gguf *g, const struct gguf_entry *entry, size_t index)
{
    uint64_t bits = number_at(g, entry->at + index * (size_t)TYPE_BYTES[entry->type], TYPE_BYTES[entry->type]);
    uint32_t narrow = (uint32_t)bits;
    double value;
    float single;
    if (entry->type == GGUF_F32) {
        memcpy(&single, &narrow, sizeof single);
        return (double)single;
    }
    if (entry->type != GGUF_F64)
        return (double)gguf_integer_at(g, entry, index);
    memcpy(&value, &bits, sizeof value);
    return value;
}

int gguf_integer(const struct gguf *g, const char *key, bool required, int64_t *out, struct err *err)
{
    const struct gguf_entry *entry = gguf_find(g, key);
    if (!entry)
        return check_absent(g, key, required, err);
    if (!gguf_is_integer(entry->type) || !entry->count)
        return refuse(g, key, "must be an integer", err);
    int64_t value = gguf_integer_at(g, entry, 0);
    for (size_t i = 1; i < entry->count; i++)
        if (gguf_integer_at(g, entry, i) != value)
            return refuse(g, key, "differs between layers, which is not supported", err);
    if (value < 0 && (entry->type == GGUF_U64 || entry->type == GGUF_I64))
        return refuse(g, key, "is out of range", err);
    *out = value;
    return 0;
}

int gguf_token_id(const struct gguf *g, const char *key, int64_t vocab, int64_t *out, struct err *err)
{
    const struct gguf_entry *entry = gguf_find(g, key);
    if (entry && (!gguf_is_integer(entry->type) || entry->count != 1))
        return refuse(g, key, "must be an integer", err);
    int64_t id = entry ? gguf_integer_at(g, entry, 0) : -1;
    *out = id >= 0 && id < vocab ? id : -1;
    return 0;
}

int gguf_real(const struct gguf *g, const char *key, bool required, double *out, struct err *err)
{
    const struct gguf_entry *entry = gguf_find(g, key);
    if (!entry)
        return check_absent(g, key, required, err);
    if (entry->type == GGUF_STRING || entry->type == GGUF_BOOL || entry->array || !isfinite(gguf_real_at(g, entry, 0)))
        return refuse(g, key, "must be a finite number", err);
    *out = gguf_real_at(g, entry, 0);
    return 0;
}

int gguf_bool(const struct gguf *g, const char *key, bool *out, struct err *err)
{
    const struct gguf_entry *entry = gguf_find(g, key);
    if (!entry)
        return 0;
    if (entry->type != GGUF_BOOL || entry->array || (unsigned char)g->data[entry->at] > 1)
        return refuse(g, key, "must be true or false", err);
    *out = g->data[entry->at] != 0;
    return 0;
}

struct gguf_string gguf_next_string(const struct gguf *g, size_t *at)
{
    size_t bytes = (size_t)number_at(g, *at, 8);
    struct gguf_string out = {g->data + *at + 8, bytes};
    *at += 8 + bytes;
    return out;
}

int gguf_text(const struct gguf *g, const char *key, bool required, struct gguf_string *out, struct err *err)
{
    const struct gguf_entry *entry = gguf_find(g, key);
    if (!entry)
        return check_absent(g, key, required, err);
    if (entry->type != GGUF_STRING || entry->array)
        return refuse(g, key, "must be a text", err);
    size_t at = entry->at;
    struct gguf_string text = gguf_next_string(g, &at);
    if (memchr(text.data, 0, text.bytes) || utf8_fault(text.data, text.bytes) < text.bytes)
        return refuse(g, key, "must be UTF-8 without NULs", err);
    *out = text;
    return 0;
}

bool gguf_same(struct gguf_string string, const char *text)
{
    return string.bytes == strlen(text) && memcmp(string.data, text, string.bytes) == 0;
}

const struct gguf_entry *gguf_array(const struct gguf *g, const char *key, enum gguf_type type, struct err *err)
{
    const struct gguf_entry *entry = gguf_find(g, key);
    if (entry && (!entry->array || entry->type != type)) {
        refuse(g, key, type == GGUF_STRING ? "must be a list of texts" : type == GGUF_F32 ? "must be a list of f32"
                                                                                        : "must be a list of i32", err);
        return NULL;
    }
    return entry;
}
