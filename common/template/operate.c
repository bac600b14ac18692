#include <math.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/template/internal.h"

static int operands(struct render *r, const char *what, const struct value *a, const struct value *b)
{
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED)
        return render_fail(r, "\"%.60s\" is undefined", a->kind == VALUE_UNDEFINED ? a->as.name : b->as.name);
    return render_fail(r, "%s is not defined for %s and %s", what, value_kind_name(a), value_kind_name(b));
}

static int concat(struct render *r, const struct value *a, const struct value *b, struct value *out)
{
    struct builder builder = {0};
    return write_value(r, &builder, a) || write_value(r, &builder, b) || builder_end(r, &builder, out) ? -1 : 0;
}

static int repeat(struct render *r, const struct value *of, int64_t times, struct value *out)
{
    struct builder builder = {0};
    for (int64_t i = 0; i < times; i++)
        if (builder_put_string(r, &builder, of->as.string))
            return -1;
    return builder_end(r, &builder, out);
}

static int join_lists(struct render *r, const struct list *a, const struct list *b, struct value *out)
{
    if (value_list(r, out))
        return -1;
    for (size_t i = 0; i < a->n; i++)
        if (list_put(r, out->as.list, a->items[i]))
            return -1;
    for (size_t i = 0; i < b->n; i++)
        if (list_put(r, out->as.list, b->items[i]))
            return -1;
    return 0;
}

static int integer_power(int64_t base, int64_t exponent, int64_t *out)
{
    int64_t result = 1;
    if (base == 0 || base == 1 || base == -1) {
        *out = exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base;
        return 0;
    }
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(result, base, &result))
            return -1;
    *out = result;
    return 0;
}

static int integer_operate(struct render *r, enum operator operator, int64_t a, int64_t b, struct value *out)
{
    int64_t result = 0;
    bool overflow = false;
    if ((operator == OP_FLOOR_DIVIDE || operator == OP_MODULO) && (b == 0 || (b == -1 && a == INT64_MIN)))
        return render_fail(r, "division of %lld by %lld", (long long)a, (long long)b);
    switch (operator) {
    case OP_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case OP_SUBTRACT: overflow = __builtin_sub_overflow(a, b, &result); break;
    case OP_MULTIPLY: overflow = __builtin_mul_overflow(a, b, &result); break;
    case OP_POWER: overflow = integer_power(a, b, &result); break;
    case OP_FLOOR_DIVIDE: result = a / b - (a % b && (a % b < 0) != (b < 0)); break;
    default: result = a % b + (a % b && (a % b < 0) != (b < 0) ? b : 0);      /* with the sign of the divisor, as in Python */
    }
    if (overflow)
        return render_fail(r, "an integer that does not fit 64 bits");
    *out = value_int(result);
    return 0;
}

static int real_operate(struct render *r, enum operator operator, double a, double b, struct value *out)
{
    double result;
    if ((operator == OP_DIVIDE || operator == OP_FLOOR_DIVIDE || operator == OP_MODULO) && b == 0)
        return render_fail(r, "division by zero");
    switch (operator) {
    case OP_ADD: result = a + b; break;
    case OP_SUBTRACT: result = a - b; break;
    case OP_MULTIPLY: result = a * b; break;
    case OP_DIVIDE: result = a / b; break;
    case OP_FLOOR_DIVIDE: result = floor(a / b); break;
    case OP_POWER: result = pow(a, b); break;
    default: result = a - b * floor(a / b);
    }
    *out = (struct value){ .kind = VALUE_FLOAT, .as.real = result };
    return 0;
}

static int binary(struct render *r, enum operator operator, const struct value *a, const struct value *b, struct value *out)
{
    static const char *const names[] = { "+", "-", "~", "*", "/", "//", "%", "**" };
    int64_t i, k;
    bool ints = value_as_int(a, &i) && value_as_int(b, &k);
    if (operator == OP_CONCAT)
        return concat(r, a, b, out);
    if (operator == OP_ADD && a->kind == VALUE_STRING && b->kind == VALUE_STRING)
        return concat(r, a, b, out);
    if (operator == OP_ADD && a->kind == VALUE_LIST && b->kind == VALUE_LIST)
        return join_lists(r, a->as.list, b->as.list, out);
    if (operator == OP_MULTIPLY && a->kind == VALUE_STRING && value_as_int(b, &k))
        return repeat(r, a, k, out);
    if (operator == OP_MULTIPLY && b->kind == VALUE_STRING && value_as_int(a, &i))
        return repeat(r, b, i, out);
    if (ints && operator != OP_DIVIDE && !(operator == OP_POWER && k < 0))
        return integer_operate(r, operator, i, k, out);
    bool numbers = (a->kind == VALUE_FLOAT || value_as_int(a, &i)) && (b->kind == VALUE_FLOAT || value_as_int(b, &k));
    if (!numbers)
        return operands(r, names[operator], a, b);
    return real_operate(r, operator, a->kind == VALUE_FLOAT ? a->as.real : (double)i,
                        b->kind == VALUE_FLOAT ? b->as.real : (double)k, out);
}

