#include "common/stream/field.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/stream/record.h"
#include "common/stream/writer.h"

const struct field *record_kind_field(const struct record_kind *kind, const char *key)
{
    for (int i = 0; i < kind->count; i++)
        if (kind->fields[i].key[0] == key[0] && !strcmp(kind->fields[i].key, key))
            return &kind->fields[i];
    return NULL;
}

static const void *member(const void *body, const struct field *field) { return (const char *)body + field->offset; }

#define GET(type, body, field) (*(type const *)member(body, field))

/* Returns an array member's pointer. It is copied by its bytes: these members have various pointer types, which have the
 * same representation, but may not alias. */
static const void *get_array(const void *body, const struct field *field)
{
    const void *elements;
    memcpy(&elements, member(body, field), sizeof elements);
    return elements;
}

static void set_array(void *at, const void *elements) { memcpy(at, &elements, sizeof elements); }

/* Returns the type of an array's elements; for some fields it differs between records. */
static enum dtype get_dtype(const void *body, const struct field *field)
{
    return field->dtypes ? GET(struct elements, body, field).dtype : field->dtype;
}

double record_kind_number(const struct record_kind *kind, const char *key, const void *body, int element)
{
    const struct field *field = record_kind_field(kind, key);
    if (!field)
        return NAN;
    switch (field->type) {
    case FIELD_INT:   return GET(int, body, field);
    case FIELD_INT64: return (double)GET(int64_t, body, field);
    case FIELD_REAL:  return GET(double, body, field);
    case FIELD_ARRAY: break;
    default:          return NAN;
    }
    const void *array = get_array(body, field);
    return field->dtype == DTYPE_I32   ? ((const int32_t *)array)[element]
           : field->dtype == DTYPE_I64 ? (double)((const int64_t *)array)[element]
                                       : ((const double *)array)[element];
}

static int model_extent(const struct header *header, const char *name, uint64_t *out, struct err *err)
{
    const struct stream_model *model = &header->model;
    const struct { const char *name; int value; } extents[] = {
        {"layers", model->layers}, {"moe_layers", model->moe_layers}, {"experts", model->experts},
        {"top_k", model->top_k}, {"vocab", model->vocab}, {"hidden", model->hidden},
    };
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
        if (extents[i].name[0] == name[0] && !strcmp(extents[i].name, name)) {
            if (!header->has_model)
                return err_set(err, ERR_INPUT, "its shape needs the model, which the stream's header does not name");
            *out = (uint64_t)extents[i].value;
            return 0;
        }
    return err_set(err, ERR_INPUT, "its shape has an unknown name '%s'", name);
}

int field_shape(const struct record_kind *kind, const struct field *field, const void *body, const struct header *header,
                int *rank, uint64_t shape[ARRAY_RANK], struct err *err)
{
    int found = 0;
    uint64_t extents[ARRAY_RANK];
    for (const char *at = field->shape; *at == '[' && found < ARRAY_RANK; found++) {
        char name[32];
        size_t length = strcspn(++at, "]");
        if (length >= sizeof name)
            length = sizeof name - 1;
        memcpy(name, at, length);
        name[length] = '\0';
        at += length + 1;
        const struct field *extent = record_kind_field(kind, name);
        if (extent && extent->type == FIELD_INT)
            extents[found] = (uint64_t)GET(int, body, extent);
        else if (model_extent(header, name, &extents[found], err))
            return -1;
    }
    memcpy(shape, extents, sizeof *extents * (size_t)found);
    *rank = found;
    return 0;
}

static int read_values(const struct record *record, const char *key, struct values *out, struct err *err)
{
    struct record map;
    if (record_map(record, key, &map, err))
        return -1;
    for (int i = 0; i < map.count; i++) {
        struct cursor cursor = {map.entries[i].begin, map.entries[i].end};
        struct wire_value value;
        char name[VALUES_KEY], text[VALUES_TEXT];
        int64_t whole;
        if (cursor_next(&cursor, &value) || map.entries[i].key.bytes >= sizeof name)
            continue;                           /* skip entries that no writer of this program could have written */
        memcpy(name, map.entries[i].key.data, map.entries[i].key.bytes);
        name[map.entries[i].key.bytes] = '\0';
        if (wire_int64(&value, &whole)) {
            values_int(out, name, whole);
        } else if (value.type == WIRE_REAL) {
            values_real(out, name, value.real);
        } else if (value.type == WIRE_TEXT && value.bytes < sizeof text) {
            memcpy(text, value.data, value.bytes);
            text[value.bytes] = '\0';
            values_text(out, name, text);
        }
    }
    return 0;
}

