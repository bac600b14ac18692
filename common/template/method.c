/* Python's methods of strings and mappings, and the functions that a template may call. */
#include <string.h>
#include <time.h>

#include "common/base/utf8.h"
#include "common/template/text.h"

static int method_upper(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return text_case(r, self->as.string, CASE_UPPER, out);
}

static int method_lower(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return text_case(r, self->as.string, CASE_LOWER, out);
}

static int method_title(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return text_case(r, self->as.string, CASE_TITLE, out);
}

static int method_capitalize(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return text_case(r, self->as.string, CASE_CAPITALIZE, out);
}

static int strip_with(struct render *r, const struct value *self, const struct args *args, bool left, bool right,
                      struct value *out)
{
    const struct string *set = NULL;
    if (args->n && args->items[0].kind != VALUE_NONE && arg_string(r, args, 0, NULL, &set))
        return -1;
    return text_strip(r, self->as.string, set, left, right, out);
}

static int method_strip(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return strip_with(r, self, args, true, true, out);
}

static int method_lstrip(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return strip_with(r, self, args, true, false, out);
}

static int method_rstrip(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return strip_with(r, self, args, false, true, out);
}

static int method_split(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct string *separator = NULL;
    const struct value *first = arg_get(args, 0, "sep");
    int64_t max;
    if ((first && first->kind != VALUE_NONE && arg_string(r, args, 0, "sep", &separator)) ||
        arg_int(r, args, 1, "maxsplit", -1, &max))
        return -1;
    return text_split(r, self->as.string, separator, max, out);
}

static int method_replace(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct string *from, *to;
    int64_t max;
    if (arg_string(r, args, 0, NULL, &from) || arg_string(r, args, 1, NULL, &to) || arg_int(r, args, 2, "count", -1, &max))
        return -1;
    return text_replace(r, self->as.string, from, to, max, out);
}

/* Implements startswith and endswith, with a string or a list of strings. */
static int affix(struct render *r, const struct value *self, const struct args *args, bool at_end, struct value *out)
{
    const struct string *s = self->as.string;
    struct list one = { .items = (struct value[1]){ args->items[0] }, .n = 1 };
    const struct list *all = args->items[0].kind == VALUE_LIST ? args->items[0].as.list : &one;
    *out = value_bool(false);
    for (size_t i = 0; i < all->n; i++) {
        if (all->items[i].kind != VALUE_STRING)
            return render_fail(r, "expected a string, not %s", value_kind_name(&all->items[i]));
        const struct string *what = all->items[i].as.string;
        if (what->bytes <= s->bytes && !memcmp(s->data + (at_end ? s->bytes - what->bytes : 0), what->data, what->bytes))
            out->as.boolean = true;
    }
    return 0;
}

static int method_startswith(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return affix(r, self, args, false, out);
}

static int method_endswith(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return affix(r, self, args, true, out);
}

static int method_find(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct string *s = self->as.string, *what;
    if (arg_string(r, args, 0, NULL, &what) || render_charge(r, s->bytes))
        return -1;
    const char *found = what->bytes ? memmem(s->data, s->bytes, what->data, what->bytes) : s->data;
    *out = value_int(found ? (int64_t)utf8_count(s->data, (size_t)(found - s->data)) : -1);
    return 0;
}

static int method_count(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct string *s = self->as.string, *what;
    int64_t count = 0;
    if (arg_string(r, args, 0, NULL, &what) || render_charge(r, s->bytes))
        return -1;
    if (!what->bytes)
        return render_fail(r, "count of an empty string is not supported");
    for (size_t at = 0; at < s->bytes; count++) {
        const char *found = memmem(s->data + at, s->bytes - at, what->data, what->bytes);
        if (!found)
            break;
        at = (size_t)(found - s->data) + what->bytes;
    }
    *out = value_int(count);
    return 0;
}

static int method_join(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    struct list *list;
    return value_iterate(r, &args->items[0], &list) || text_join(r, list, self->as.string, out) ? -1 : 0;
}

static int method_get(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct value *item = dict_find_value(self->as.dict, &args->items[0]);
    *out = item ? *item : args->n > 1 ? args->items[1] : (struct value){ .kind = VALUE_NONE };
    return render_charge(r, 4 * self->as.dict->n);
}

static int method_keys(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    *out = (struct value){ .kind = VALUE_LIST };
    return value_iterate(r, self, &out->as.list);
}

static int method_values(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    if (value_list(r, out))
        return -1;
    for (size_t i = 0; i < self->as.dict->n; i++)
        if (list_put(r, out->as.list, self->as.dict->items[i]))
            return -1;
    return 0;
}

static int method_items(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return dict_items(r, self->as.dict, out);
}

static int method_splitlines(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return text_lines(r, self->as.string, out);
}