static int contains(struct render *r, const struct value *item, const struct value *in, bool *out)
{
    *out = false;
    if (in->kind == VALUE_STRING && item->kind == VALUE_STRING) {
        const struct string *s = in->as.string, *what = item->as.string;
        *out = !what->bytes || memmem(s->data, s->bytes, what->data, what->bytes);
        return render_charge(r, s->bytes);
    }
    if (in->kind == VALUE_DICT) {
        *out = dict_find_value(in->as.dict, item) != NULL;
        return render_charge(r, 4 * in->as.dict->n);
    }
    if (in->kind == VALUE_LIST) {
        for (size_t i = 0; i < in->as.list->n && !*out; i++)
            if (value_equal(r, item, &in->as.list->items[i], 0, out))
                return -1;
        return 0;
    }
    return in->kind == VALUE_UNDEFINED ? 0 : operands(r, "in", item, in);
}

int value_compare(struct render *r, enum operator operator, const struct value *a, const struct value *b, struct value *out)
{
    bool result = false;
    int order = 0;
    if (operator == OP_EQUAL || operator == OP_NOT_EQUAL) {
        if (value_equal(r, a, b, 0, &result))
            return -1;
        result = result == (operator == OP_EQUAL);
    } else if (operator == OP_IN || operator == OP_NOT_IN) {
        if (contains(r, a, b, &result))
            return -1;
        result = result == (operator == OP_IN);
    } else {
        if (value_order(r, a, b, &order))
            return -1;
        result = operator == OP_LESS ? order < 0 : operator == OP_LESS_EQUAL ? order <= 0 : operator == OP_GREATER ? order > 0
                 : order >= 0;
    }
    *out = value_bool(result);
    return 0;
}

