/* Parses expressions by recursive descent, with the precedence of Jinja2. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/template/internal.h"

struct node *node_new(struct parser *p, enum node_kind kind)
{
    struct node *node = pool_alloc(p->pool, 1, sizeof *node, p->err);
    if (node) {
        node->kind = kind;
        node->line = p->token.line ? p->token.line : p->line;
    }
    return node;
}

static struct node *node_new_tuple(struct parser *p)
{
    struct node *node = node_new(p, NODE_LIST);
    if (node)
        node->tuple = true;
    return node;
}

int node_put(struct parser *p, struct node *node, struct node *item)
{
    if (!item)
        return -1;
    if (node->n == node->room) {
        size_t room = node->room ? 2 * node->room : 4;
        struct node **items = pool_alloc(p->pool, room, sizeof *items, p->err);
        if (!items)
            return -1;
        if (node->n)
            memcpy(items, node->items, node->n * sizeof *items);
        node->items = items;
        node->room = room;
    }
    node->items[node->n++] = item;
    return 0;
}

static int name_put(struct parser *p, struct node *node, const char *name)
{
    if (node->n_names == node->name_room) {
        size_t room = node->name_room ? 2 * node->name_room : 4;
        const char **names = pool_alloc(p->pool, room, sizeof *names, p->err);
        if (!names)
            return -1;
        if (node->n_names)
            memcpy(names, node->names, node->n_names * sizeof *names);
        node->names = names;
        node->name_room = room;
    }
    node->names[node->n_names++] = name;
    return 0;
}

static struct node *node_join(struct parser *p, enum node_kind kind, enum operator operator, struct node *a, struct node *b)
{
    struct node *node = a && b ? node_new(p, kind) : NULL;
    if (node) {
        node->operator = operator;
        node->a = a;
        node->b = b;
        node->line = a->line;
    }
    return node;
}

/* Parses (x, name=y): items, keyword arguments last. The opening bracket is the current token. */
static int parse_arguments(struct parser *p, struct node *node)
{
    if (token_expect(p, "("))
        return -1;
    while (!token_is(p, ")")) {
        if (token_is(p, "*") || token_is(p, "**"))
            return parse_fail(p, "* and ** arguments are not supported");
        struct node *item = parse_expression(p, true);
        if (!item)
            return -1;
        if (token_is(p, "=")) {
            if (item->kind != NODE_NAME)
                return parse_fail(p, "an argument's name expected before =");
            if (lex_next(p) || name_put(p, node, item->name))
                return -1;
            item = parse_expression(p, true);
        } else if (node->n_names) {
            return parse_fail(p, "an argument without a name after one with a name");
        }
        if (node_put(p, node, item))
            return -1;
        if (!token_is(p, ")") && token_expect(p, ","))
            return -1;
    }
    return lex_next(p);
}

static struct node *parse_literal(struct parser *p)
{
    struct node *node = node_new(p, NODE_LITERAL);
    char digits[64];
    size_t n = 0;
    if (!node)
        return NULL;
    if (p->token.kind == TOKEN_STRING) {
        struct string *string = pool_alloc(p->pool, 1, sizeof *string, p->err);
        if (!string)
            return NULL;
        *string = (struct string){ .data = p->token.text, .bytes = p->token.bytes };
        node->value = (struct value){ .kind = VALUE_STRING, .as.string = string };
        return lex_next(p) ? NULL : node;
    }
    for (size_t i = 0; i < p->token.bytes && n + 1 < sizeof digits; i++)
        if (p->token.text[i] != '_')
            digits[n++] = p->token.text[i];
    digits[n] = '\0';
    if (p->token.kind == TOKEN_INTEGER) {
        errno = 0;
        node->value = (struct value){ .kind = VALUE_INT, .as.integer = strtoll(digits, NULL, 10) };
        if (errno || p->token.bytes >= sizeof digits) {
            parse_fail(p, "the number %.40s is too large", digits);
            return NULL;
        }
    } else {
        node->value = (struct value){ .kind = VALUE_FLOAT, .as.real = strtod(digits, NULL) };
    }
    return lex_next(p) ? NULL : node;
}

