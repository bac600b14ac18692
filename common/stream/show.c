#include "common/stream/show.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/float.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/base/text.h"
#include "common/base/utf8.h"

enum { SHOW_ELEMENTS = 16, SHOW_DEPTH = 40 };    /* elements shown per array in TEXT; maximum nesting depth */

struct show {
    struct output *out;
    enum show_form form;
    struct text line, names, arrays;    /* line: the current object; names: CSV header; arrays: lines of arrays in TEXT */
    bool first[SHOW_DEPTH];             /* the container at this depth is still empty */
    int depth;
    size_t cell;                        /* CSV: offset in line of the current map */
    bool named;                         /* CSV: the header line has been written */
    struct err fault;
};

int show_open(struct show **out, const char *path, enum show_form form, struct err *err)
{
    struct show *show = mem_alloc(1, sizeof *show, err);
    if (!show)
        return -1;
    show->form = form;
    if (output_open(&show->out, path, err)) {
        mem_free(&show);
        return -1;
    }
    *out = show;
    return 0;
}

static void show_free(struct show **address)
{
    struct show *show = *address;
    output_discard(&show->out);
    text_free(&show->line);
    text_free(&show->names);
    text_free(&show->arrays);
    mem_free(address);
}

int show_close(struct show **show, struct err *err)
{
    int rc = -1;
    if ((*show)->fault.code) {
        if (err && !err->code)
            *err = (*show)->fault;
    } else {
        rc = output_commit(&(*show)->out, err);
    }
    show_free(show);
    return rc;
}

void show_discard(struct show **show)
{
    if (*show)
        show_free(show);
}

enum show_form show_form(const struct show *show) { return show->form; }
int show_flush(struct show *show, struct err *err) { return output_flush(show->out, err); }

#define PUT(show, ...) text_printf(&(show)->line, &(show)->fault, __VA_ARGS__)

static void put_json(struct text *out, const char *text, size_t bytes, struct err *err)
{
    json_t *string = json_stringn(text, bytes);
    char *dump = string ? json_text(string, JSON_ENCODE_ANY, err) : NULL;
    if (dump)
        text_puts(out, dump, err);
    else
        err_memory(err);
    free(dump);
    json_decref(string);
}

static void put_csv(struct text *out, const char *text, size_t bytes, struct err *err)
{
    bool quote = memchr(text, ',', bytes) || memchr(text, '"', bytes) || memchr(text, '\n', bytes) || memchr(text, '\r', bytes);
    if (quote)
        text_putc(out, '"', err);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"')
            text_putc(out, '"', err);
        text_putc(out, text[i], err);
    }
    if (quote)
        text_putc(out, '"', err);
}

/* Writes the separator and, except in lists, the key. */
static void put_key(struct show *show, const char *key)
{
    bool first = show->first[show->depth];
    show->first[show->depth] = false;
    if (show->depth == 0 && show->form == SHOW_CSV) {
        if (!first && !text_putc(&show->line, ',', &show->fault) && !show->named)
            text_putc(&show->names, ',', &show->fault);
        if (!show->named)
            put_csv(&show->names, key, strlen(key), &show->fault);
    } else if (show->form == SHOW_TEXT) {
        PUT(show, "%s%s%s", show->depth == 0 ? "  " : first ? "" : ", ", key ? key : "", key ? " " : "");
    } else {
        PUT(show, "%s", first ? "" : ", ");
        if (key) {
            put_json(&show->line, key, strlen(key), &show->fault);
            PUT(show, ": ");
        }
    }
}

void show_begin(struct show *show, const char *type, int64_t index)
{
    text_clear(&show->line);
    text_clear(&show->names);
    text_clear(&show->arrays);
    show->depth = 0;
    show->first[0] = true;
    if (show->form == SHOW_JSON) {
        PUT(show, "{");
        show_text(show, "type", type, strlen(type));
    } else if (show->form == SHOW_TEXT) {
        PUT(show, "%s", type);
        if (index >= 0)
            PUT(show, " %" PRId64, index);
    }
}

