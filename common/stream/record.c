#include "common/stream/record.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

enum { RECORD_KEYS = 1024 };        /* maximum keys per map; keeps the search for duplicates short */

/* Blocks are allocated from one slab as long as they fit, because most records are small and numerous. */
enum { SLAB_BYTES = 1 << 18, SLAB_STEP = 64 };

void *record_memory_take(struct record_memory *memory, size_t bytes, struct err *err)
{
    if (bytes <= SLAB_BYTES - memory->used) {
        if (!memory->slab && !(memory->slab = mem_alloc_aligned(SLAB_BYTES, 1, err)))
            return NULL;
        uint8_t *cut = memory->slab + memory->used;
        memory->used += (bytes + SLAB_STEP - 1) / SLAB_STEP * SLAB_STEP;
        return memset(cut, 0, bytes);
    }
    if (mem_grow(&memory->blocks, &memory->room, memory->count + 1, sizeof *memory->blocks, err))
        return NULL;
    void *block = mem_alloc_aligned(bytes, 1, err);
    if (block)
        memory->blocks[memory->count++] = block;
    return block;
}

void record_memory_clear(struct record_memory *memory)
{
    while (memory->count)
        mem_free(&memory->blocks[--memory->count]);
    memory->used = 0;
}

void record_memory_free(struct record_memory *memory)
{
    record_memory_clear(memory);
    mem_free(&memory->blocks);
    mem_free(&memory->slab);
    memory->room = 0;
}

int record_error_at(const struct record *record, struct err *err)
{
    if (record->index < 0)
        return err_at(err, "%s", record->type);
    return err_at(err, "%s: record %lld (%s)", record->file, (long long)record->index, record->type);
}

static int index_entry(struct record_entry *entry, struct cursor *cursor, struct err *err)
{
    if (cursor_next(cursor, &entry->key))
        return err_set(err, ERR_INPUT, "a map is truncated; the stream is damaged");
    if (entry->key.type != WIRE_TEXT)
        return err_set(err, ERR_INPUT, "a key is %s, but must be text; the stream is damaged", wire_type_name(entry->key.type));
    entry->begin = cursor->at;
    if (cursor_skip(cursor))
        return err_set(err, ERR_INPUT, "a map is truncated; the stream is damaged");
    entry->end = cursor->at;
    return 0;
}

int record_index(struct record *record, struct err *err)
{
    struct cursor cursor = {record->payload, record->payload_end};
    struct wire_value map;
    if (cursor_next(&cursor, &map) || map.type != WIRE_MAP)
        return err_set(err, ERR_INPUT, "its payload is not a map; the stream is damaged");
    if (map.count > RECORD_KEYS)
        return err_set(err, ERR_INPUT, "a map has %lu keys, but the limit is %d; the stream is damaged",
                       (unsigned long)map.count, RECORD_KEYS);
    record->entries = record_memory_take(record->memory, map.count * sizeof *record->entries, err);
    if (!record->entries)
        return -1;
    record->count = 0;
    for (uint32_t i = 0; i < map.count; i++) {
        struct record_entry *entry = &record->entries[i];
        if (index_entry(entry, &cursor, err))
            return -1;
        for (uint32_t j = 0; j < i; j++)
            if (record->entries[j].key.bytes == entry->key.bytes &&
                (!entry->key.bytes || record->entries[j].key.data[0] == entry->key.data[0]) &&
                !memcmp(record->entries[j].key.data, entry->key.data, entry->key.bytes))
                return err_set(err, ERR_INPUT, "key '%.*s' occurs twice; the stream is damaged",
                               (int)(entry->key.bytes < 64 ? entry->key.bytes : 64), (const char *)entry->key.data);
        record->count++;
    }
    return 0;
}

static struct record_entry *find(const struct record *record, const char *key)
{
    size_t bytes = strlen(key);
    for (int i = 0; i < record->count; i++) {
        const struct wire_value *at = &record->entries[i].key;
        if (at->bytes == bytes && bytes && at->data[0] == (uint8_t)key[0] && !memcmp(at->data, key, bytes))
            return &record->entries[i];
    }
    return NULL;
}

bool record_has(const struct record *record, const char *key) { return find(record, key) != NULL; }

/* Prefixes an error message with the key and its position. */
static int at_key(const struct record *record, const char *key, struct err *err)
{
    err_at(err, "key '%s%s%s'", record->inside ? record->inside : "", record->inside ? "." : "", key);
    return record_error_at(record, err);
}

static int not_a(const struct record *record, const char *key, const struct wire_value *value, const char *wanted,
                 struct err *err)
{
    err_set(err, ERR_INPUT, "is %s, but must be %s; the stream is damaged or of another version", wire_type_name(value->type),
            wanted);
    return at_key(record, key, err);
}

/* Finds a required key and its value. */
static int value_of(const struct record *record, const char *key, struct record_entry **entry, struct wire_value *value,
                    struct err *err)
{
    *entry = find(record, key);
    if (!*entry) {
        err_set(err, ERR_INPUT, "is missing; the stream is damaged or of another version");
        return at_key(record, key, err);
    }
    struct cursor cursor = {(*entry)->begin, (*entry)->end};
    return cursor_next(&cursor, value);
}