static const struct function string_methods[] = {
    { "upper", method_upper, 0, 0, NULL },           { "lower", method_lower, 0, 0, NULL },
    { "title", method_title, 0, 0, NULL },           { "capitalize", method_capitalize, 0, 0, NULL },
    { "strip", method_strip, 0, 1, NULL },           { "lstrip", method_lstrip, 0, 1, NULL },
    { "rstrip", method_rstrip, 0, 1, NULL },         { "split", method_split, 0, 2, "sep maxsplit" },
    { "replace", method_replace, 2, 3, "count" },    { "startswith", method_startswith, 1, 1, NULL },
    { "endswith", method_endswith, 1, 1, NULL },     { "find", method_find, 1, 1, NULL },
    { "count", method_count, 1, 1, NULL },           { "join", method_join, 1, 1, NULL },
    { "splitlines", method_splitlines, 0, 0, NULL },
};

static const struct function dict_methods[] = {
    { "get", method_get, 1, 2, NULL },       { "keys", method_keys, 0, 0, NULL },
    { "values", method_values, 0, 0, NULL }, { "items", method_items, 0, 0, NULL },
};

/* ---- functions ---- */

static int global_range(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    int64_t part[3] = { 0, 0, 1 };
    (void)self;
    for (size_t i = 0; i < args->n; i++)
        if (!value_as_int(&args->items[i], &part[args->n == 1 ? 1 : i]))
            return render_fail(r, "range takes integers, not %s", value_kind_name(&args->items[i]));
    if (!part[2] || value_list(r, out))
        return render_fail(r, "the step of a range must not be 0");
    for (int64_t i = part[0]; part[2] > 0 ? i < part[1] : i > part[1];) {
        if (list_put(r, out->as.list, value_int(i)))
            return -1;
        if (__builtin_add_overflow(i, part[2], &i))
            break;
    }
    return 0;
}

static int global_dict(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)self;
    if (value_dict(r, out))
        return -1;
    if (args->n && args->items[0].kind != VALUE_DICT)
        return render_fail(r, "expected a mapping, not %s", value_kind_name(&args->items[0]));
    for (size_t i = 0; args->n && i < args->items[0].as.dict->n; i++)
        if (dict_put(r, out->as.dict, args->items[0].as.dict->keys[i], args->items[0].as.dict->items[i]))
            return -1;
    for (size_t i = 0; i < args->n_named; i++) {
        struct string key = { .data = args->names[i], .bytes = strlen(args->names[i]) };
        if (dict_put(r, out->as.dict, key, args->named[i]))
            return -1;
    }
    return 0;
}

static int global_namespace(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    if (global_dict(r, self, args, out))
        return -1;
    out->kind = VALUE_NAMESPACE;
    return 0;
}

static int global_raise(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    struct value text;
    (void)self, (void)out;
    if (write_as_string(r, &args->items[0], &text))
        return -1;
    return render_fail(r, "the template refuses: %.*s", text.as.string->bytes > 300 ? 300 : (int)text.as.string->bytes,
                       text.as.string->data);
}

/* Parses the value `now`, which assignments of the template cannot hide. */
static int moment(struct render *r, struct tm *out)
{
    const struct frame *frame = r->frame;
    while (frame->up)
        frame = frame->up;
    const struct value *now = dict_find(&frame->variables, "now", 3);
    if (!now || now->kind != VALUE_STRING)
        return render_fail(r, "strftime_now needs the value \"now\", a day as in 2025-08-05, with a time after it or without");
    char text[20] = "";
    if (now->as.string->bytes < sizeof text)
        memcpy(text, now->as.string->data, now->as.string->bytes);
    *out = (struct tm){0};
    const char *rest = strptime(text, "%Y-%m-%d", out);
    if (rest && *rest)
        rest = strptime(rest, " %H:%M:%S", out);
    if (!rest || *rest)
        return render_fail(r, "now is \"%.*s\"; give it as in 2025-08-05 or 2025-08-05 12:30:00",
                           now->as.string->bytes > 40 ? 40 : (int)now->as.string->bytes, now->as.string->data);
    return 0;
}

static int global_strftime_now(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct string *format;
    struct tm now;
    char text[256];
    (void)self;
    if (arg_string(r, args, 0, NULL, &format) || moment(r, &now))
        return -1;
    size_t bytes = strftime(text, sizeof text, format->data, &now);
    if (!bytes && format->bytes)
        return render_fail(r, "strftime_now makes more than %zu bytes, or none", sizeof text - 1);
    return value_string(r, text, bytes, string_has_content(format), out);
}

static const struct function globals[] = {
    { "range", global_range, 1, 3, NULL },
    { "dict", global_dict, 0, 1, "*" },
    { "namespace", global_namespace, 0, 1, "*" },
    { "raise_exception", global_raise, 1, 1, NULL },
    { "strftime_now", global_strftime_now, 1, 1, NULL },
};

static const struct function *lookup(const struct function *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

const struct function *method_lookup(const struct value *self, const char *name)
{
    if (self->kind == VALUE_STRING)
        return lookup(string_methods, sizeof string_methods / sizeof *string_methods, name);
    if (self->kind == VALUE_DICT)
        return lookup(dict_methods, sizeof dict_methods / sizeof *dict_methods, name);
    return NULL;
}

const struct function *global_find(const char *name)
{
    return lookup(globals, sizeof globals / sizeof *globals, name);
}
