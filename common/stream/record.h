/* One record as it was read, and access to its payload by key.
 *
 * Most consumers look at `kind` and `body` alone: the reader has checked the record against its table (field.h) and filled
 * the C struct. The functions below read single keys, also of maps within the record. All memory (body, text, arrays,
 * maps) belongs to the reader and holds until its next call.
 *
 * A missing key, another type or another shape is an error that names file, record, type and key. The _if_any forms leave
 * *out alone and answer 0 when the key is missing. */
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
    const uint8_t *begin, *end;         /* the value's bytes */
    void *copy;                         /* of text or elements, once asked for: aligned, NUL-terminated */
};

struct record_memory {                  /* blocks that live as long as the record */
    void **blocks;                      /* those that did not fit into the slab */
    size_t count, room;
    uint8_t *slab;                      /* of which blocks are cut, for all records again; NULL: not needed yet */
    size_t used;
};
void *record_memory_take(struct record_memory *memory, size_t bytes, struct err *err);
void record_memory_clear(struct record_memory *memory);         /* frees the blocks, keeps the slab */
void record_memory_free(struct record_memory *memory);

struct record {
    const char *type;                   /* "route" */
    int64_t index;                      /* of the record in the stream; -1: a header, then type says whose */
    const struct record_kind *kind;     /* NULL: an ancillary record that is not known here */
    const void *body;                   /* struct of that kind; NULL without kind */
    const char *file;                   /* name for messages */
    const char *inside;                 /* of a map within a record: its key; else NULL */
    const uint8_t *payload, *payload_end;
    struct record_entry *entries;       /* keys in the order of the stream */
    int count;
    struct record_memory *memory;
};

/* Indexes the map whose bytes are payload..payload_end into record->entries; duplicate keys are an error. */
int record_index(struct record *record, struct err *err);

int record_int(const struct record *record, const char *key, int64_t *out, struct err *err);
int record_uint(const struct record *record, const char *key, uint64_t *out, struct err *err);
int record_real(const struct record *record, const char *key, double *out, struct err *err);   /* an integer will do */
int record_flag(const struct record *record, const char *key, bool *out, struct err *err);
int record_text(const struct record *record, const char *key, const char **out, struct err *err);    /* no NULs inside */
int record_map(const struct record *record, const char *key, struct record *out, struct err *err);

/* Any array, or one of this dtype and shape; elements are aligned for their type. */
int record_array_any(const struct record *record, const char *key, struct array *out, struct err *err);
int record_array(const struct record *record, const char *key, enum dtype dtype, int rank, const uint64_t *shape,
                 const void **out, struct err *err);

bool record_has(const struct record *record, const char *key);

int record_int_if_any(const struct record *record, const char *key, int64_t *out, struct err *err);
int record_text_if_any(const struct record *record, const char *key, const char **out, struct err *err);

int record_error_at(const struct record *record, struct err *err);      /* puts file, record and type in front */

#endif
