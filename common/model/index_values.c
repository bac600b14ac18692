#include "common/model/index_values.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- writing ---- */

void index_put_text(msgpack_packer *to, const char *text)
{
    msgpack_pack_str(to, strlen(text));
    msgpack_pack_str_body(to, text, strlen(text));
}

void index_put_blob(msgpack_packer *to, const void *data, size_t bytes)
{
    msgpack_pack_bin(to, bytes);
    if (bytes)
        msgpack_pack_bin_body(to, data, bytes);
}

static const size_t field_bytes[] = {[INDEX_INT] = sizeof(int), [INDEX_FLAG] = sizeof(bool), [INDEX_FLOAT] = sizeof(float),
                                     [INDEX_DOUBLE] = sizeof(double)};

bool index_field_is_set(const void *body, const struct index_field *field)
{
    static const char zeros[sizeof(double)];
    return memcmp((const char *)body + field->offset, zeros, field_bytes[field->type]) != 0;
}

/* The value of a field, of any type. */
union field_value {
    int integer;
    bool flag;
    float single;
    double real;
};

void index_put_field(msgpack_packer *to, const void *body, const struct index_field *field)
{
    union field_value value = {0};
    memcpy(&value, (const char *)body + field->offset, field_bytes[field->type]);
    index_put_text(to, field->key);
    switch (field->type) {
    case INDEX_INT:    msgpack_pack_int(to, value.integer); break;
    case INDEX_FLAG:   value.flag ? msgpack_pack_true(to) : msgpack_pack_false(to); break;
    case INDEX_FLOAT:  msgpack_pack_double(to, (double)value.single); break;
    case INDEX_DOUBLE: msgpack_pack_double(to, value.real); break;
    }
}

/* ---- reading ---- */

int index_take(struct cursor *cursor, enum wire_type type, struct wire_value *value, struct err *err)
{
    if (cursor_next(cursor, value))
        return err_set(err, ERR_INPUT, "is truncated");
    if (value->type != type)
        return err_set(err, ERR_INPUT, "is %s, but must be %s", wire_type_name(value->type), wire_type_name(type));
    return 0;
}

int index_int(struct cursor *cursor, int64_t min, int64_t max, int64_t *out, struct err *err)
{
    struct wire_value value;
    int64_t integer;
    if (index_take(cursor, WIRE_INT, &value, err))
        return -1;
    if (!wire_int64(&value, &integer) || integer < min || integer > max)
        return err_set(err, ERR_INPUT, "is out of range");
    *out = integer;
    return 0;
}

int index_int32(struct cursor *cursor, int *out, struct err *err)
{
    int64_t integer;
    if (index_int(cursor, INT32_MIN, INT32_MAX, &integer, err))
        return -1;
    *out = (int)integer;
    return 0;
}

int index_flag(struct cursor *cursor, bool *out, struct err *err)
{
    struct wire_value value;
    if (index_take(cursor, WIRE_FLAG, &value, err))
        return -1;
    *out = value.integer != 0;
    return 0;
}

static int take_real(struct cursor *cursor, double *out, struct err *err)
{
    struct wire_value value;
    if (index_take(cursor, WIRE_REAL, &value, err))
        return -1;
    if (!isfinite(value.real) || fabs(value.real) > (double)FLT_MAX)
        return err_set(err, ERR_INPUT, "is not a finite number");
    *out = value.real;
    return 0;
}

int index_take_field(struct cursor *cursor, void *body, const struct index_field *field, struct err *err)
{
    union field_value value = {0};
    double real;
    switch (field->type) {
    case INDEX_INT:
        if (index_int32(cursor, &value.integer, err))
            return -1;
        break;
    case INDEX_FLAG:
        if (index_flag(cursor, &value.flag, err))
            return -1;
        break;
    case INDEX_FLOAT:
    case INDEX_DOUBLE:
        if (take_real(cursor, &real, err))
            return -1;
        if (field->type == INDEX_FLOAT)
            value.single = (float)real;
        else
            value.real = real;
        break;
    }
    memcpy((char *)body + field->offset, &value, field_bytes[field->type]);
    return 0;
}

int index_text(struct cursor *cursor, char *out, size_t room, struct err *err)
{
    struct wire_value value;
    if (index_take(cursor, WIRE_TEXT, &value, err))
        return -1;
    if (value.bytes >= room || memchr(value.data, 0, value.bytes))
        return err_set(err, ERR_INPUT, "must be a string of less than %zu bytes", room);
    memcpy(out, value.data, value.bytes);
    out[value.bytes] = '\0';
    return 0;
}

int index_blob(struct cursor *cursor, void *out, size_t bytes, struct err *err)
{
    struct wire_value value;
    if (index_take(cursor, WIRE_BYTES, &value, err))
        return -1;
    if (value.bytes != bytes)
        return err_set(err, ERR_INPUT, "has %zu bytes, but must have %zu", value.bytes, bytes);
    memcpy(out, value.data, bytes);
    return 0;
}

int index_long_text(struct cursor *cursor, struct text *out, struct err *err)
{
    struct wire_value value;
    if (index_take(cursor, WIRE_BYTES, &value, err))
        return -1;
    return value.bytes ? text_put(out, value.data, value.bytes, err) : 0;
}

int index_count(struct cursor *cursor, size_t max, size_t *out, struct err *err)
{
    struct wire_value value;
    if (index_take(cursor, WIRE_ARRAY, &value, err))
        return -1;
    if (value.count > max)
        return err_set(err, ERR_INPUT, "has %u elements, more than the maximum of %zu", (unsigned)value.count, max);
    *out = value.count;
    return 0;
}

int index_list_of(struct cursor *cursor, size_t elements, struct err *err)
{
    size_t count;
    if (index_count(cursor, elements, &count, err))
        return -1;
    return count == elements ? 0 : err_set(err, ERR_INPUT, "has %zu elements, but must have %zu", count, elements);
}

int index_map(struct cursor *cursor, const char *(*name)(int key), int keys, int required, enum index_unknown unknown,
              int (*at)(void *context, int key, struct err *err), void *context, struct err *err)
{
    struct wire_value head, text;
    uint64_t seen = 0;
    if (index_take(cursor, WIRE_MAP, &head, err))
        return -1;
    for (uint32_t i = 0; i < head.count; i++) {
        int key = 0;
        if (index_take(cursor, WIRE_TEXT, &text, err))
            return err_at(err, "a key");
        while (key < keys && !wire_is(&text, name(key)))
            key++;
        if (key == keys) {
            if (unknown == INDEX_REFUSE)
                return err_set(err, ERR_INPUT, "unknown key %.*s; update moekit, or convert the model again",
                               text.bytes < 40 ? (int)text.bytes : 40, (const char *)text.data);
            if (cursor_skip(cursor))
                return err_set(err, ERR_INPUT, "is truncated");
            continue;
        }
        if (seen >> key & 1)
            return err_set(err, ERR_INPUT, "%s occurs twice", name(key));
        seen |= (uint64_t)1 << key;
        if (at(context, key, err))
            return err_at(err, "%s", name(key));
    }
    for (int key = 0; key < required; key++)
        if (!(seen >> key & 1))
            return err_set(err, ERR_INPUT, "%s is missing", name(key));
    return 0;
}
