/* The tests: functions after `is`. */
#include <string.h>

#include "common/template/internal.h"

#define TEST(name, condition)                                                                                               \
    static int test_##name(struct render *r, const struct value *self, const struct args *args, struct value *out)          \
    {                                                                                                                       \
        (void)r, (void)args;                                                                                                \
        *out = value_bool(condition);                                                                                       \
        return 0;                                                                                                           \
    }

TEST(defined, self->kind != VALUE_UNDEFINED)
TEST(undefined, self->kind == VALUE_UNDEFINED)
TEST(none, self->kind == VALUE_NONE)
TEST(boolean, self->kind == VALUE_BOOL)
TEST(true, self->kind == VALUE_BOOL && self->as.boolean)
TEST(false, self->kind == VALUE_BOOL && !self->as.boolean)
TEST(integer, self->kind == VALUE_INT)
TEST(float, self->kind == VALUE_FLOAT)
TEST(number, self->kind == VALUE_INT || self->kind == VALUE_FLOAT || self->kind == VALUE_BOOL)
TEST(string, self->kind == VALUE_STRING)
TEST(mapping, self->kind == VALUE_DICT)
TEST(sequence, self->kind == VALUE_STRING || self->kind == VALUE_LIST || self->kind == VALUE_DICT)
TEST(iterable, self->kind == VALUE_STRING || self->kind == VALUE_LIST || self->kind == VALUE_DICT ||
               self->kind == VALUE_UNDEFINED)
TEST(callable, self->kind == VALUE_MACRO || self->kind == VALUE_FUNCTION || self->kind == VALUE_METHOD)

static int test_equal(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    *out = value_bool(false);
    return value_equal(r, self, &args->items[0], 0, &out->as.boolean);
}

static int test_same(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    *out = value_bool(false);
    return self->kind == args->items[0].kind ? test_equal(r, self, args, out) : 0;
}

static int test_not_equal(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    if (test_equal(r, self, args, out))
        return -1;
    out->as.boolean = !out->as.boolean;
    return 0;
}

static int order(struct render *r, const struct value *self, const struct args *args, int min, int max, struct value *out)
{
    int found = 0;
    if (value_order(r, self, &args->items[0], &found))
        return -1;
    *out = value_bool(found >= min && found <= max);
    return 0;
}

static int test_less(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return order(r, self, args, -1, -1, out);
}

static int test_less_equal(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return order(r, self, args, -1, 0, out);
}

static int test_greater(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return order(r, self, args, 1, 1, out);
}

static int test_greater_equal(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return order(r, self, args, 0, 1, out);
}

static int divisible(struct render *r, const struct value *self, int64_t by, int64_t rest, struct value *out)
{
    int64_t integer;
    if (!value_as_int(self, &integer))
        return render_fail(r, "expected an integer, not %s", value_kind_name(self));
    if (!by)
        return render_fail(r, "division by zero");
    *out = value_bool(by == -1 ? rest == 0 : (integer % by != 0) == (rest != 0));
    return 0;
}

static int test_even(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return divisible(r, self, 2, 0, out);
}

static int test_odd(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    (void)args;
    return divisible(r, self, 2, 1, out);
}

static int test_divisible(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    int64_t by;
    return arg_int(r, args, 0, "num", 0, &by) || divisible(r, self, by, 0, out) ? -1 : 0;
}

static int test_in(struct render *r, const struct value *self, const struct args *args, struct value *out)
{
    return value_compare(r, OP_IN, self, &args->items[0], out);
}

static const struct function tests[] = {
    { "defined", test_defined, 0, 0, NULL },   { "undefined", test_undefined, 0, 0, NULL },
    { "none", test_none, 0, 0, NULL },
    { "boolean", test_boolean, 0, 0, NULL },   { "true", test_true, 0, 0, NULL },           { "false", test_false, 0, 0, NULL },
    { "integer", test_integer, 0, 0, NULL },   { "float", test_float, 0, 0, NULL },
    { "number", test_number, 0, 0, NULL },
    { "string", test_string, 0, 0, NULL },     { "mapping", test_mapping, 0, 0, NULL },
    { "sequence", test_sequence, 0, 0, NULL }, { "iterable", test_iterable, 0, 0, NULL },
    { "callable", test_callable, 0, 0, NULL }, { "even", test_even, 0, 0, NULL },           { "odd", test_odd, 0, 0, NULL },
    { "divisibleby", test_divisible, 1, 1, NULL },
    { "in", test_in, 1, 1, NULL },
    { "equalto", test_equal, 1, 1, NULL },     { "eq", test_equal, 1, 1, NULL },            { "==", test_equal, 1, 1, NULL },
    { "sameas", test_same, 1, 1, NULL },
    { "ne", test_not_equal, 1, 1, NULL },      { "!=", test_not_equal, 1, 1, NULL },
    { "lt", test_less, 1, 1, NULL },           { "lessthan", test_less, 1, 1, NULL },       { "<", test_less, 1, 1, NULL },
    { "le", test_less_equal, 1, 1, NULL },     { "<=", test_less_equal, 1, 1, NULL },
    { "gt", test_greater, 1, 1, NULL },        { "greaterthan", test_greater, 1, 1, NULL }, { ">", test_greater, 1, 1, NULL },
    { "ge", test_greater_equal, 1, 1, NULL },  { ">=", test_greater_equal, 1, 1, NULL },
};

const struct function *test_find(const char *name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (!strcmp(tests[i].name, name))
            return &tests[i];
    return NULL;
}
