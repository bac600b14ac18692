/* Writes small GGUF files for tests byte by byte. Entries and tensors may be added in any order; gguf_write combines them. */
#ifndef MOE_TESTS_UNIT_GGUF_H
#define MOE_TESTS_UNIT_GGUF_H

#include "common/base/float.h"
#include "common/base/hash.h"
#include "common/base/text.h"
#include "tests/unit/unit.h"

struct gguf_file {
    struct text entries, infos, data;
    uint64_t entry_count, tensor_count;
};

enum { G_U32 = 4, G_I32 = 5, G_F32 = 6, G_BOOL = 7, G_STRING = 8, G_ARRAY = 9 };

static inline void gguf_number(struct text *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        text_putc(out, (char)(value >> 8 * i), NULL);
}

static inline void gguf_string(struct text *out, const char *text)
{
    gguf_number(out, strlen(text), 8);
    text_puts(out, text, NULL);
}

static inline void gguf_key(struct gguf_file *g, const char *key, uint32_t type)
{
    gguf_string(&g->entries, key);
    gguf_number(&g->entries, type, 4);
    g->entry_count++;
}

static inline void gguf_put_int(struct gguf_file *g, const char *key, uint32_t value)
{
    gguf_key(g, key, G_U32);
    gguf_number(&g->entries, value, 4);
}

static inline void gguf_put_float(struct gguf_file *g, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    gguf_key(g, key, G_F32);
    gguf_number(&g->entries, bits, 4);
}

static inline void gguf_put_bool(struct gguf_file *g, const char *key, bool value)
{
    gguf_key(g, key, G_BOOL);
    gguf_number(&g->entries, value, 1);
}

static inline void gguf_put_text(struct gguf_file *g, const char *key, const char *value)
{
    gguf_key(g, key, G_STRING);
    gguf_string(&g->entries, value);
}

static inline void gguf_put_texts(struct gguf_file *g, const char *key, const char *const *values, size_t count)
{
    gguf_key(g, key, G_ARRAY);
    gguf_number(&g->entries, G_STRING, 4);
    gguf_number(&g->entries, count, 8);
    for (size_t i = 0; i < count; i++)
        gguf_string(&g->entries, values[i]);
}

static inline void gguf_put_ints(struct gguf_file *g, const char *key, const int *values, size_t count)
{
    gguf_key(g, key, G_ARRAY);
    gguf_number(&g->entries, G_I32, 4);
    gguf_number(&g->entries, count, 8);
    for (size_t i = 0; i < count; i++)
        gguf_number(&g->entries, (uint32_t)values[i], 4);
}

static inline void gguf_put_floats(struct gguf_file *g, const char *key, const float *values, size_t count)
{
    gguf_key(g, key, G_ARRAY);
    gguf_number(&g->entries, G_F32, 4);
    gguf_number(&g->entries, count, 8);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        gguf_number(&g->entries, bits, 4);
    }
}

/* Adds a tensor. Dims are in the order of the file: the fastest first. */
static inline void gguf_put_tensor(struct gguf_file *g, const char *name, uint32_t type, int dims, const int *sizes,
                                   const void *data, size_t bytes)
{
    while (g->data.length % 32)
        text_putc(&g->data, 0, NULL);
    gguf_string(&g->infos, name);
    gguf_number(&g->infos, (uint64_t)dims, 4);
    for (int i = 0; i < dims; i++)
        gguf_number(&g->infos, (uint64_t)sizes[i], 8);
    gguf_number(&g->infos, type, 4);
    gguf_number(&g->infos, g->data.length, 8);
    text_put(&g->data, data, bytes, NULL);
    g->tensor_count++;
}

static inline void gguf_free_file(struct gguf_file *g)
{
    text_free(&g->entries);
    text_free(&g->infos);
    text_free(&g->data);
    g->entry_count = g->tensor_count = 0;
}

/* Returns the whole file, and discards entries and tensors. */
static inline struct text gguf_join(struct gguf_file *g, uint32_t version)
{
    struct text out = {0};
    text_puts(&out, "GGUF", NULL);
    gguf_number(&out, version, 4);
    gguf_number(&out, g->tensor_count, 8);
    gguf_number(&out, g->entry_count, 8);
    text_put(&out, g->entries.data, g->entries.length, NULL);
    text_put(&out, g->infos.data, g->infos.length, NULL);
    while (g->tensor_count && out.length % 32)
        text_putc(&out, 0, NULL);
    text_put(&out, g->data.data, g->data.length, NULL);
    gguf_free_file(g);
    return out;
}

static inline void gguf_write(struct gguf_file *g, const char *path)
{
    struct text file = gguf_join(g, 3);
    unit_write(path, file.data, file.length);
    text_free(&file);
}

#endif
