#include <string.h>

#include "common/template/internal.h"

static struct node *parse_block(struct parser *p, const char *const *ends);

static int block_put(struct parser *p, struct node *block, enum node_kind kind, const struct string *text, struct node *a)
{
    struct node *node = node_new(p, kind);
    if (!node)
        return -1;
    node->a = a;
    if (text) {
        struct string *copy = pool_alloc(p->pool, 1, sizeof *copy, p->err);
        if (!copy)
            return -1;
        *copy = *text;
        node->value = (struct value){ .kind = VALUE_STRING, .as.string = copy };
    }
    return node_put(p, block, node);
}

static int end_tag(struct parser *p)
{
    if (p->token.kind == TOKEN_END_TAG)
        return 0;
    return parse_fail(p, "the end of the tag expected, \"%.*s\" found", p->token.bytes > 40 ? 40 : (int)p->token.bytes,
                      p->token.text);
}

/* Reads the body up to a tag whose first word is in `ends`, which becomes current. The current token is the end of an
 * opening tag. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    struct node *body = NULL;
    if (end_tag(p))
        return NULL;
    if (++p->depth > PARSE_DEPTH)
        parse_fail(p, "nested deeper than %d", PARSE_DEPTH);
    else
        body = parse_block(p, ends);
    p->depth--;
    return body;
}

/* Parses an if statement. Current token: `if` or `elif`. */
static struct node *parse_if(struct parser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
    struct node *first = NULL, *now = NULL;
    while (!first || token_is(p, "elif")) {
        struct node *node = node_new(p, NODE_IF);
        if (!node || lex_next(p) || !(node->a = parse_tuple(p)))
            return NULL;
        p->conditions++;
        node->b = parse_body(p, ends);
        p->conditions--;
        if (!node->b)
            return NULL;
        if (now)
            now->c = node;
        else
            first = node;
        now = node;
    }
    if (token_is(p, "else")) {
        p->conditions++;
        now->c = lex_next(p) ? NULL : parse_body(p, last);
        p->conditions--;
        if (!now->c)
            return NULL;
    }
    return token_expect(p, "endif") ? NULL : first;
}

/* Parses names separated by commas, with or without brackets around. */
static int parse_targets(struct parser *p, struct node *node)
{
    bool brackets = token_is(p, "(");
    if (brackets && lex_next(p))
        return -1;
    for (;;) {
        struct node *target = node_new(p, NODE_NAME);
        if (!target || !(target->name = token_name(p)) || node_put(p, node, target))
            return -1;
        if (!token_is(p, ","))
            break;
        if (lex_next(p))
            return -1;
    }
    return brackets ? token_expect(p, ")") : 0;
}

static struct node *parse_for(struct parser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL }, *const last[] = { "endfor", NULL };
    struct node *node = node_new(p, NODE_FOR);
    if (!node || lex_next(p) || parse_targets(p, node) || token_expect(p, "in") || !(node->a = parse_expression(p, false)))
        return NULL;
    if (token_is(p, "if") && (lex_next(p) || !(node->b = parse_expression(p, true))))
        return NULL;
    if (token_is(p, "recursive")) {
        parse_fail(p, "recursive loops are not supported");
        return NULL;
    }
    p->loops++;
    node->c = parse_body(p, ends);
    p->loops--;
    if (!node->c || (token_is(p, "else") && (lex_next(p) || !(node->d = parse_body(p, last)))))
        return NULL;
    return token_expect(p, "endfor") ? NULL : node;
}

static struct node *parse_set(struct parser *p)
{
    static const char *const ends[] = { "endset", NULL };
    struct node *node = node_new(p, NODE_SET);
    if (!node || lex_next(p) || parse_targets(p, node))
        return NULL;
    if (token_is(p, ".")) {
        if (lex_next(p) || !(node->name = token_name(p)))
            return NULL;
    }
    if (node->name && node->n != 1) {
        parse_fail(p, "several names cannot be set together with an attribute");
        return NULL;
    }
    if (token_is(p, "="))
        return lex_next(p) || !(node->a = parse_tuple(p)) ? NULL : node;
    if (node->name || node->n != 1) {
        token_expect(p, "=");
        return NULL;
    }
    node->kind = NODE_SET_BLOCK;
    while (token_is(p, "|")) {
        parse_fail(p, "filters on a set block are not supported");
        return NULL;
    }
    if (!(node->a = parse_body(p, ends)))
        return NULL;
    return token_expect(p, "endset") ? NULL : node;
}