static int loop_attribute(struct render *r, const struct loop *loop, const char *name, struct value *out)
{
    int64_t index = (int64_t)loop->index, n = (int64_t)loop->list->n;
    const struct { const char *name; struct value value; } members[] = {
        { "index", value_int(index + 1) },       { "index0", value_int(index) },     { "first", value_bool(index == 0) },
        { "last", value_bool(index + 1 == n) },  { "length", value_int(n) },         { "revindex", value_int(n - index) },
        { "revindex0", value_int(n - index - 1) },
        { "previtem", index ? loop->list->items[index - 1] : value_undefined("loop.previtem") },
        { "nextitem", index + 1 < n ? loop->list->items[index + 1] : value_undefined("loop.nextitem") },
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (!strcmp(name, members[i].name)) {
            *out = members[i].value;
            return 0;
        }
    return render_fail(r, "loop.%.60s is not supported", name);
}

int eval_attribute(struct render *r, const struct value *value, const char *name, struct value *out)
{
    const struct value *item = NULL;
    const struct function *method = method_lookup(value, name);
    if (value->kind == VALUE_UNDEFINED)
        return render_fail(r, "\"%.60s\" is undefined, and has no .%.60s", value->as.name, name);
    if (value->kind == VALUE_LOOP)
        return loop_attribute(r, value->as.loop, name, out);
    if (method) {
        struct bound *bound = pool_alloc(&r->pool, 1, sizeof *bound, r->err);
        if (!bound)
            return -1;
        *bound = (struct bound){ *value, method };
        *out = (struct value){ .kind = VALUE_METHOD, .as.bound = bound };
        return 0;
    }
    if (value->kind == VALUE_DICT || value->kind == VALUE_NAMESPACE)
        item = dict_find(value->as.dict, name, strlen(name));
    *out = item ? *item : value_undefined(name);
    return render_charge(r, 0);
}

/* Returns the byte offset of character `index` of the string. */
static size_t offset_of(const struct string *s, size_t index)
{
    size_t at = 0;
    while (index-- && at < s->bytes)
        at += (size_t)utf8_next(s->data + at, s->bytes - at, NULL);
    return at;
}

int eval_index(struct render *r, const struct value *value, const struct value *index, struct value *out)
{
    int64_t i;
    if (value->kind == VALUE_UNDEFINED)
        return render_fail(r, "\"%.60s\" is undefined, and has no items", value->as.name);
    if (index->kind == VALUE_STRING) {
        const struct string *key = index->as.string;
        const struct value *item = NULL;
        if (value->kind == VALUE_DICT || value->kind == VALUE_NAMESPACE)
            item = dict_find(value->as.dict, key->data, key->bytes);
        *out = item ? *item : value_undefined(key->data);
        return render_charge(r, 0);
    }
    if (value->kind == VALUE_DICT) {
        const struct value *item = dict_find_value(value->as.dict, index);
        *out = item ? *item : value_undefined("item");
        return render_charge(r, 4 * value->as.dict->n);
    }
    if (!value_as_int(index, &i) || (value->kind != VALUE_LIST && value->kind != VALUE_STRING)) {
        *out = value_undefined("item");
        return 0;
    }
    const struct string *s = value->kind == VALUE_STRING ? value->as.string : NULL;
    int64_t n = s ? (int64_t)utf8_count(s->data, s->bytes) : (int64_t)value->as.list->n;
    if (render_charge(r, s ? s->bytes : 0))
        return -1;
    i += i < 0 ? n : 0;
    *out = value_undefined("item");
    if (i < 0 || i >= n)
        return 0;
    if (!s) {
        *out = value->as.list->items[i];
        return 0;
    }
    size_t begin = offset_of(s, (size_t)i);
    return value_part(r, s, begin, begin + (size_t)utf8_next(s->data + begin, s->bytes - begin, NULL), out);
}

/* Computes the bounds of a[start:stop:step] for n items, clipped as in Python. */
static int slice_bounds(struct render *r, const struct value part[3], int64_t n, int64_t bounds[3])
{
    int64_t step = 1;
    if (part[2].kind != VALUE_NONE && (!value_as_int(&part[2], &step) || step == 0 || step < -n - 1 || step == INT64_MIN))
        return render_fail(r, "the step of a slice must be a small integer that is not 0");
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    for (int k = 0; k < 2; k++) {
        int64_t at = (k == 0) == (step > 0) ? low : high;
        if (part[k].kind != VALUE_NONE) {
            if (!value_as_int(&part[k], &at))
                return render_fail(r, "the bounds of a slice must be integers");
            at += at < 0 ? n : 0;
            at = at < low ? low : at > high ? high : at;
        }
        bounds[k] = at;
    }
    bounds[2] = step > n + 1 ? n + 1 : step;
    return 0;
}

static int slice(struct render *r, const struct value *of, const struct value part[3], struct value *out)
{
    int64_t bounds[3];
    if (of->kind == VALUE_UNDEFINED)
        return render_fail(r, "\"%.60s\" is undefined, and has no items", of->as.name);
    if (of->kind != VALUE_LIST && of->kind != VALUE_STRING)
        return render_fail(r, "%s has no slices", value_kind_name(of));
    const struct string *s = of->kind == VALUE_STRING ? of->as.string : NULL;
    if (slice_bounds(r, part, s ? (int64_t)utf8_count(s->data, s->bytes) : (int64_t)of->as.list->n, bounds) ||
        render_charge(r, s ? s->bytes : 0))
        return -1;
    if (s && bounds[2] == 1) {
        size_t begin = offset_of(s, (size_t)bounds[0]);
        size_t end = bounds[1] > bounds[0] ? offset_of(s, (size_t)bounds[1]) : begin;
        return value_part(r, s, begin, end, out);
    }
    struct list *items;
    struct value list;
    struct builder builder = {0};
    if (value_iterate(r, of, &items) || value_list(r, &list))
        return -1;
    for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1]; i += bounds[2])
        if (s ? builder_put_string(r, &builder, items->items[i].as.string) : list_put(r, list.as.list, items->items[i]))
            return -1;
    *out = list;
    return s ? builder_end(r, &builder, out) : 0;
}

static int eval_slice(struct render *r, const struct node *node, struct value *out)
{
    struct value of, part[3];
    const struct node *const nodes[3] = { node->b, node->c, node->d };
    if (eval_expression(r, node->a, &of))
        return -1;
    for (int i = 0; i < 3; i++) {
        part[i] = (struct value){ .kind = VALUE_NONE };
        if (nodes[i] && eval_expression(r, nodes[i], &part[i]))
            return -1;
    }
    return slice(r, &of, part, out);
}

static int eval_items(struct render *r, const struct node *node, const struct value **out)
{
    struct value *items = pool_alloc(&r->pool, node->n, sizeof *items, r->err);
    if (!items)
        return -1;
    for (size_t i = 0; i < node->n; i++)
        if (eval_expression(r, node->items[i], &items[i]))
            return -1;
    *out = items;
    return 0;
}

static int eval_dict(struct render *r, const struct node *node, struct value *out)
{
    const struct value *items;
    if (eval_items(r, node, &items) || value_dict(r, out))
        return -1;
    for (size_t i = 0; i + 1 < node->n; i += 2) {
        if (dict_put_value(r, out->as.dict, &items[i], items[i + 1]))
            return -1;
    }
    return 0;
}

