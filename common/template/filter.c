/* The filters: functions after `|`. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/template/text.h"

static int filter_same(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)r, (void)args;
    *out = *self;
    return 0;
}

static int filter_string(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return write_as_string(r, self, out);
}

static int filter_trim(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct value *given = arg_get(args, 0, "chars");
    const struct string *set = NULL;
    struct value text;
    if ((given && given->kind != VALUE_NONE && arg_string(r, args, 0, "chars", &set)) || write_as_string(r, self, &text))
        return -1;
    return text_strip(r, text.as.string, set, true, true, out);
}

static int change_case(struct render *r, const struct value *self, enum text_case to, struct value *out)
{
    struct value text;
    return write_as_string(r, self, &text) || text_case(r, text.as.string, to, out) ? -1 : 0;
}

static int filter_upper(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return change_case(r, self, CASE_UPPER, out);
}

static int filter_lower(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return change_case(r, self, CASE_LOWER, out);
}

static int filter_capitalize(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return change_case(r, self, CASE_CAPITALIZE, out);
}

static int filter_title(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return change_case(r, self, CASE_TITLE, out);
}

static int filter_length(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    if (self->kind == VALUE_STRING)
        *out = value_int((int64_t)utf8_count(self->as.string->data, self->as.string->bytes));
    else if (self->kind == VALUE_LIST)
        *out = value_int((int64_t)self->as.list->n);
    else if (self->kind == VALUE_DICT)
        *out = value_int((int64_t)self->as.dict->n);
    else if (self->kind == VALUE_UNDEFINED)
        *out = value_int(0);
    else
        return render_fail(r, "%s has no length", value_kind_name(self));
    return render_charge(r, self->kind == VALUE_STRING ? self->as.string->bytes : 0);
}

static int filter_first(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    struct list *list;
    (void)args;
    if (value_iterate(r, self, &list))
        return -1;
    *out = list->n ? list->items[0] : value_undefined("the first of nothing");
    return 0;
}

static int filter_last(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    struct list *list;
    (void)args;
    if (value_iterate(r, self, &list))
        return -1;
    *out = list->n ? list->items[list->n - 1] : value_undefined("the last of nothing");
    return 0;
}

static int filter_default(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct value *fallback = arg_get(args, 0, "default_value"), *boolean = arg_get(args, 1, "boolean");
    if (self->kind != VALUE_UNDEFINED && !(boolean && value_true(boolean) && !value_true(self))) {
        *out = *self;
        return 0;
    }
    if (fallback) {
        *out = *fallback;
        return 0;
    }
    return value_string(r, "", 0, false, out);
}

int value_attribute(struct render *r, const struct value *item, const struct string *path, struct value *out)
{
    *out = *item;
    for (size_t begin = 0, end; begin <= path->bytes; begin = end + 1) {
        struct value part, of = *out;
        for (end = begin; end < path->bytes && path->data[end] != '.'; end++)
            ;
        if (of.kind == VALUE_UNDEFINED)
            return 0;
        if (value_part(r, path, begin, end, &part))
            return -1;
        if (end > begin && strspn(path->data + begin, "0123456789") >= end - begin && end - begin < 10)
            part = value_int(strtol(path->data + begin, NULL, 10));
        if (eval_index(r, &of, &part, out))
            return -1;
    }
    return 0;
}

static int filter_join(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    static const struct string none = { .data = "" };
    const struct value *attribute = arg_get(args, 1, "attribute");
    const struct string *separator = &none, *path;
    struct list *list;
    struct value members;
    if ((arg_get(args, 0, "d") && arg_string(r, args, 0, "d", &separator)) || value_iterate(r, self, &list))
        return -1;
    if (!attribute)
        return text_join(r, list, separator, out);
    if (arg_string(r, args, 1, "attribute", &path) || value_list(r, &members))
        return -1;
    for (size_t i = 0; i < list->n; i++) {
        struct value member;
        if (value_attribute(r, &list->items[i], path, &member) || list_put(r, members.as.list, member))
            return -1;
    }
    return text_join(r, members.as.list, separator, out);
}

static int filter_list(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    *out = (struct value){ .kind = VALUE_LIST };
    return value_iterate(r, self, &out->as.list);
}

static int filter_items(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    if (self->kind == VALUE_UNDEFINED)
        return value_list(r, out);
    if (self->kind != VALUE_DICT)
        return render_fail(r, "items are those of a mapping, not of %s", value_kind_name(self));
    return dict_items(r, self->as.dict, out);
}

static int filter_tojson(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    struct builder builder = {0};
    const struct value *ascii = arg_get(args, 0, "ensure_ascii"), *separators = arg_get(args, 2, "separators"),
                       *sorted = arg_get(args, 3, "sort_keys");
    struct json_style style = {.ascii = ascii && value_true(ascii), .sorted = sorted && value_true(sorted)};
    int64_t indent;
    if (arg_int(r, args, 1, "indent", -1, &indent))
        return -1;
    if (indent > 16)
        return render_fail(r, "tojson with an indent of more than 16 is not supported");
    style.indent = indent < 0 ? -1 : (int)indent;
    if (separators && separators->kind != VALUE_NONE) {
        const struct list *two = separators->kind == VALUE_LIST ? separators->as.list : NULL;
        if (!two || two->n != 2 || two->items[0].kind != VALUE_STRING || two->items[1].kind != VALUE_STRING)
            return render_fail(r, "tojson takes two strings as separators");
        style.item = two->items[0].as.string;
        style.key = two->items[1].as.string;
    }
    return write_json(r, &builder, self, &style) || builder_end(r, &builder, out) ? -1 : 0;
}

static int filter_replace(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct string *from, *to;
    struct value text;
    int64_t max;
    if (arg_string(r, args, 0, "old", &from) || arg_string(r, args, 1, "new", &to) || arg_int(r, args, 2, "count", -1, &max) ||
        write_as_string(r, self, &text))
        return -1;
    return text_replace(r, text.as.string, from, to, max, out);
}

static int filter_reverse(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    struct list *list;
    struct builder builder = {0};
    (void)args;
    if (value_iterate(r, self, &list) || value_list(r, out))
        return -1;
    for (size_t i = list->n; i-- > 0;)
        if (self->kind == VALUE_STRING ? builder_put_string(r, &builder, list->items[i].as.string)
                                       : list_put(r, out->as.list, list->items[i]))
            return -1;
    return self->kind == VALUE_STRING ? builder_end(r, &builder, out) : 0;
}

static int filter_int(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    int64_t fallback, integer;
    char *end = NULL;
    if (arg_int(r, args, 0, "default", 0, &fallback))
        return -1;
    *out = value_int(fallback);
    if (value_as_int(self, &integer)) {
        *out = value_int(integer);
    } else if (self->kind == VALUE_FLOAT && fabs(self->as.real) < 9e18) {
        *out = value_int((int64_t)self->as.real);
    } else if (self->kind == VALUE_STRING) {
        struct value text;
        if (value_string(r, self->as.string->data, self->as.string->bytes, false, &text))
            return -1;
        errno = 0;
        long long parsed = strtoll(text.as.string->data, &end, 10);
        if (end != text.as.string->data && !end[strspn(end, " \t\r\n")] && !errno)
            *out = value_int(parsed);
    }
    return 0;
}

static int filter_float(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    int64_t integer;
    (void)args;
    *out = (struct value){ .kind = VALUE_FLOAT };
    if (value_as_int(self, &integer)) {
        out->as.real = (double)integer;
    } else if (self->kind == VALUE_FLOAT) {
        *out = *self;
    } else if (self->kind == VALUE_STRING) {
        struct value text;
        char *end = NULL;
        if (value_string(r, self->as.string->data, self->as.string->bytes, false, &text))
            return -1;
        double parsed = strtod(text.as.string->data, &end);
        out->as.real = end != text.as.string->data && !end[strspn(end, " \t\r\n")] ? parsed : 0;
    }
    return 0;
}

static int filter_abs(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    int64_t integer;
    (void)args;
    *out = *self;
    if (self->kind == VALUE_FLOAT)
        out->as.real = fabs(self->as.real);
    else if (!value_as_int(self, &integer) || integer == INT64_MIN)
        return render_fail(r, "abs of %s", value_kind_name(self));
    else
        *out = value_int(integer < 0 ? -integer : integer);
    return 0;
}

/* Indents all lines but the first (unless `first` is set) and blank ones. */
static int filter_indent(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct value *first = arg_get(args, 1, "first"), *blank = arg_get(args, 2, "blank");
    struct builder builder = {0};
    struct value text, part;
    int64_t width;
    if (arg_int(r, args, 0, "width", 4, &width) || write_as_string(r, self, &text))
        return -1;
    if (width < 0 || width > 64)
        return render_fail(r, "expected an indent of 0 to 64");
    const struct string *s = text.as.string;
    for (size_t begin = 0, end, next; begin == 0 || begin <= s->bytes; begin = next) {
        end = text_line_end(s, begin, &next);
        bool wanted = begin ? end > begin || (blank && value_true(blank)) : first && value_true(first);
        if (begin && builder_puts(r, &builder, "\n"))
            return -1;
        for (int64_t i = 0; wanted && i < width; i++)
            if (builder_puts(r, &builder, " "))
                return -1;
        if (value_part(r, s, begin, end, &part) || builder_put_string(r, &builder, part.as.string))
            return -1;
        if (end == next)
            break;
    }
    return builder_end(r, &builder, out);
}

