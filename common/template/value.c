#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/template/internal.h"

/* ---- memory: chunks that are freed together ---- */

struct pool_chunk {
    struct pool_chunk *next;
    size_t used, room;
    _Alignas(16) unsigned char data[];
};

enum { CHUNK_BYTES = 32768 };

void *pool_alloc(struct pool *pool, size_t count, size_t size, struct err *err)
{
    size_t bytes;
    if (!size_mul(count, size, &bytes) || bytes > pool->limit || pool->used > pool->limit - bytes) {
        err_set(err, ERR_INPUT, "chat template: rendering needs more than %zu bytes of memory; shorten the messages or the "
                "template",
                pool->limit);
        return NULL;
    }
    pool->used += bytes;
    bytes = size_align(bytes ? bytes : 1, 16);
    struct pool_chunk *chunk = pool->chunks;
    if (!chunk || chunk->room - chunk->used < bytes) {
        size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        struct pool_chunk *made = mem_alloc(1, sizeof *made + room, err);
        if (!made)
            return NULL;
        made->room = room;
        if (chunk && room > CHUNK_BYTES) {             /* the chunk at the front continues to be filled */
            made->next = chunk->next;
            chunk->next = made;
        } else {
            made->next = chunk;
            pool->chunks = made;
        }
        chunk = made;
    }
    void *data = chunk->data + chunk->used;
    chunk->used += bytes;
    return data;
}

void pool_free(struct pool *pool)
{
    while (pool->chunks) {
        struct pool_chunk *next = pool->chunks->next;
        mem_free(&pool->chunks);
        pool->chunks = next;
    }
    pool->used = 0;
}

/* ---- errors and limits ---- */

int render_fail(struct render *r, const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_set(r->err, ERR_INPUT, "chat template, line %d: %s", r->line, what);
}

int render_charge(struct render *r, size_t bytes)
{
    r->steps += 1 + (int64_t)(bytes / 32);
    if (r->steps > r->step_limit)
        return render_fail(r, "more than %lld steps; the template does too much work", (long long)r->step_limit);
    return 0;
}

/* ---- making values ---- */

struct value value_bool(bool boolean) { return (struct value){ .kind = VALUE_BOOL, .as.boolean = boolean }; }
struct value value_int(int64_t integer) { return (struct value){ .kind = VALUE_INT, .as.integer = integer }; }
struct value value_undefined(const char *name) { return (struct value){ .kind = VALUE_UNDEFINED, .as.name = name }; }

int value_string(struct render *r, const char *data, size_t bytes, bool content, struct value *out)
{
    struct string *string = pool_alloc(&r->pool, 1, sizeof *string, r->err);
    char *copy = string ? pool_alloc(&r->pool, bytes + 1, 1, r->err) : NULL;
    if (!copy)
        return -1;
    if (bytes)
        memcpy(copy, data, bytes);
    *string = (struct string){ .data = copy, .bytes = bytes, .content = content };
    *out = (struct value){ .kind = VALUE_STRING, .as.string = string };
    return 0;
}

int value_part(struct render *r, const struct string *of, size_t begin, size_t end, struct value *out)
{
    struct string *string = pool_alloc(&r->pool, 1, sizeof *string, r->err);
    if (!string)
        return -1;
    *string = *of;
    string->data += begin;
    string->bytes = end - begin;
    if (string->mask)
        string->mask += begin;
    *out = (struct value){ .kind = VALUE_STRING, .as.string = string };
    return 0;
}

int value_list(struct render *r, struct value *out)
{
    struct list *list = pool_alloc(&r->pool, 1, sizeof *list, r->err);
    *out = (struct value){ .kind = VALUE_LIST, .as.list = list };
    return list ? 0 : -1;
}

int value_dict(struct render *r, struct value *out)
{
    struct dict *dict = pool_alloc(&r->pool, 1, sizeof *dict, r->err);
    *out = (struct value){ .kind = VALUE_DICT, .as.dict = dict };
    return dict ? 0 : -1;
}

/* Makes room for one more element, by moving the elements to new memory of the pool. */
static int grow(struct render *r, void *array, size_t n, size_t *room, size_t size)
{
    void *old, *made;
    if (n < *room)
        return 0;
    size_t wanted = *room ? 2 * *room : 4;
    made = pool_alloc(&r->pool, wanted, size, r->err);
    if (!made)
        return -1;
    memcpy(&old, array, sizeof old);
    if (n)
        memcpy(made, old, n * size);
    memcpy(array, &made, sizeof made);
    *room = wanted;
    return 0;
}

