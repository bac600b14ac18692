#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/template/internal.h"

/* Writes a float like Python's repr: the shortest digits that read back as the same number. */
static void format_real(double real, char out[64])
{
    if (isnan(real) || isinf(real)) {
        snprintf(out, 64, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, 64, "%.*e", digits - 1, real);
        if (strtod(out, NULL) == real) {
            int exponent = atoi(strchr(out, 'e') + 1);
            if (exponent < -4 || exponent >= 16)
                return;
            snprintf(out, 64, "%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, real);
            return;
        }
    }
}

static int write_number(struct render *r, struct builder *b, const struct value *value)
{
    char text[64];
    if (value->kind == VALUE_INT)
        snprintf(text, sizeof text, "%lld", (long long)value->as.integer);
    else
        format_real(value->as.real, text);
    return builder_puts(r, b, text);
}

/* Writes the string in quotes like Python: single ones, unless it contains single but no double quotes. */
static int write_repr(struct render *r, struct builder *b, const struct string *s)
{
    bool content = string_has_content(s);
    char quote = memchr(s->data, '\'', s->bytes) && !memchr(s->data, '"', s->bytes) ? '"' : '\'';
    if (builder_put(r, b, &quote, 1, content))
        return -1;
    for (size_t at = 0; at < s->bytes;) {
        uint32_t code = 0;
        char text[8];
        int length = utf8_next(s->data + at, s->bytes - at, &code);
        if (code == '\n' || code == '\r' || code == '\t')
            snprintf(text, sizeof text, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
        else if (code == '\\' || code == (uint32_t)quote)
            snprintf(text, sizeof text, "\\%c", (char)code);
        else if (code < 32 || (code >= 127 && code < 161) || code == 173)
            snprintf(text, sizeof text, "\\x%02x", (unsigned)code);
        else
            snprintf(text, sizeof text, "%.*s", length, s->data + at);
        if (builder_put(r, b, text, strlen(text), content))
            return -1;
        at += (size_t)length;
    }
    return builder_put(r, b, &quote, 1, content);
}

static int write_key(struct render *r, struct builder *b, const struct string *key)
{
    return key->integer ? builder_put_string(r, b, key) : write_repr(r, b, key);
}

static int write_nested(struct render *r, struct builder *b, const struct value *value, int depth)
{
    if (depth > VALUE_DEPTH)
        return render_fail(r, "values nested deeper than %d", VALUE_DEPTH);
    switch (value->kind) {
    case VALUE_UNDEFINED: return builder_puts(r, b, depth ? "Undefined" : "");
    case VALUE_NONE: return builder_puts(r, b, "None");
    case VALUE_BOOL: return builder_puts(r, b, value->as.boolean ? "True" : "False");
    case VALUE_INT: case VALUE_FLOAT: return write_number(r, b, value);
    case VALUE_STRING: return depth ? write_repr(r, b, value->as.string) : builder_put_string(r, b, value->as.string);
    case VALUE_LIST:
        if (builder_puts(r, b, value->as.list->tuple ? "(" : "["))
            return -1;
        for (size_t i = 0; i < value->as.list->n; i++)
            if ((i && builder_puts(r, b, ", ")) || write_nested(r, b, &value->as.list->items[i], depth + 1))
                return -1;
        return builder_puts(r, b, !value->as.list->tuple ? "]" : value->as.list->n == 1 ? ",)" : ")");
    case VALUE_DICT:
        if (builder_puts(r, b, "{"))
            return -1;
        for (size_t i = 0; i < value->as.dict->n; i++)
            if ((i && builder_puts(r, b, ", ")) || write_key(r, b, &value->as.dict->keys[i]) || builder_puts(r, b, ": ") ||
                write_nested(r, b, &value->as.dict->items[i], depth + 1))
                return -1;
        return builder_puts(r, b, "}");
    default:
        return render_fail(r, "%s cannot be printed", value_kind_name(value));
    }
}

int write_value(struct render *r, struct builder *builder, const struct value *value)
{
    return write_nested(r, builder, value, 0);
}

int write_as_string(struct render *r, const struct value *value, struct value *out)
{
    struct builder builder = {0};
    if (value->kind == VALUE_STRING) {
        *out = *value;
        return 0;
    }
    return write_value(r, &builder, value) || builder_end(r, &builder, out) ? -1 : 0;
}

/* ---- JSON, as json.dumps(ensure_ascii=False) writes it ---- */

struct json_writer { struct render *r; struct builder *b; const struct json_style *style; };

static int json_string_put(struct json_writer *w, const struct string *s)
{
    bool content = string_has_content(s);
    if (builder_put(w->r, w->b, "\"", 1, content))
        return -1;
    for (size_t at = 0, run; at < s->bytes; at = run) {
        static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
        char text[16];
        for (run = at; run < s->bytes; run++)
            if ((unsigned char)s->data[run] < 32 || s->data[run] == '"' || s->data[run] == '\\' ||
                (w->style->ascii && (unsigned char)s->data[run] > 126))
                break;
        if (run > at) {
            if (builder_put(w->r, w->b, s->data + at, run - at, content))
                return -1;
            continue;
        }
        const char *known = s->data[at] ? strchr(from, s->data[at]) : NULL;
        uint32_t code = 0;
        run = at + (size_t)utf8_next(s->data + at, s->bytes - at, &code);
        if (known)
            snprintf(text, sizeof text, "\\%c", to[known - from]);
        else if (code < 0x10000)
            snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
        else
            snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((unsigned)code - 0x10000) / 0x400,
                     0xDC00 + (unsigned)code % 0x400);
        if (builder_put(w->r, w->b, text, strlen(text), content))
            return -1;
    }
    return builder_put(w->r, w->b, "\"", 1, content);
}

static int json_separate(struct json_writer *w, size_t i, int depth)
{
    const struct json_style *style = w->style;
    const char *between = style->indent < 0 ? ", " : ",";
    if (i && (style->item ? builder_put_string(w->r, w->b, style->item) : builder_puts(w->r, w->b, between)))
        return -1;
    if (style->indent < 0)
        return 0;
    if (builder_puts(w->r, w->b, "\n"))
        return -1;
    for (int k = 0; k < style->indent * depth; k++)
        if (builder_puts(w->r, w->b, " "))
            return -1;
    return 0;
}

static int json_put(struct json_writer *w, const struct value *value, int depth);

static int key_order(const void *left, const void *right)
{
    const struct string *const *a = left, *const *b = right;
    if ((*a)->integer && (*b)->integer) {
        const long long x = strtoll((*a)->data, NULL, 10), y = strtoll((*b)->data, NULL, 10);
        return x < y ? -1 : x > y;
    }
    size_t min = (*a)->bytes < (*b)->bytes ? (*a)->bytes : (*b)->bytes;
    int order = memcmp((*a)->data, (*b)->data, min);
    return order ? order : (*a)->bytes < (*b)->bytes ? -1 : (*a)->bytes > (*b)->bytes;
}

static int json_dict(struct json_writer *w, const struct dict *dict, int depth)
{
    const struct string **keys = pool_alloc(&w->r->pool, dict->n, sizeof *keys, w->r->err);
    if (!keys || builder_puts(w->r, w->b, "{"))
        return -1;
    for (size_t i = 0; i < dict->n; i++)
        keys[i] = &dict->keys[i];
    if (w->style->sorted)
        qsort(keys, dict->n, sizeof *keys, key_order);
    for (size_t i = 0; i < dict->n; i++)
        if (json_separate(w, i, depth + 1) || json_string_put(w, keys[i]) ||
            (w->style->key ? builder_put_string(w->r, w->b, w->style->key) : builder_puts(w->r, w->b, ": ")) ||
            json_put(w, &dict->items[keys[i] - dict->keys], depth + 1))
            return -1;
    if (dict->n && json_separate(w, 0, depth))
        return -1;
    return builder_puts(w->r, w->b, "}");
}

static int json_put(struct json_writer *w, const struct value *value, int depth)
{
    if (depth > VALUE_DEPTH)
        return render_fail(w->r, "values nested deeper than %d", VALUE_DEPTH);
    switch (value->kind) {
    case VALUE_NONE: return builder_puts(w->r, w->b, "null");
    case VALUE_BOOL: return builder_puts(w->r, w->b, value->as.boolean ? "true" : "false");
    case VALUE_INT: return write_number(w->r, w->b, value);
    case VALUE_FLOAT:
        if (isnan(value->as.real) || isinf(value->as.real))
            return builder_puts(w->r, w->b, isnan(value->as.real) ? "NaN" : value->as.real < 0 ? "-Infinity" : "Infinity");
        return write_number(w->r, w->b, value);
    case VALUE_STRING: return json_string_put(w, value->as.string);
    case VALUE_DICT: return json_dict(w, value->as.dict, depth);
    case VALUE_LIST:
        if (builder_puts(w->r, w->b, "["))
            return -1;
        for (size_t i = 0; i < value->as.list->n; i++)
            if (json_separate(w, i, depth + 1) || json_put(w, &value->as.list->items[i], depth + 1))
                return -1;
        if (value->as.list->n && json_separate(w, 0, depth))
            return -1;
        return builder_puts(w->r, w->b, "]");
    default:
        return render_fail(w->r, "%s cannot be written as JSON", value_kind_name(value));
    }
}

int write_json(struct render *r, struct builder *builder, const struct value *value, const struct json_style *style)
{
    struct json_writer writer = { r, builder, style };
    return json_put(&writer, value, 0);
}
