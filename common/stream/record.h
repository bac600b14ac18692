/* One record that has been read, and access to its payload by key.
 *
 * Most callers only use `kind` and `body`: the reader has checked the record against its table (field.h) and filled the C
 * struct. The functions below read single keys, also of maps within the record. All memory (body, texts, arrays, maps) is
 * owned by the reader and valid until its next call.
 *
 * A missing key, a wrong type or a wrong shape is an error that names file, record, type and key. The _if_any functions
 * return 0 and leave *out unchanged if the key is missing. */
#ifndef MOE_STREAM_RECORD_H
#define MOE_STREAM_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/wire.h"
#include "common/stream/array.h"
#include "common/stream/field.h"

struct record_entry {
    struct wire_value key;
    const uint8_t *begin, *end;         /* encoded bytes of the value */
    void *copy;                         /* copy of text or elements, made on first access: aligned, NUL-terminated */
};

struct record_memory {                  /* memory blocks that are valid as long as the record */
    void **blocks;                      /* blocks that did not fit into the slab */
    size_t count, room;
    uint8_t *slab;                      /* memory from which blocks are cut, reused for all records; NULL: not needed yet */
    size_t used;
};
void *record_memory_take(struct record_memory *memory, size_t bytes, struct err *err);
void record_memory_clear(struct record_memory *memory);         /* frees the blocks but keeps the slab */
void record_memory_free(struct record_memory *memory);

struct record {
    const char *type;                   /* "route" */
    int64_t index;                      /* index in the stream; -1: a header, whose name is in type */
    const struct record_kind *kind;     /* NULL: an ancillary record of unknown type */
    const void *body;                   /* struct of that kind; NULL if kind is NULL */
    const char *file;                   /* file name for messages */
    const char *inside;                 /* for a map within a record: its key; else NULL */
    const uint8_t *payload, *payload_end;
    struct record_entry *entries;       /* in the order of the stream */
    int count;
    struct record_memory *memory;
};

/* Indexes the map at payload..payload_end in record->entries; duplicate keys are an error. */
int record_index(struct record *record, struct err *err);

/* Reads the value of one key. */
int record_int(const struct record *record, const char *key, int64_t *out, struct err *err);
int record_uint(const struct record *record, const char *key, uint64_t *out, struct err *err);
int record_real(const struct record *record, const char *key, double *out, struct err *err);   /* accepts integers, too */
int record_flag(const struct record *record, const char *key, bool *out, struct err *err);
/* text with a NUL inside is an error */
int record_text(const struct record *record, const char *key, const char **out, struct err *err);
int record_map(const struct record *record, const char *key, struct record *out, struct err *err);

/* Reads any array, or one of this dtype and shape; elements are aligned for their type. */
int record_array_any(const struct record *record, const char *key, struct array *out, struct err *err);
int record_array(const struct record *record, const char *key, enum dtype dtype, int rank, const uint64_t *shape,
                 const void **out, struct err *err);

/* Returns whether the record has the key. */
bool record_has(const struct record *record, const char *key);

int record_int_if_any(const struct record *record, const char *key, int64_t *out, struct err *err);
int record_text_if_any(const struct record *record, const char *key, const char **out, struct err *err);

int record_error_at(const struct record *record, struct err *err);      /* prefixes the message with file, record and type */

#endif
