/* The contents of a record: one table per record type, which drives writing, reading, checking and printing, and from which
 * the tables of moe-stream.5 are generated.
 *
 * A record type is a C struct; each member that is stored in the stream has one row in the table. The key is the member's
 * name. Absent optional values are -1 (int, int64_t), NaN (double), NULL (text, arrays); otherwise integers are never
 * negative. Arrays have a shape, "[n][moe_layers][top_k]"; each name in it is a key of the same record or a size of the
 * model (layers, moe_layers, experts, top_k, vocab, hidden). */
#ifndef MOE_STREAM_FIELD_H
#define MOE_STREAM_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/stream/array.h"
#include "common/stream/header.h"
#include "common/stream/values.h"

struct record;
struct writer;

enum field_type { FIELD_INT, FIELD_INT64, FIELD_REAL, FIELD_FLAG, FIELD_TEXT, FIELD_CHOICE, FIELD_ARRAY, FIELD_VALUES };

struct field {
    const char *key;
    enum field_type type;
    bool optional;
    enum dtype dtype;                   /* of an ARRAY */
    unsigned dtypes;                    /* of an ARRAY: set of permitted types, bits 1 << dtype; the member is a struct
                                         * elements. 0: only `dtype`, and the member is a pointer */
    const char *shape;                  /* of an ARRAY */
    const char *const *choices;         /* of a CHOICE: words, ending with NULL; the member is an int, the word's index */
    size_t offset;                      /* offsetof the member in its struct */
    const char *meaning;
};

#define FIELD_TYPE_OF(member) _Generic((member), int: FIELD_INT, int64_t: FIELD_INT64, double: FIELD_REAL, \
    bool: FIELD_FLAG, const char *: FIELD_TEXT, struct values: FIELD_VALUES)
#define FIELD_DTYPE_OF(member) _Generic((member), const int8_t *: DTYPE_I8, const uint8_t *: DTYPE_U8, \
    const int16_t *: DTYPE_I16, const int32_t *: DTYPE_I32, const int64_t *: DTYPE_I64, const float *: DTYPE_F32, \
    const double *: DTYPE_F64)
#define FIELD_OF(s, member) (((const struct s *)0)->member)

/* One row of a table: the struct, its member (whose name is the key), whether the member may be absent, and its description. */
#define FIELD(s, member, lacks, text) \
    { .key = #member, .type = FIELD_TYPE_OF(FIELD_OF(s, member)), .optional = (lacks), .offset = offsetof(struct s, member), \
      .meaning = (text) }
#define FIELD_WORD(s, member, words, text) \
    { .key = #member, .type = FIELD_CHOICE, .choices = (words), .offset = offsetof(struct s, member), .meaning = (text) }
#define FIELD_ARRAY_OF(s, member, dims, lacks, text) \
    { .key = #member, .type = FIELD_ARRAY, .dtype = FIELD_DTYPE_OF(FIELD_OF(s, member)), .shape = (dims), \
      .optional = (lacks), .offset = offsetof(struct s, member), .meaning = (text) }

#define FIELD_ELEMENTS_OF(s, member, dims, types, text) \
    { .key = #member, .type = FIELD_ARRAY, .dtypes = (types), .shape = (dims), \
      .offset = offsetof(struct s, member) + 0 * sizeof FIELD_OF(s, member).dtype, .meaning = (text) }

/* State for checks across records: sequences that have begun and not ended. */
struct sequences {
    int64_t *open;
    size_t count, room;
};
int sequences_begin(struct sequences *open, int64_t sequence, struct err *err);
int sequences_use(const struct sequences *open, int64_t sequence, struct err *err);
int sequences_end(struct sequences *open, int64_t sequence, struct err *err);
void sequences_free(struct sequences *open);

struct record_kind {
    const char *type, *meaning;
    size_t size;                        /* sizeof the struct */
    const struct field *fields;
    int count;
    /* Checks what types and shapes cannot express; may be NULL. Called when a record is read and when it is written. */
    int (*check)(const void *body, const struct header *header, struct sequences *open, struct err *err);
    bool spread;                        /* all arrays have the same single extent: a table has one row per element */
};

#define RECORD_KIND(name, text, s, table, checks) \
    .type = name, .meaning = text, .size = sizeof(struct s), .fields = table, .count = (int)(sizeof table / sizeof *table), \
    .check = checks

/* Sets all optional members of `body` to absent, and the others to zero. */
void record_kind_absent(const struct record_kind *kind, void *body);

/* Returns whether an optional member of `body` has the value of an absent one. */
bool field_is_absent(const struct field *field, const void *body);

/* Fills `body` (kind->size bytes) from a record; texts and arrays point into the record's memory. */
int record_kind_read(const struct record_kind *kind, const struct record *record, const struct header *header, void *body,
                     struct err *err);

/* Writes the members of `body` into the map that is open in the writer. */
int record_kind_put(const struct record_kind *kind, const void *body, const struct header *header, struct writer *writer,
                    struct err *err);

/* Computes the extents of a field's shape for this body; *rank: their number. */
int field_shape(const struct record_kind *kind, const struct field *field, const void *body, const struct header *header,
                int *rank, uint64_t shape[ARRAY_RANK], struct err *err);

const struct field *record_kind_field(const struct record_kind *kind, const char *key);     /* NULL: unknown key */

/* Returns the number under a key of a body: a scalar, or an element of an array of i32, i64 or f64. NaN: unknown key. */
double record_kind_number(const struct record_kind *kind, const char *key, const void *body, int element);

#endif