void show_int(struct show *show, const char *key, int64_t value)
{
    put_key(show, key);
    PUT(show, "%" PRId64, value);
}

void show_uint(struct show *show, const char *key, uint64_t value)
{
    put_key(show, key);
    PUT(show, value > INT64_MAX && show->form != SHOW_CSV ? "\"%" PRIu64 "\"" : "%" PRIu64, value);
}

/* Writes a number so that it is read back as the same double or float; with `plain` in six digits. */
static void put_real(struct text *out, double value, bool single, bool plain, struct err *err)
{
    char digits[NUMERAL_ROOM];
    if (!isfinite(value)) {                     /* JSON has no notation for these */
        text_puts(out, !plain ? "null" : isnan(value) ? "nan" : value > 0 ? "inf" : "-inf", err);
        return;
    }
    if (plain)
        snprintf(digits, sizeof digits, "%.6g", value);
    else
        numeral_real(digits, value, single);
    text_puts(out, digits, err);
    if (!strpbrk(digits, ".e"))
        text_puts(out, ".0", err);
}

void show_real(struct show *show, const char *key, double value)
{
    put_key(show, key);
    if (show->form == SHOW_CSV && show->depth == 0 && !isfinite(value))
        return;
    put_real(&show->line, value, false, show->form == SHOW_TEXT, &show->fault);
}

void show_flag(struct show *show, const char *key, bool value)
{
    put_key(show, key);
    PUT(show, "%s", value ? "true" : "false");
}

void show_text(struct show *show, const char *key, const char *value, size_t bytes)
{
    put_key(show, key);
    if (show->form == SHOW_CSV && show->depth == 0)
        put_csv(&show->line, value, bytes, &show->fault);
    else
        put_json(&show->line, value, bytes, &show->fault);
}

void show_absent(struct show *show, const char *key)
{
    if (show->form == SHOW_CSV)
        put_key(show, key);
}

static void open_container(struct show *show, const char *key, char bracket)
{
    if (show->depth == SHOW_DEPTH - 1) {
        err_set(&show->fault, ERR_INPUT, "a value is nested too deeply to be shown");
        return;
    }
    put_key(show, key);
    if (show->depth == 0)
        show->cell = show->line.length;
    show->depth++;
    show->first[show->depth] = true;
    text_putc(&show->line, bracket, &show->fault);
}

static void close_container(struct show *show, char bracket)
{
    if (show->depth == 0)
        return;
    text_putc(&show->line, bracket, &show->fault);
    show->depth--;
    if (show->depth || show->form != SHOW_CSV || show->fault.code)
        return;
    size_t bytes = show->line.length - show->cell;              /* the JSON text becomes one cell */
    char *cell = mem_copy(show->line.data + show->cell, bytes, &show->fault);
    if (!cell)
        return;
    show->line.length = show->cell;
    put_csv(&show->line, cell, bytes, &show->fault);
    mem_free(&cell);
}

void show_map_begin(struct show *show, const char *key) { open_container(show, key, '{'); }
void show_map_end(struct show *show) { close_container(show, '}'); }
void show_list_begin(struct show *show, const char *key) { open_container(show, key, '['); }
void show_list_end(struct show *show) { close_container(show, ']'); }