/* Formats format(values...): %s and %d in the text become the values, %% becomes %. */
static int filter_format(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    struct builder builder = {0};
    struct value text, part;
    size_t used = 0, from = 0;
    if (write_as_string(r, self, &text))
        return -1;
    const struct string *s = text.as.string;
    for (size_t at = 0; at <= s->bytes; at++) {
        if (at < s->bytes && s->data[at] != '%')
            continue;
        if (value_part(r, s, from, at, &part) || builder_put_string(r, &builder, part.as.string))
            return -1;
        if (at == s->bytes)
            break;
        const char kind = at + 1 < s->bytes ? s->data[at + 1] : '\0';
        int64_t integer;
        if (kind != '%' && kind != 's' && kind != 'd')
            return render_fail(r, "format supports %%s, %%d and %%%% alone");
        if (kind != '%' && used == args->n)
            return render_fail(r, "format has not enough values");
        if (kind == 'd' && !value_as_int(&args->items[used], &integer))
            return render_fail(r, "%%d takes an integer, not %s", value_kind_name(&args->items[used]));
        if (kind == '%' ? builder_puts(r, &builder, "%") : kind == 's' ? write_value(r, &builder, &args->items[used++]) :
                          (part = value_int(integer), used++, write_value(r, &builder, &part)))
            return -1;
        from = ++at + 1;
    }
    if (used < args->n)
        return render_fail(r, "format has more values than its text takes");
    return builder_end(r, &builder, out);
}