static struct node *parse_list(struct parser *p)
{
    struct node *node = node_new(p, NODE_LIST);
    if (!node || lex_next(p))
        return NULL;
    while (!token_is(p, "]"))
        if (node_put(p, node, parse_expression(p, true)) || (!token_is(p, "]") && token_expect(p, ",")))
            return NULL;
    return lex_next(p) ? NULL : node;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *node = node_new(p, NODE_DICT);
    if (!node || lex_next(p))
        return NULL;
    while (!token_is(p, "}"))
        if (node_put(p, node, parse_expression(p, true)) || token_expect(p, ":") ||
            node_put(p, node, parse_expression(p, true)) || (!token_is(p, "}") && token_expect(p, ",")))
            return NULL;
    return lex_next(p) ? NULL : node;
}

static struct node *parse_name(struct parser *p)
{
    static const struct { const char *name; struct value value; } constants[] = {
        { "true", { VALUE_BOOL, { .boolean = true } } },   { "True", { VALUE_BOOL, { .boolean = true } } },
        { "false", { VALUE_BOOL, { .boolean = false } } }, { "False", { VALUE_BOOL, { .boolean = false } } },
        { "none", { VALUE_NONE, { 0 } } },                 { "None", { VALUE_NONE, { 0 } } },
    };
    struct node *node = node_new(p, NODE_NAME);
    if (!node || !(node->name = token_name(p)))
        return NULL;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (!strcmp(node->name, constants[i].name)) {
            node->kind = NODE_LITERAL;
            node->value = constants[i].value;
        }
    return node;
}

static struct node *parse_primary(struct parser *p)
{
    struct node *node = NULL;
    if (p->token.kind == TOKEN_NAME)
        return parse_name(p);
    if (p->token.kind == TOKEN_STRING) {
        node = parse_literal(p);
        while (node && p->token.kind == TOKEN_STRING)          /* adjacent strings are concatenated */
            node = node_join(p, NODE_BINARY, OP_CONCAT, node, parse_literal(p));
        return node;
    }
    if (p->token.kind == TOKEN_INTEGER || p->token.kind == TOKEN_FLOAT)
        return parse_literal(p);
    if (token_is(p, "["))
        return parse_list(p);
    if (token_is(p, "{"))
        return parse_dict(p);
    if (token_is(p, "(")) {
        if (lex_next(p))
            return NULL;
        node = token_is(p, ")") ? node_new_tuple(p) : parse_tuple(p);
        return node && !token_expect(p, ")") ? node : NULL;
    }
    parse_fail(p, "an expression expected, \"%.*s\" found", p->token.bytes > 40 ? 40 : (int)p->token.bytes, p->token.text);
    return NULL;
}

/* Parses [i] or [a:b:c] after a value. */
static struct node *parse_subscript(struct parser *p, struct node *of)
{
    struct node *node = node_new(p, NODE_INDEX), *parts[3] = {0};
    int part = 0;
    if (!node || token_expect(p, "["))
        return NULL;
    node->a = of;
    for (; !token_is(p, "]"); ) {
        if (token_is(p, ":")) {
            node->kind = NODE_SLICE;
            if (++part > 2 || lex_next(p)) {
                parse_fail(p, "a slice of more than three parts");
                return NULL;
            }
        } else if (parts[part]) {
            token_expect(p, "]");
            return NULL;
        } else if (!(parts[part] = parse_expression(p, true))) {
            return NULL;
        }
    }
    if (node->kind == NODE_INDEX && !parts[0]) {
        parse_fail(p, "an index expected in []");
        return NULL;
    }
    node->b = parts[0];
    node->c = parts[1];
    node->d = parts[2];
    return lex_next(p) ? NULL : node;
}

static struct node *parse_attribute(struct parser *p, struct node *of)
{
    if (token_expect(p, "."))
        return NULL;
    if (p->token.kind == TOKEN_INTEGER) {
        struct node *index = parse_literal(p);
        return node_join(p, NODE_INDEX, OP_ADD, of, index);
    }
    struct node *node = node_new(p, NODE_ATTRIBUTE);
    if (!node || !(node->name = token_name(p)))
        return NULL;
    node->a = of;
    return node;
}

static struct node *parse_call(struct parser *p, struct node *of)
{
    struct node *node = node_new(p, NODE_CALL);
    if (!node || parse_arguments(p, node))
        return NULL;
    node->a = of;
    return node;
}