int list_put(struct render *r, struct list *list, struct value item)
{
    if (grow(r, &list->items, list->n, &list->room, sizeof *list->items) || render_charge(r, 0))
        return -1;
    list->items[list->n++] = item;
    return 0;
}

static struct value *find_key(const struct dict *dict, const char *key, size_t bytes, bool integer)
{
    for (size_t i = 0; i < dict->n; i++)
        if (dict->keys[i].bytes == bytes && dict->keys[i].integer == integer && !memcmp(dict->keys[i].data, key, bytes))
            return &dict->items[i];
    return NULL;
}

struct value *dict_find(const struct dict *dict, const char *key, size_t bytes) { return find_key(dict, key, bytes, false); }

enum { INTEGER_TEXT = 24 };

struct value *dict_find_value(const struct dict *dict, const struct value *key)
{
    char text[INTEGER_TEXT];
    if (key->kind == VALUE_STRING)
        return dict_find(dict, key->as.string->data, key->as.string->bytes);
    if (key->kind != VALUE_INT)
        return NULL;
    return find_key(dict, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)key->as.integer), true);
}

int dict_key(struct render *r, const struct dict *dict, size_t index, struct value *out)
{
    const struct string *key = &dict->keys[index];
    if (!key->integer)
        return value_part(r, key, 0, key->bytes, out);
    *out = (struct value){ .kind = VALUE_INT, .as.integer = strtoll(key->data, NULL, 10) };
    return 0;
}

int dict_put_value(struct render *r, struct dict *dict, const struct value *key, struct value item)
{
    if (key->kind == VALUE_STRING)
        return dict_put(r, dict, *key->as.string, item);
    if (key->kind != VALUE_INT)
        return render_fail(r, "the keys of a mapping must be strings or integers, not %s", value_kind_name(key));
    char *text = pool_alloc(&r->pool, INTEGER_TEXT, 1, r->err);
    if (!text)
        return -1;
    const int bytes = snprintf(text, INTEGER_TEXT, "%lld", (long long)key->as.integer);
    return dict_put(r, dict, (struct string){ .data = text, .bytes = (size_t)bytes, .integer = true }, item);
}

int dict_put(struct render *r, struct dict *dict, struct string key, struct value item)
{
    struct value *known = find_key(dict, key.data, key.bytes, key.integer);
    if (render_charge(r, 4 * dict->n))
        return -1;
    if (known) {
        *known = item;
        return 0;
    }
    if (grow(r, &dict->keys, dict->n, &dict->key_room, sizeof *dict->keys) ||
        grow(r, &dict->items, dict->n, &dict->room, sizeof *dict->items))
        return -1;
    dict->keys[dict->n] = key;
    dict->items[dict->n++] = item;
    return 0;
}

size_t json_bytes(const json_t *json)
{
    size_t bytes = 16, i;
    const char *key;
    json_t *item;
    if (json_is_string(json))
        return bytes + json_string_length(json);
    if (json_is_array(json))
        json_array_foreach(json, i, item)
            bytes += json_bytes(item);
    if (json_is_object(json)) {
        const json_t *object = json;
        void *iterator = json_object_iter((json_t *)(uintptr_t)object);
        for (; iterator; iterator = json_object_iter_next((json_t *)(uintptr_t)object, iterator)) {
            key = json_object_iter_key(iterator);
            bytes += 16 + strlen(key) + json_bytes(json_object_iter_value(iterator));
        }
    }
    return bytes;
}

/* Returns whether a text is a role name that templates put into special tokens. */
static bool is_role(const json_t *json)
{
    static const char *const roles[] = { "system", "developer", "user", "assistant", "tool", "function", "ipython" };
    const char *text = json_string_value(json);
    for (size_t i = 0; text && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(text, roles[i]))
            return true;
    return false;
}