static int read_word(const struct record *record, const struct field *field, int *out, struct err *err)
{
    const char *word;
    if (record_text(record, field->key, &word, err))
        return -1;
    for (int i = 0; field->choices[i]; i++)
        if (!strcmp(field->choices[i], word)) {
            *out = i;
            return 0;
        }
    err_set(err, ERR_INPUT, "key '%s' has the unknown value '%.40s'; the stream is damaged or newer", field->key,
            word);
    return record_error_at(record, err);
}

static int read_whole(const struct record *record, const char *key, int64_t max, int64_t *out, struct err *err)
{
    if (record_int(record, key, out, err))
        return -1;
    if (*out < 0 || *out > max) {
        err_set(err, ERR_INPUT, "key '%s' is %lld, but must be from 0 to %lld; the stream is damaged", key, (long long)*out,
                (long long)max);
        return record_error_at(record, err);
    }
    return 0;
}

/* Sets the value that an absent optional field has. */
static void set_absent(const struct field *field, void *at)
{
    switch (field->type) {
    case FIELD_INT:    *(int *)at = -1; break;
    case FIELD_INT64:  *(int64_t *)at = -1; break;
    case FIELD_REAL:   *(double *)at = NAN; break;
    case FIELD_TEXT:   *(const char **)at = NULL; break;
    case FIELD_ARRAY:  set_array(at, NULL); break;
    case FIELD_FLAG: case FIELD_CHOICE: case FIELD_VALUES: break;       /* zero means: no, the first word, no values */
    }
}

void record_kind_absent(const struct record_kind *kind, void *body)
{
    memset(body, 0, kind->size);
    for (int i = 0; i < kind->count; i++)
        if (kind->fields[i].optional)
            set_absent(&kind->fields[i], (char *)body + kind->fields[i].offset);
}

bool field_is_absent(const struct field *field, const void *body)
{
    switch (field->type) {
    case FIELD_INT:    return GET(int, body, field) == -1;
    case FIELD_INT64:  return GET(int64_t, body, field) == -1;
    case FIELD_REAL:   return isnan(GET(double, body, field));
    case FIELD_TEXT:   return !GET(const char *, body, field);
    case FIELD_ARRAY:  return !get_array(body, field);
    case FIELD_VALUES: return !GET(struct values, body, field).count;
    case FIELD_FLAG: case FIELD_CHOICE: break;
    }
    return false;
}

static int read_scalar(const struct field *field, const struct record *record, void *at, struct err *err)
{
    int64_t whole;
    switch (field->type) {
    case FIELD_INT:
        if (read_whole(record, field->key, INT_MAX, &whole, err))
            return -1;
        *(int *)at = (int)whole;
        return 0;
    case FIELD_INT64:  return read_whole(record, field->key, INT64_MAX, at, err);
    case FIELD_REAL:   return record_real(record, field->key, at, err);
    case FIELD_FLAG:   return record_flag(record, field->key, at, err);
    case FIELD_TEXT:   return record_text(record, field->key, at, err);
    case FIELD_CHOICE: return read_word(record, field, at, err);
    case FIELD_VALUES: return read_values(record, field->key, at, err);
    case FIELD_ARRAY:  break;
    }
    return 0;
}

static int read_array(const struct record_kind *kind, const struct field *field, const struct record *record,
                      const struct header *header, const void *body, void *at, struct err *err)
{
    int rank;
    uint64_t shape[ARRAY_RANK];
    if (field_shape(kind, field, body, header, &rank, shape, err)) {
        err_at(err, "key '%s'", field->key);
        return record_error_at(record, err);
    }
    const void *elements;
    struct array found = {.dtype = field->dtype};
    if (field->dtypes && record_array_any(record, field->key, &found, err))
        return -1;
    if (field->dtypes && !(field->dtypes >> found.dtype & 1)) {
        err_set(err, ERR_INPUT, "key '%s' has elements of the unexpected type %s; the stream is damaged or newer", field->key,
                array_dtype_name(found.dtype));
        return record_error_at(record, err);
    }
    if (record_array(record, field->key, found.dtype, rank, shape, &elements, err))
        return -1;
    if (field->dtypes)
        *(struct elements *)at = (struct elements){elements, found.dtype};
    else
        set_array(at, elements);
    return 0;
}