/* Evaluates the arguments of calls, filters and tests, and their subject in `a`. */
static int eval_applied(struct render *r, const struct node *node, struct value *out)
{
    struct value of;
    const struct value *items;
    const struct function *function = NULL;
    if (node->kind != NODE_CALL)
        function = node->kind == NODE_FILTER ? filter_find(node->name) : test_find(node->name);
    if (eval_expression(r, node->a, &of) || eval_items(r, node, &items))
        return -1;
    size_t n = node->n - node->n_names;
    struct args args = { .items = items, .n = n, .names = node->names, .named = items + n, .n_named = node->n_names };
    r->line = node->line;
    if (node->kind == NODE_CALL)
        return eval_call(r, &of, &args, out);
    if (!function)
        return render_fail(r, "the %s \"%.60s\" is not supported", node->kind == NODE_FILTER ? "filter" : "test", node->name);
    if (eval_function(r, function, &of, &args, out))
        return -1;
    if (node->negated)
        out->as.boolean = !out->as.boolean;
    return 0;
}

static int eval_name(struct render *r, const char *name, struct value *out)
{
    for (const struct frame *frame = r->frame; frame; frame = frame->up) {
        const struct value *value = dict_find(&frame->variables, name, strlen(name));
        if (value) {
            *out = *value;
            return 0;
        }
    }
    const struct function *function = global_find(name);
    *out = function ? (struct value){ .kind = VALUE_FUNCTION, .as.function = function } : value_undefined(name);
    return 0;
}

static int eval_sign(struct render *r, const struct node *node, struct value *out)
{
    struct value of, zero = value_int(0);
    if (eval_expression(r, node->a, &of))
        return -1;
    if (of.kind == VALUE_FLOAT) {
        *out = of;
        out->as.real = node->kind == NODE_NEGATIVE ? -of.as.real : of.as.real;
        return 0;
    }
    return binary(r, node->kind == NODE_NEGATIVE ? OP_SUBTRACT : OP_ADD, &zero, &of, out);
}

static int eval_choice(struct render *r, const struct node *node, struct value *out)
{
    struct value left;
    if (eval_expression(r, node->a, &left))
        return -1;
    if (node->kind == NODE_CONDITIONAL) {
        if (!value_true(&left) && !node->c) {
            *out = value_undefined("a condition without else");
            return 0;
        }
        return eval_expression(r, value_true(&left) ? node->b : node->c, out);
    }
    if (value_true(&left) == (node->kind == NODE_OR)) {
        *out = left;
        return 0;
    }
    return eval_expression(r, node->b, out);
}

static int eval_two(struct render *r, const struct node *node, struct value *out)
{
    struct value a, b;
    if (eval_expression(r, node->a, &a) || eval_expression(r, node->b, &b))
        return -1;
    r->line = node->line;
    if (node->kind == NODE_INDEX)
        return eval_index(r, &a, &b, out);
    return (node->kind == NODE_BINARY ? binary : value_compare)(r, node->operator, &a, &b, out);
}

static int evaluate(struct render *r, const struct node *node, struct value *out)
{
    struct value of;
    const struct value *items;
    r->line = node->line;
    if (render_charge(r, 0))
        return -1;
    switch (node->kind) {
    case NODE_LITERAL: *out = node->value; return 0;
    case NODE_NAME: return eval_name(r, node->name, out);
    case NODE_ATTRIBUTE: return eval_expression(r, node->a, &of) ? -1 : eval_attribute(r, &of, node->name, out);
    case NODE_SLICE: return eval_slice(r, node, out);
    case NODE_CALL: case NODE_FILTER: case NODE_TEST: return eval_applied(r, node, out);
    case NODE_NEGATIVE: case NODE_POSITIVE: return eval_sign(r, node, out);
    case NODE_AND: case NODE_OR: case NODE_CONDITIONAL: return eval_choice(r, node, out);
    case NODE_INDEX: case NODE_BINARY: case NODE_COMPARE: return eval_two(r, node, out);
    case NODE_DICT: return eval_dict(r, node, out);
    case NODE_NOT:
        if (eval_expression(r, node->a, &of))
            return -1;
        *out = value_bool(!value_true(&of));
        return 0;
    case NODE_LIST:
        if (eval_items(r, node, &items) || value_list(r, out))
            return -1;
        out->as.list->tuple = node->tuple;
        for (size_t i = 0; i < node->n; i++)
            if (list_put(r, out->as.list, items[i]))
                return -1;
        return 0;
    default: return render_fail(r, "this is not an expression");
    }
}

int eval_expression(struct render *r, const struct node *node, struct value *out)
{
    if (r->depth >= EVAL_DEPTH)
        return render_fail(r, "nested deeper than %d", EVAL_DEPTH);
    r->depth++;
    int rc = evaluate(r, node, out);
    r->depth--;
    return rc;
}