/* Writes one element. It is copied first, because elements within a stream's bytes are not aligned. */
static void put_element(struct text *out, const struct array *array, size_t i, bool plain, struct err *err)
{
    union {
        int8_t i8; uint8_t u8; int16_t i16; uint16_t u16; int32_t i32; uint32_t u32; int64_t i64; float f32; double f64;
    } at;
    size_t size = array_dtype_size(array->dtype);
    memcpy(&at, (const uint8_t *)array->data + i * size, size);
    switch (array->dtype) {
    case DTYPE_I8:   text_printf(out, err, "%d", at.i8); break;
    case DTYPE_U8:   text_printf(out, err, "%d", at.u8); break;
    case DTYPE_I16:  text_printf(out, err, "%d", at.i16); break;
    case DTYPE_U16:  text_printf(out, err, "%d", at.u16); break;
    case DTYPE_I32:  text_printf(out, err, "%" PRId32, at.i32); break;
    case DTYPE_U32:  text_printf(out, err, "%" PRIu32, at.u32); break;
    case DTYPE_I64:  text_printf(out, err, "%" PRId64, at.i64); break;
    case DTYPE_F32:  put_real(out, (double)at.f32, true, plain, err); break;
    case DTYPE_F64:  put_real(out, at.f64, false, plain, err); break;
    case DTYPE_F16:  put_real(out, (double)f16_to_f32(at.u16), true, plain, err); break;
    case DTYPE_BF16: put_real(out, (double)bf16_to_f32(at.u16), true, plain, err); break;
    case DTYPE_COUNT: break;
    }
}

void show_element(struct show *show, const char *key, const struct array *array, size_t i)
{
    put_key(show, key);
    put_element(&show->line, array, i, false, &show->fault);
}

/* Writes elements as nested JSON lists; *next: index of the next element. */
static void put_nested(struct text *out, const struct array *array, int axis, size_t *next, struct err *err)
{
    if (axis == array->rank) {
        put_element(out, array, (*next)++, false, err);
        return;
    }
    text_putc(out, '[', err);
    for (uint64_t i = 0; i < array->shape[axis] && (!err->code); i++) {
        if (i)
            text_puts(out, ", ", err);
        put_nested(out, array, axis + 1, next, err);
    }
    text_putc(out, ']', err);
}

static void put_array_line(struct show *show, const char *key, const struct array *array)
{
    struct text *out = &show->arrays;
    text_printf(out, &show->fault, "    %s  %s ", key, array_dtype_name(array->dtype));
    for (int i = 0; i < array->rank; i++)
        text_printf(out, &show->fault, "[%" PRIu64 "]", array->shape[i]);
    for (size_t i = 0; i < array->count && i < SHOW_ELEMENTS; i++) {
        text_putc(out, ' ', &show->fault);
        put_element(out, array, i, true, &show->fault);
    }
    text_puts(out, array->count > SHOW_ELEMENTS ? " ...\n" : "\n", &show->fault);
}

void show_array(struct show *show, const char *key, const struct array *array)
{
    size_t next = 0;
    if (show->form == SHOW_TEXT && show->depth == 0 && key) {
        put_array_line(show, key, array);
    } else if (show->form != SHOW_CSV || show->depth) {
        put_key(show, key);
        for (int axis = 0; axis < array->rank; axis++)          /* [2^60][0] has no elements, but 2^60 brackets */
            if (!array->shape[axis]) {
                PUT(show, "[]");
                return;
            }
        put_nested(&show->line, array, 0, &next, &show->fault);
    }
}

int show_end(struct show *show, struct err *err)
{
    if (show->form == SHOW_JSON)
        text_putc(&show->line, '}', &show->fault);
    text_putc(&show->line, '\n', &show->fault);
    if (show->arrays.length)
        text_put(&show->line, show->arrays.data, show->arrays.length, &show->fault);
    if (show->fault.code) {
        if (err && !err->code)
            *err = show->fault;
        return -1;
    }
    if (show->form == SHOW_CSV && !show->named) {
        if (text_putc(&show->names, '\n', err) || output_write(show->out, show->names.data, show->names.length, err))
            return -1;
        show->named = true;
    }
    return output_write(show->out, show->line.data, show->line.length, err);
}

void show_line(struct show *show, const char *format, ...)
{
    char line[1200];
    va_list args;
    if (show->form != SHOW_TEXT)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    utf8_make_printable(line, strlen(line), 0);
    if (output_write(show->out, line, strlen(line), &show->fault) || output_write(show->out, "\n", 1, &show->fault))
        return;
}
