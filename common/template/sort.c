/* Filters that order values: sort, dictsort, unique, min and max. Strings are compared without regard to case unless
 * case_sensitive is set. */
#include <string.h>

#include "common/template/text.h"

struct keyed { struct value key, item; };

static bool is_set(const struct args *args, size_t i, const char *keyword)
{
    const struct value *given = arg_get(args, i, keyword);
    return given && value_true(given);
}

/* Sets the key by which an item is compared: itself, or its attribute `path` if that is given. */
static int key_of(struct render *r, const struct value *item, const struct string *path, bool exact, struct value *out)
{
    *out = *item;
    if (path && value_attribute(r, item, path, out))
        return -1;
    return !exact && out->kind == VALUE_STRING ? text_case(r, out->as.string, CASE_LOWER, out) : 0;
}

/* Sorts keyed[0..n) by merging, which keeps the order of equal keys; `spare` has the same size. */
static int sort_keyed(struct render *r, struct keyed *keyed, struct keyed *spare, size_t n, bool reverse)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            const size_t middle = from + width < n ? from + width : n, end = middle + width < n ? middle + width : n;
            size_t left = from, right = middle;
            for (size_t to = from; to < end; to++) {
                int order = 1;
                if (left < middle && right < end && value_order(r, &keyed[left].key, &keyed[right].key, &order))
                    return -1;
                const bool take_right = left == middle || (right < end && (reverse ? order < 0 : order > 0));
                spare[to] = keyed[take_right ? right++ : left++];
            }
        }
        memcpy(keyed, spare, n * sizeof *keyed);
    }
    return 0;
}

/* Reads the items of `self` with their keys; `attribute` is argument `at`. */
static int read_keyed(struct render *r, const struct value *self, const struct args *args, size_t at, bool exact,
                      struct keyed **out, size_t *n)
{
    const struct value *attribute = arg_get(args, at, "attribute");
    const struct string *path = NULL;
    struct list *list;
    if ((attribute && attribute->kind != VALUE_NONE && arg_string(r, args, at, "attribute", &path)) ||
        value_iterate(r, self, &list) || !(*out = pool_alloc(&r->pool, list->n + 1, sizeof **out, r->err)))
        return -1;
    if (path && memchr(path->data, ',', path->bytes))
        return render_fail(r, "an order by several attributes is not supported");
    *n = list->n;
    for (size_t i = 0; i < list->n; i++) {
        (*out)[i].item = list->items[i];
        if (key_of(r, &list->items[i], path, exact, &(*out)[i].key))
            return -1;
    }
    return 0;
}

static int put_sorted(struct render *r, struct keyed *keyed, size_t n, bool reverse, struct value *out)
{
    struct keyed *spare = pool_alloc(&r->pool, n + 1, sizeof *spare, r->err);
    if (!spare || sort_keyed(r, keyed, spare, n, reverse) || value_list(r, out))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (list_put(r, out->as.list, keyed[i].item))
            return -1;
    return 0;
}

/* Applies sort(reverse, case_sensitive, attribute). */
int filter_sort(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    struct keyed *keyed;
    size_t n;
    return read_keyed(r, self, args, 2, is_set(args, 1, "case_sensitive"), &keyed, &n) ||
           put_sorted(r, keyed, n, is_set(args, 0, "reverse"), out) ? -1 : 0;
}

/* Applies dictsort(case_sensitive, by, reverse): pairs of a mapping in the order of their keys, or of their values. */
int filter_dictsort(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    const bool exact = is_set(args, 0, "case_sensitive");
    const struct string *by = NULL;
    struct value pairs;
    if (self->kind != VALUE_DICT)
        return render_fail(r, "dictsort takes a mapping, not %s", value_kind_name(self));
    if (arg_get(args, 1, "by") && arg_string(r, args, 1, "by", &by))
        return -1;
    const bool by_value = by && by->bytes == 5 && !memcmp(by->data, "value", 5);
    if (by && !by_value && (by->bytes != 3 || memcmp(by->data, "key", 3)))
        return render_fail(r, "dictsort sorts by \"key\" or by \"value\" alone");
    struct keyed *keyed = pool_alloc(&r->pool, self->as.dict->n + 1, sizeof *keyed, r->err);
    if (!keyed || dict_items(r, self->as.dict, &pairs))
        return -1;
    for (size_t i = 0; i < pairs.as.list->n; i++) {
        keyed[i].item = pairs.as.list->items[i];
        if (key_of(r, &keyed[i].item.as.list->items[by_value], NULL, exact, &keyed[i].key))
            return -1;
    }
    return put_sorted(r, keyed, pairs.as.list->n, is_set(args, 2, "reverse"), out);
}

/* Applies unique(case_sensitive, attribute): the first item of each key. */
int filter_unique(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    struct keyed *keyed;
    size_t n, kept = 0;
    if (read_keyed(r, self, args, 1, is_set(args, 0, "case_sensitive"), &keyed, &n) || value_list(r, out))
        return -1;
    for (size_t i = 0; i < n; i++) {
        bool seen = false;
        for (size_t k = 0; k < kept && !seen; k++)
            if (value_equal(r, &keyed[k].key, &keyed[i].key, 0, &seen))
                return -1;
        if (seen)
            continue;
        keyed[kept++] = keyed[i];
        if (list_put(r, out->as.list, keyed[i].item))
            return -1;
    }
    return 0;
}

/* Applies min(case_sensitive, attribute), max: the first of several equal items; undefined for an empty list. */
static int filter_extreme(struct render *r, const struct value *self, const struct args *args, int sign, struct value *out)
{
    struct keyed *keyed;
    size_t n, best = 0;
    if (read_keyed(r, self, args, 1, is_set(args, 0, "case_sensitive"), &keyed, &n))
        return -1;
    for (size_t i = 1; i < n; i++) {
        int order;
        if (value_order(r, &keyed[i].key, &keyed[best].key, &order))
            return -1;
        if (order * sign > 0)
            best = i;
    }
    *out = n ? keyed[best].item : value_undefined("the extreme of nothing");
    return 0;
}

int filter_min(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return filter_extreme(r, self, args, -1, out);
}

int filter_max(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return filter_extreme(r, self, args, 1, out);
}