/* Returns the sequence that map, select and the like iterate over; a false value is an empty sequence. */
static int iterate_if_true(struct render *r, const struct value *self, struct list **out)
{
    struct value none;
    if (value_true(self))
        return value_iterate(r, self, out);
    if (value_list(r, &none))
        return -1;
    *out = none.as.list;
    return 0;
}

/* Applies map(attribute="x", default=...) or map("filter", arguments...). */
static int filter_map(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const struct value *attribute = args->n ? NULL : arg_get(args, 0, "attribute"), *fallback = arg_get(args, 9, "default");
    const struct function *filter = NULL;
    const struct string *name;
    struct list *list;
    if (iterate_if_true(r, self, &list) || value_list(r, out))
        return -1;
    if (attribute ? arg_string(r, args, 0, "attribute", &name) : arg_string(r, args, 0, NULL, &name))
        return -1;
    if (!attribute && !(filter = filter_find(name->data)))
        return render_fail(r, "the filter \"%.60s\" is not supported", name->data);
    for (size_t i = 0; i < list->n; i++) {
        struct args rest = { .items = args->items + 1, .n = args->n - 1, .names = args->names, .named = args->named,
                             .n_named = args->n_named };
        struct value made;
        if (attribute ? value_attribute(r, &list->items[i], name, &made)
                      : eval_function(r, filter, &list->items[i], &rest, &made))
            return -1;
        if (attribute && fallback && made.kind == VALUE_UNDEFINED)
            made = *fallback;
        if (list_put(r, out->as.list, made))
            return -1;
    }
    return 0;
}