int value_from_json(struct render *r, const json_t *json, bool content, int depth, struct value *out)
{
    size_t i;
    json_t *item;
    struct value made;
    if (depth > VALUE_DEPTH)
        return render_fail(r, "values nested deeper than %d", VALUE_DEPTH);
    switch (json_typeof(json)) {
    case JSON_STRING: return value_string(r, json_string_value(json), json_string_length(json), content, out);
    case JSON_INTEGER: *out = value_int(json_integer_value(json)); return 0;
    case JSON_REAL: *out = (struct value){ .kind = VALUE_FLOAT, .as.real = json_real_value(json) }; return 0;
    case JSON_TRUE: *out = value_bool(true); return 0;
    case JSON_FALSE: *out = value_bool(false); return 0;
    case JSON_NULL: *out = (struct value){ .kind = VALUE_NONE }; return 0;
    case JSON_ARRAY:
        if (value_list(r, out))
            return -1;
        json_array_foreach(json, i, item)
            if (value_from_json(r, item, content, depth + 1, &made) || list_put(r, out->as.list, made))
                return -1;
        return 0;
    case JSON_OBJECT:
        break;
    }
    json_t *object = (json_t *)(uintptr_t)json;                /* jansson's iterators require a non-const pointer */
    if (value_dict(r, out))
        return -1;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        struct value name;
        item = json_object_iter_value(at);
        if (value_string(r, key, strlen(key), content, &name) ||
            value_from_json(r, item, content && !(!strcmp(key, "role") && is_role(item)), depth + 1, &made) ||
            dict_put(r, out->as.dict, *name.as.string, made))
            return -1;
    }
    return 0;
}

/* ---- looking at values ---- */

const char *value_kind_name(const struct value *value)
{
    static const char *const names[] = { "undefined", "none", "a boolean", "an integer", "a number", "a string", "a list",
                                         "a mapping", "a namespace", "loop", "a macro", "a function", "a method" };
    return names[value->kind];
}

bool value_true(const struct value *value)
{
    switch (value->kind) {
    case VALUE_UNDEFINED: case VALUE_NONE: return false;
    case VALUE_BOOL: return value->as.boolean;
    case VALUE_INT: return value->as.integer != 0;
    case VALUE_FLOAT: return value->as.real != 0;
    case VALUE_STRING: return value->as.string->bytes != 0;
    case VALUE_LIST: return value->as.list->n != 0;
    case VALUE_DICT: return value->as.dict->n != 0;
    default: return true;
    }
}

bool value_as_int(const struct value *value, int64_t *out)
{
    if (value->kind == VALUE_INT)
        *out = value->as.integer;
    else if (value->kind == VALUE_BOOL)
        *out = value->as.boolean;
    else
        return false;
    return true;
}

static bool as_real(const struct value *value, double *out)
{
    int64_t integer;
    if (value->kind == VALUE_FLOAT)
        *out = value->as.real;
    else if (value_as_int(value, &integer))
        *out = (double)integer;
    else
        return false;
    return true;
}

int value_equal(struct render *r, const struct value *a, const struct value *b, int depth, bool *out)
{
    int64_t i, k;
    double x, y;
    *out = false;
    if (depth > VALUE_DEPTH)
        return render_fail(r, "values nested deeper than %d", VALUE_DEPTH);
    if (render_charge(r, a->kind == VALUE_STRING ? a->as.string->bytes : 0))
        return -1;
    if (value_as_int(a, &i) && value_as_int(b, &k)) {
        *out = i == k;
    } else if (as_real(a, &x) && as_real(b, &y)) {
        *out = x == y;
    } else if (a->kind != b->kind) {
        return 0;
    } else if (a->kind == VALUE_STRING) {
        *out = a->as.string->bytes == b->as.string->bytes &&
               !memcmp(a->as.string->data, b->as.string->data, a->as.string->bytes);
    } else if (a->kind == VALUE_LIST) {
        *out = a->as.list->n == b->as.list->n;
        for (size_t n = 0; *out && n < a->as.list->n; n++)
            if (value_equal(r, &a->as.list->items[n], &b->as.list->items[n], depth + 1, out))
                return -1;
    } else if (a->kind == VALUE_DICT) {
        *out = a->as.dict->n == b->as.dict->n;
        for (size_t n = 0; *out && n < a->as.dict->n; n++) {
            const struct string *key = &a->as.dict->keys[n];
            const struct value *other = find_key(b->as.dict, key->data, key->bytes, key->integer);
            *out = other != NULL;
            if (other && (render_charge(r, 4 * b->as.dict->n) || value_equal(r, &a->as.dict->items[n], other, depth + 1, out)))
                return -1;
        }
    } else {
        *out = a->kind == VALUE_UNDEFINED || a->kind == VALUE_NONE || a->as.dict == b->as.dict;
    }
    return 0;
}