int record_kind_read(const struct record_kind *kind, const struct record *record, const struct header *header, void *body,
                     struct err *err)
{
    memset(body, 0, kind->size);
    for (int arrays = 0; arrays < 2; arrays++)          /* scalars first, because shapes depend on them */
        for (int i = 0; i < kind->count; i++) {
            const struct field *field = &kind->fields[i];
            void *at = (char *)body + field->offset;
            if ((field->type == FIELD_ARRAY) != arrays)
                continue;
            if (field->optional && !record_has(record, field->key))
                set_absent(field, at);
            else if (arrays ? read_array(kind, field, record, header, body, at, err) : read_scalar(field, record, at, err))
                return -1;
        }
    return 0;
}

static int put_array(const struct record_kind *kind, const struct field *field, const void *body, const struct header *header,
                     struct writer *writer, struct err *err)
{
    int rank;
    uint64_t shape[ARRAY_RANK];
    if (field->dtypes && !(field->dtypes >> get_dtype(body, field) & 1))
        return err_set(err, ERR_INPUT, "%s: key '%s' has elements of the unexpected type %s", kind->type, field->key,
                       array_dtype_name(get_dtype(body, field)));
    if (field_shape(kind, field, body, header, &rank, shape, err))
        return err_at(err, "%s: key '%s'", kind->type, field->key);
    writer_array(writer, field->key, get_dtype(body, field), rank, shape, get_array(body, field));
    return 0;
}

int record_kind_put(const struct record_kind *kind, const void *body, const struct header *header, struct writer *writer,
                    struct err *err)
{
    for (int i = 0; i < kind->count; i++) {
        const struct field *field = &kind->fields[i];
        if (field_is_absent(field, body)) {
            if (field->optional)
                continue;
            if (field->type != FIELD_REAL && field->type != FIELD_VALUES)
                return err_set(err, ERR_INPUT, "%s: key '%s' has no value", kind->type, field->key);
        }
        if ((field->type == FIELD_INT && GET(int, body, field) < 0) ||
            (field->type == FIELD_INT64 && GET(int64_t, body, field) < 0))
            return err_set(err, ERR_INPUT, "%s: key '%s' is negative", kind->type, field->key);
        switch (field->type) {
        case FIELD_INT:    writer_int(writer, field->key, GET(int, body, field)); break;
        case FIELD_INT64:  writer_int(writer, field->key, GET(int64_t, body, field)); break;
        case FIELD_REAL:   writer_real(writer, field->key, GET(double, body, field)); break;
        case FIELD_FLAG:   writer_flag(writer, field->key, GET(bool, body, field)); break;
        case FIELD_TEXT:   writer_text(writer, field->key, GET(const char *, body, field)); break;
        case FIELD_CHOICE: writer_text(writer, field->key, field->choices[GET(int, body, field)]); break;
        case FIELD_VALUES: writer_values(writer, field->key, &GET(struct values, body, field)); break;
        case FIELD_ARRAY:
            if (put_array(kind, field, body, header, writer, err))
                return -1;
            break;
        }
    }
    return 0;
}

/* Few sequences are open at once (prompts in flight), so a linear search is enough. */
enum { SEQUENCES_OPEN = 65536 };

static size_t sequences_find(const struct sequences *open, int64_t sequence)
{
    size_t i = open->count;
    while (i && open->open[i - 1] != sequence)          /* newest first: the most likely match */
        i--;
    return i;                                           /* index + 1; 0: not found */
}

int sequences_begin(struct sequences *open, int64_t sequence, struct err *err)
{
    if (sequences_find(open, sequence))
        return err_set(err, ERR_INPUT, "sequence %lld begins twice; the stream is damaged", (long long)sequence);
    if (open->count == SEQUENCES_OPEN)
        return err_set(err, ERR_INPUT, "more than %d sequences are open at once; the stream is damaged", SEQUENCES_OPEN);
    if (mem_grow(&open->open, &open->room, open->count + 1, sizeof *open->open, err))
        return -1;
    open->open[open->count++] = sequence;
    return 0;
}

int sequences_use(const struct sequences *open, int64_t sequence, struct err *err)
{
    if (!sequences_find(open, sequence))
        return err_set(err, ERR_INPUT, "sequence %lld is used before its begin record or after its end; the stream is damaged",
                       (long long)sequence);
    return 0;
}

int sequences_end(struct sequences *open, int64_t sequence, struct err *err)
{
    size_t index = sequences_find(open, sequence);
    if (!index)
        return sequences_use(open, sequence, err);
    memmove(open->open + index - 1, open->open + index, (open->count - index) * sizeof *open->open);
    open->count--;
    return 0;
}

void sequences_free(struct sequences *open)
{
    mem_free(&open->open);
    open->count = open->room = 0;
}