static struct node *parse_macro(struct parser *p)
{
    static const char *const ends[] = { "endmacro", NULL };
    struct node *node = node_new(p, NODE_MACRO);
    int loops = p->loops;
    if (!node || lex_next(p) || !(node->name = token_name(p)) || token_expect(p, "("))
        return NULL;
    while (!token_is(p, ")")) {
        struct node *parameter = node_new(p, NODE_NAME);
        if (!parameter || !(parameter->name = token_name(p)) || node_put(p, node, parameter))
            return NULL;
        if (token_is(p, "=") && (lex_next(p) || !(parameter->a = parse_expression(p, true))))
            return NULL;
        if (!token_is(p, ")") && token_expect(p, ","))
            return NULL;
    }
    if (lex_next(p))
        return NULL;
    p->loops = 0;
    node->a = parse_body(p, ends);
    p->loops = loops;
    return node->a && !token_expect(p, "endmacro") ? node : NULL;
}

/* Parses the generation tag, which marks the model's turns for training; the tag is replaced by its body. */
static struct node *parse_generation(struct parser *p)
{
    static const char *const ends[] = { "endgeneration", NULL };
    struct node *body = lex_next(p) ? NULL : parse_body(p, ends);
    return body && !token_expect(p, "endgeneration") ? body : NULL;
}

static struct node *parse_jump(struct parser *p)
{
    struct node *node = node_new(p, token_is(p, "break") ? NODE_BREAK : NODE_CONTINUE);
    if (!p->loops) {
        parse_fail(p, "break or continue outside of a loop");
        return NULL;
    }
    return node && !lex_next(p) ? node : NULL;
}

static struct node *parse_statement(struct parser *p)
{
    static const struct { const char *word; struct node *(*parse)(struct parser *); } statements[] = {
        { "if", parse_if }, { "for", parse_for }, { "set", parse_set }, { "macro", parse_macro },
        { "generation", parse_generation }, { "break", parse_jump }, { "continue", parse_jump },
    };
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (token_is(p, statements[i].word)) {
            struct node *node = statements[i].parse(p);
            return node && !end_tag(p) ? node : NULL;
        }
    parse_fail(p, "the statement \"%.*s\" is not supported here", p->token.bytes > 40 ? 40 : (int)p->token.bytes,
               p->token.text);
    return NULL;
}

static bool ends_with(const struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (token_is(p, *ends))
            return true;
    return false;
}

/* Parses text and tags up to one of `ends`; ends NULL: up to the end of the source. */
static struct node *parse_block(struct parser *p, const char *const *ends)
{
    struct node *block = node_new(p, NODE_BLOCK);
    int line = p->line;
    while (block) {
        struct string text;
        enum tag_kind tag;
        if (lex_text(p, &text, &tag) || (text.bytes && block_put(p, block, NODE_TEXT, &text, NULL)))
            return NULL;
        if (tag == TAG_STATEMENT) {
            if (ends_with(p, ends))
                return block;
            if (node_put(p, block, parse_statement(p)))
                return NULL;
        } else if (tag == TAG_OUTPUT) {
            struct node *value = parse_tuple(p);
            if (!value || end_tag(p) || block_put(p, block, NODE_OUTPUT, NULL, value))
                return NULL;
        } else if (p->at >= p->bytes) {
            if (!ends)
                return block;
            parse_fail(p, "the block that begins on line %d has no %s", line, ends[0]);
            return NULL;
        }
    }
    return NULL;
}

struct node *parse_template(struct parser *p)
{
    return parse_block(p, NULL);
}