int value_order(struct render *r, const struct value *a, const struct value *b, int *out)
{
    int64_t i, k;
    double x, y;
    if (render_charge(r, 0))
        return -1;
    if (value_as_int(a, &i) && value_as_int(b, &k)) {
        *out = i < k ? -1 : i > k;
    } else if (as_real(a, &x) && as_real(b, &y)) {
        *out = x < y ? -1 : x > y;
    } else if (a->kind == VALUE_STRING && b->kind == VALUE_STRING) {
        const struct string *s = a->as.string, *t = b->as.string;
        int order = memcmp(s->data, t->data, s->bytes < t->bytes ? s->bytes : t->bytes);
        *out = order ? (order < 0 ? -1 : 1) : s->bytes < t->bytes ? -1 : s->bytes > t->bytes;
    } else {
        return render_fail(r, "%s and %s cannot be ordered", value_kind_name(a), value_kind_name(b));
    }
    return 0;
}

int value_iterate(struct render *r, const struct value *value, struct list **out)
{
    struct value list, item;
    if (value->kind == VALUE_LIST) {
        *out = value->as.list;
        return 0;
    }
    if (value_list(r, &list))
        return -1;
    if (value->kind == VALUE_DICT) {
        for (size_t i = 0; i < value->as.dict->n; i++)
            if (dict_key(r, value->as.dict, i, &item) ||
                list_put(r, list.as.list, item))
                return -1;
    } else if (value->kind == VALUE_STRING) {
        const struct string *s = value->as.string;
        for (size_t at = 0, next; at < s->bytes; at = next) {
            next = at + (size_t)utf8_next(s->data + at, s->bytes - at, NULL);
            if (value_part(r, s, at, next, &item) || list_put(r, list.as.list, item))
                return -1;
        }
    } else if (value->kind != VALUE_UNDEFINED) {
        return render_fail(r, "%s cannot be iterated over", value_kind_name(value));
    }
    *out = list.as.list;
    return 0;
}

/* ---- building strings ---- */

bool string_has_content(const struct string *string)
{
    return string->bytes && (string->mask ? memchr(string->mask, 1, string->bytes) != NULL : string->content);
}

static int builder_room(struct render *r, struct builder *b, size_t bytes)
{
    size_t need, room = b->room;
    if (!size_add(b->bytes, bytes, &need) || !size_add(need, 1, &need))
        return err_memory(r->err);
    if (need <= room)
        return render_charge(r, bytes);
    room = room ? room : 64;
    while (room < need)
        room = room > SIZE_MAX / 2 ? need : 2 * room;
    char *data = pool_alloc(&r->pool, room, 1, r->err);
    uint8_t *mask = data ? pool_alloc(&r->pool, room, 1, r->err) : NULL;
    if (!mask)
        return -1;
    if (b->bytes) {
        memcpy(data, b->data, b->bytes);
        memcpy(mask, b->mask, b->bytes);
    }
    b->data = data;
    b->mask = mask;
    b->room = room;
    return render_charge(r, bytes);
}

int builder_put(struct render *r, struct builder *b, const char *data, size_t bytes, bool content)
{
    if (builder_room(r, b, bytes))
        return -1;
    if (bytes) {
        memcpy(b->data + b->bytes, data, bytes);
        memset(b->mask + b->bytes, content, bytes);
    }
    b->bytes += bytes;
    return 0;
}

int builder_puts(struct render *r, struct builder *b, const char *text)
{
    return builder_put(r, b, text, strlen(text), false);
}

int builder_put_string(struct render *r, struct builder *b, const struct string *string)
{
    size_t at = b->bytes;
    if (builder_put(r, b, string->data, string->bytes, string->content))
        return -1;
    if (string->mask && string->bytes)
        memcpy(b->mask + at, string->mask, string->bytes);
    return 0;
}

int builder_end(struct render *r, struct builder *b, struct value *out)
{
    struct string *string = pool_alloc(&r->pool, 1, sizeof *string, r->err);
    if (!string)
        return -1;
    *string = (struct string){ .data = b->data ? b->data : "", .bytes = b->bytes, .mask = b->mask };
    *out = (struct value){ .kind = VALUE_STRING, .as.string = string };
    return 0;
}