int record_int(const struct record *record, const char *key, int64_t *out, struct err *err)
{
    struct record_entry *entry;
    struct wire_value value;
    if (value_of(record, key, &entry, &value, err))
        return -1;
    if (!wire_int64(&value, out))
        return not_a(record, key, &value, "an integer of 64 bits", err);
    return 0;
}

int record_uint(const struct record *record, const char *key, uint64_t *out, struct err *err)
{
    struct record_entry *entry;
    struct wire_value value;
    if (value_of(record, key, &entry, &value, err))
        return -1;
    if (value.type != WIRE_INT || value.negative)
        return not_a(record, key, &value, "an integer of 64 bits, not negative", err);
    *out = value.integer;
    return 0;
}

int record_real(const struct record *record, const char *key, double *out, struct err *err)
{
    struct record_entry *entry;
    struct wire_value value;
    int64_t whole;
    if (value_of(record, key, &entry, &value, err))
        return -1;
    if (value.type == WIRE_REAL)
        *out = value.real;
    else if (wire_int64(&value, &whole))
        *out = (double)whole;
    else
        return not_a(record, key, &value, "a number", err);
    return 0;
}

int record_flag(const struct record *record, const char *key, bool *out, struct err *err)
{
    struct record_entry *entry;
    struct wire_value value;
    if (value_of(record, key, &entry, &value, err))
        return -1;
    if (value.type != WIRE_FLAG)
        return not_a(record, key, &value, "a flag", err);
    *out = value.integer != 0;
    return 0;
}

int record_text(const struct record *record, const char *key, const char **out, struct err *err)
{
    struct record_entry *entry;
    struct wire_value value;
    if (value_of(record, key, &entry, &value, err))
        return -1;
    if (value.type != WIRE_TEXT)
        return not_a(record, key, &value, "text", err);
    if (memchr(value.data, 0, value.bytes)) {
        err_set(err, ERR_INPUT, "contains a NUL byte; the stream is damaged");
        return at_key(record, key, err);
    }
    if (!entry->copy) {
        entry->copy = record_memory_take(record->memory, value.bytes + 1, err);
        if (!entry->copy)
            return at_key(record, key, err);
        memcpy(entry->copy, value.data, value.bytes);
    }
    *out = entry->copy;
    return 0;
}

int record_map(const struct record *record, const char *key, struct record *out, struct err *err)
{
    struct record_entry *entry;
    struct wire_value value;
    if (value_of(record, key, &entry, &value, err))
        return -1;
    if (value.type != WIRE_MAP)
        return not_a(record, key, &value, "a map", err);
    struct record map = {.type = record->type, .index = record->index, .file = record->file, .inside = key,
                         .payload = entry->begin, .payload_end = entry->end, .memory = record->memory};
    if (record_index(&map, err))
        return at_key(record, key, err);
    *out = map;
    return 0;
}

int record_array_any(const struct record *record, const char *key, struct array *out, struct err *err)
{
    struct record_entry *entry;
    struct wire_value value;
    struct array array;
    if (value_of(record, key, &entry, &value, err))
        return -1;
    if (value.type != WIRE_EXT || value.code != ARRAY_EXT)
        return not_a(record, key, &value, "an array", err);
    if (array_decode(&array, value.data, value.bytes, err))
        return at_key(record, key, err);
    if (!entry->copy) {
        size_t bytes = array.count * array_dtype_size(array.dtype);
        entry->copy = record_memory_take(record->memory, bytes, err);
        if (!entry->copy)
            return at_key(record, key, err);
        if (bytes)
            memcpy(entry->copy, array.data, bytes);
    }
    array.data = entry->copy;
    *out = array;
    return 0;
}

static void shape_text(char *out, size_t room, enum dtype dtype, int rank, const uint64_t *shape)
{
    size_t used = (size_t)snprintf(out, room, "%s ", array_dtype_name(dtype));
    for (int i = 0; i < rank && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "[%llu]", (unsigned long long)shape[i]);
}

int record_array(const struct record *record, const char *key, enum dtype dtype, int rank, const uint64_t *shape,
                 const void **out, struct err *err)
{
    struct array array;
    if (record_array_any(record, key, &array, err))
        return -1;
    if (array.dtype != dtype || array.rank != rank || (rank && memcmp(array.shape, shape, (size_t)rank * sizeof *shape))) {
        char is[200], must[200];
        shape_text(is, sizeof is, array.dtype, array.rank, array.shape);
        shape_text(must, sizeof must, dtype, rank, shape);
        err_set(err, ERR_INPUT, "is %s, but must be %s; the stream is damaged or of another model", is, must);
        return at_key(record, key, err);
    }
    *out = array.data;
    return 0;
}

int record_int_if_any(const struct record *record, const char *key, int64_t *out, struct err *err)
{
    return record_has(record, key) ? record_int(record, key, out, err) : 0;
}

int record_text_if_any(const struct record *record, const char *key, const char **out, struct err *err)
{
    return record_has(record, key) ? record_text(record, key, out, err) : 0;
}