/* Applies select, reject ("test", arguments...), selectattr, rejectattr ("attribute", "test", arguments...). */
static int choose(struct render *r, const struct value *self, const struct args *args, bool by_attribute, bool keep,
                  struct value *out)
{
    const struct function *test = NULL;
    const struct string *path = NULL, *name;
    size_t used = 0;
    struct list *list;
    if (iterate_if_true(r, self, &list) || value_list(r, out) || (by_attribute && arg_string(r, args, used++, NULL, &path)))
        return -1;
    if (args->n > used) {
        if (arg_string(r, args, used++, NULL, &name))
            return -1;
        if (!(test = test_find(name->data)))
            return render_fail(r, "the test \"%.60s\" is not supported", name->data);
    }
    for (size_t i = 0; i < list->n; i++) {
        struct args rest = { .items = args->items + used, .n = args->n - used };
        struct value of = list->items[i], result;
        if (path && value_attribute(r, &list->items[i], path, &of))
            return -1;
        result = value_bool(value_true(&of));
        if ((test && eval_function(r, test, &of, &rest, &result)) ||
            (value_true(&result) == keep && list_put(r, out->as.list, list->items[i])))
            return -1;
    }
    return 0;
}

static int filter_select(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return choose(r, self, args, false, true, out);
}

static int filter_reject(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return choose(r, self, args, false, false, out);
}

static int filter_selectattr(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return choose(r, self, args, true, true, out);
}

static int filter_rejectattr(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return choose(r, self, args, true, false, out);
}

static const struct function filters[] = {
    { "abs", filter_abs, 0, 0, NULL },
    { "capitalize", filter_capitalize, 0, 0, NULL },
    { "count", filter_length, 0, 0, NULL },
    { "d", filter_default, 0, 2, "default_value boolean" },
    { "default", filter_default, 0, 2, "default_value boolean" },
    { "dictsort", filter_dictsort, 0, 3, "case_sensitive by reverse" },
    { "first", filter_first, 0, 0, NULL },
    { "float", filter_float, 0, 0, NULL },
    { "format", filter_format, 0, 32, NULL },
    { "indent", filter_indent, 0, 3, "width first blank" },
    { "int", filter_int, 0, 1, "default" },
    { "items", filter_items, 0, 0, NULL },
    { "join", filter_join, 0, 2, "d attribute" },
    { "last", filter_last, 0, 0, NULL },
    { "length", filter_length, 0, 0, NULL },
    { "list", filter_list, 0, 0, NULL },
    { "lower", filter_lower, 0, 0, NULL },
    { "map", filter_map, 1, 8, "*" },
    { "max", filter_max, 0, 2, "case_sensitive attribute" },
    { "min", filter_min, 0, 2, "case_sensitive attribute" },
    { "reject", filter_reject, 0, 4, NULL },
    { "rejectattr", filter_rejectattr, 1, 4, NULL },
    { "replace", filter_replace, 2, 3, "old new count" },
    { "reverse", filter_reverse, 0, 0, NULL },
    { "safe", filter_same, 0, 0, NULL },
    { "select", filter_select, 0, 4, NULL },
    { "selectattr", filter_selectattr, 1, 4, NULL },
    { "sort", filter_sort, 0, 3, "reverse case_sensitive attribute" },
    { "string", filter_string, 0, 0, NULL },
    { "title", filter_title, 0, 0, NULL },
    { "tojson", filter_tojson, 0, 4, "ensure_ascii indent separators sort_keys" },
    { "trim", filter_trim, 0, 1, "chars" },
    { "unique", filter_unique, 0, 2, "case_sensitive attribute" },
    { "upper", filter_upper, 0, 0, NULL },
};

const struct function *filter_find(const char *name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (!strcmp(filters[i].name, name))
            return &filters[i];
    return NULL;
}