static struct node *parse_postfix(struct parser *p, struct node *node)
{
    int chain = 0;
    while (node) {
        if (++chain > 4 * PARSE_DEPTH) {
            parse_fail(p, "a chain of more than %d accesses", 4 * PARSE_DEPTH);
            return NULL;
        }
        if (token_is(p, "."))
            node = parse_attribute(p, node);
        else if (token_is(p, "["))
            node = parse_subscript(p, node);
        else if (token_is(p, "("))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

static struct node *parse_filter(struct parser *p, struct node *of)
{
    struct node *node = node_new(p, NODE_FILTER);
    if (!node || lex_next(p) || !(node->name = token_name(p)) || (token_is(p, "(") && parse_arguments(p, node)))
        return NULL;
    node->a = of;
    if (!p->conditions && !filter_find(node->name)) {
        parse_fail(p, "the filter \"%.60s\" is not supported", node->name);
        return NULL;
    }
    return node;
}

static struct node *parse_test(struct parser *p, struct node *of)
{
    struct node *node = node_new(p, NODE_TEST);
    if (!node || lex_next(p))
        return NULL;
    if (token_is(p, "not")) {
        node->negated = true;
        if (lex_next(p))
            return NULL;
    }
    if (!(node->name = token_name(p)))
        return NULL;
    node->a = of;
    if (token_is(p, "(")) {
        if (parse_arguments(p, node))
            return NULL;
    } else if (token_is(p, "is")) {
        parse_fail(p, "tests cannot be chained with is");
        return NULL;
    } else if (p->token.kind == TOKEN_STRING || p->token.kind == TOKEN_INTEGER || p->token.kind == TOKEN_FLOAT ||
               token_is(p, "[") || token_is(p, "{") ||
               (p->token.kind == TOKEN_NAME && !token_is(p, "else") && !token_is(p, "or") && !token_is(p, "and") &&
                !token_is(p, "if") && !token_is(p, "not") && !token_is(p, "in"))) {
        if (node_put(p, node, parse_postfix(p, parse_primary(p))))
            return NULL;
    }
    if (!p->conditions && !test_find(node->name)) {
        parse_fail(p, "the test \"%.60s\" is not supported", node->name);
        return NULL;
    }
    return node;
}

static struct node *parse_unary(struct parser *p, bool filters)
{
    struct node *node = NULL;
    if (++p->depth > PARSE_DEPTH) {
        parse_fail(p, "nested deeper than %d", PARSE_DEPTH);
    } else if (token_is(p, "-") || token_is(p, "+")) {
        node = node_new(p, token_is(p, "-") ? NODE_NEGATIVE : NODE_POSITIVE);
        if (node && (lex_next(p) || !(node->a = parse_unary(p, false))))
            node = NULL;
    } else {
        node = parse_primary(p);
    }
    node = node ? parse_postfix(p, node) : NULL;
    for (int chain = 0; node && filters; chain++) {
        if (chain > 4 * PARSE_DEPTH) {
            parse_fail(p, "a chain of more than %d filters", 4 * PARSE_DEPTH);
            node = NULL;
        } else if (token_is(p, "|")) {
            node = parse_filter(p, node);
        } else if (token_is(p, "is")) {
            node = parse_test(p, node);
        } else if (token_is(p, "(")) {
            node = parse_call(p, node);
        } else {
            break;
        }
    }
    p->depth--;
    return node;
}

/* Levels of left-associative operators, lowest precedence first. */
static const struct { const char *token; int level; enum operator operator; } binary[] = {
    { "+", 0, OP_ADD }, { "-", 0, OP_SUBTRACT }, { "~", 1, OP_CONCAT }, { "*", 2, OP_MULTIPLY }, { "/", 2, OP_DIVIDE },
    { "//", 2, OP_FLOOR_DIVIDE }, { "%", 2, OP_MODULO }, { "**", 3, OP_POWER },
};

static struct node *parse_binary(struct parser *p, int level)
{
    struct node *node = level > 3 ? parse_unary(p, true) : parse_binary(p, level + 1);
    int chain = 0;
    while (node && level <= 3) {
        size_t i = 0;
        while (i < sizeof binary / sizeof *binary && !(binary[i].level == level && token_is(p, binary[i].token)))
            i++;
        if (i == sizeof binary / sizeof *binary)
            break;
        if (++chain > 4 * PARSE_DEPTH) {
            parse_fail(p, "a chain of more than %d operators", 4 * PARSE_DEPTH);
            return NULL;
        }
        if (lex_next(p))
            return NULL;
        node = node_join(p, NODE_BINARY, binary[i].operator, node, parse_binary(p, level + 1));
    }
    return node;
}

/* Parses a < b < c: the operands in items, the operators in nodes between them (a, b: as a chain of `and`). */
static struct node *parse_compare(struct parser *p)
{
    static const struct { const char *token; enum operator operator; } compare[] = {
        { "==", OP_EQUAL }, { "!=", OP_NOT_EQUAL }, { "<=", OP_LESS_EQUAL }, { ">=", OP_GREATER_EQUAL },
        { "<", OP_LESS }, { ">", OP_GREATER }, { "in", OP_IN },
    };
    struct node *left = parse_binary(p, 0), *all = NULL;
    int chain = 0;
    while (left) {
        enum operator operator = OP_NOT_IN;
        size_t i = 0;
        while (i < sizeof compare / sizeof *compare && !token_is(p, compare[i].token))
            i++;
        if (i < sizeof compare / sizeof *compare)
            operator = compare[i].operator;
        else if (!token_is(p, "not"))
            return all ? all : left;
        if (++chain > PARSE_DEPTH) {
            parse_fail(p, "a chain of more than %d comparisons", PARSE_DEPTH);
            return NULL;
        }
        if (lex_next(p) || (operator == OP_NOT_IN && token_expect(p, "in")))
            return NULL;
        struct node *right = parse_binary(p, 0), *one = node_join(p, NODE_COMPARE, operator, left, right);
        all = all ? node_join(p, NODE_AND, operator, all, one) : one;
        left = all ? right : NULL;
    }
    return NULL;
}

static struct node *parse_not(struct parser *p)
{
    struct node *node;
    if (!token_is(p, "not"))
        return parse_compare(p);
    if (++p->depth > PARSE_DEPTH) {
        parse_fail(p, "nested deeper than %d", PARSE_DEPTH);
        return NULL;
    }
    node = node_new(p, NODE_NOT);
    if (node && (lex_next(p) || !(node->a = parse_not(p))))
        node = NULL;
    p->depth--;
    return node;
}

static struct node *parse_logical(struct parser *p, bool is_or)
{
    struct node *node = is_or ? parse_logical(p, false) : parse_not(p);
    int chain = 0;
    while (node && token_is(p, is_or ? "or" : "and")) {
        if (++chain > 4 * PARSE_DEPTH) {
            parse_fail(p, "a chain of more than %d operators", 4 * PARSE_DEPTH);
            return NULL;
        }
        if (lex_next(p))
            return NULL;
        node = node_join(p, is_or ? NODE_OR : NODE_AND, OP_ADD, node, is_or ? parse_logical(p, false) : parse_not(p));
    }
    return node;
}

struct node *parse_expression(struct parser *p, bool with_condition)
{
    struct node *node = NULL;
    if (++p->depth > PARSE_DEPTH)
        parse_fail(p, "nested deeper than %d", PARSE_DEPTH);
    else
        node = parse_logical(p, true);
    for (int chain = 0; node && with_condition && token_is(p, "if"); chain++) {
        struct node *choice = node_new(p, NODE_CONDITIONAL);
        if (chain > PARSE_DEPTH)
            parse_fail(p, "a chain of more than %d conditions", PARSE_DEPTH);
        if (!choice || chain > PARSE_DEPTH || lex_next(p) || !(choice->a = parse_logical(p, true)))
            return NULL;
        choice->b = node;
        if (token_is(p, "else") && (lex_next(p) || !(choice->c = parse_expression(p, true))))
            return NULL;
        node = choice;
    }
    p->depth--;
    return node;
}

struct node *parse_tuple(struct parser *p)
{
    struct node *first = parse_expression(p, true), *all;
    if (!first || !token_is(p, ","))
        return first;
    all = node_new_tuple(p);
    if (!all || node_put(p, all, first))
        return NULL;
    while (token_is(p, ",")) {
        if (lex_next(p))
            return NULL;
        if (token_is(p, ")") || token_is(p, "=") || p->token.kind == TOKEN_END_TAG)
            break;
        if (node_put(p, all, parse_expression(p, true)))
            return NULL;
    }
    return all;
}
