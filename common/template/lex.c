#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/template/internal.h"

int parse_fail(const struct parser *p, const char *format, ...)
{
    char what[300];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_set(p->err, ERR_INPUT, "chat template, line %d: %s", p->line, what);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool starts(const struct parser *p, size_t at, const char *what)
{
    size_t length = strlen(what);
    return p->bytes - at >= length && !memcmp(p->source + at, what, length);
}

static void advance(struct parser *p, size_t to)
{
    for (; p->at < to; p->at++)
        p->line += p->source[p->at] == '\n';
}

/* Strips after a statement or comment (not after an output): all white space with `-`, otherwise one newline. */
static void strip_after_tag(struct parser *p, char sign, bool trims_newline)
{
    p->line_start = false;
    if (sign == '-') {
        size_t end = p->at;
        while (end < p->bytes && is_space(p->source[end]))
            end++;
        p->line_start = end > p->at && p->source[end - 1] == '\n';
        advance(p, end);
    } else if (sign != '+' && trims_newline && p->at < p->bytes && p->source[p->at] == '\n') {
        advance(p, p->at + 1);
        p->line_start = true;
    }
}

/* Strips the text before a tag: all white space with `-`, otherwise (statements, comments) that since the start of the line. */
static size_t text_end(const struct parser *p, size_t begin, size_t end, char sign, bool is_output)
{
    if (sign == '-') {
        while (end > begin && is_space(p->source[end - 1]))
            end--;
        return end;
    }
    if (sign == '+' || is_output)
        return end;
    size_t start = end;
    while (start > begin && p->source[start - 1] != '\n' && is_space(p->source[start - 1]))
        start--;
    if (start > begin ? p->source[start - 1] == '\n' : p->line_start)
        return start;
    return end;
}

static int skip_comment(struct parser *p)
{
    size_t at = p->at + 2;
    while (at < p->bytes && !starts(p, at, "#}"))
        at++;
    if (at >= p->bytes)
        return parse_fail(p, "a comment that does not end");
    char sign = at > p->at + 2 ? p->source[at - 1] : ' ';
    advance(p, at + 2);
    strip_after_tag(p, sign, true);
    return 0;
}

static int append(struct parser *p, struct string *text, size_t begin, size_t end)
{
    if (begin == end)
        return 0;
    char *joined = pool_alloc(p->pool, text->bytes + (end - begin), 1, p->err);
    if (!joined)
        return -1;
    if (text->bytes)
        memcpy(joined, text->data, text->bytes);
    memcpy(joined + text->bytes, p->source + begin, end - begin);
    text->data = joined;
    text->bytes += end - begin;
    return 0;
}

int lex_text(struct parser *p, struct string *text, enum tag_kind *tag)
{
    *text = (struct string){0};
    *tag = TAG_NONE;
    while (p->at < p->bytes) {
        size_t begin = p->at, at = begin;
        while (at < p->bytes && !(p->source[at] == '{' && at + 1 < p->bytes && strchr("{%#", p->source[at + 1])))
            at++;
        if (at == p->bytes) {
            advance(p, at);
            return append(p, text, begin, at);
        }
        char kind = p->source[at + 1], sign = at + 2 < p->bytes ? p->source[at + 2] : ' ';
        if (append(p, text, begin, text_end(p, begin, at, sign, kind == '{')))
            return -1;
        advance(p, at);
        if (kind == '#') {
            if (skip_comment(p))
                return -1;
            if (text->bytes)                           /* text before a comment is a text of its own, as in the reference */
                return 0;
            continue;
        }
        *tag = p->tag = kind == '{' ? TAG_OUTPUT : TAG_STATEMENT;
        p->nesting = 0;
        advance(p, at + 2 + (sign == '-' || sign == '+'));
        return lex_next(p);
    }
    return 0;
}

/* Reads a quoted string and resolves its escapes. */
static int lex_string(struct parser *p)
{
    static const char from[] = "ntr\\'\"bfva0", to[] = "\n\t\r\\'\"\b\f\v\a";
    char quote = p->source[p->at];
    size_t at = p->at + 1, n = 0, end = at;
    while (end < p->bytes && p->source[end] != quote)
        end += p->source[end] == '\\' ? 2 : 1;
    if (end >= p->bytes)
        return parse_fail(p, "a string that does not end");
    char *made = pool_alloc(p->pool, end - at + 1, 1, p->err);
    if (!made)
        return -1;
    while (at < p->bytes && p->source[at] != quote) {
        char c = p->source[at++];
        if (c == '\\' && at < p->bytes) {
            const char *known = strchr(from, p->source[at]);
            int digits = p->source[at] == 'x' ? 2 : p->source[at] == 'u' ? 4 : p->source[at] == 'U' ? 8 : 0;
            if (p->source[at] == '\n') {
                at++;
                continue;
            }
            if (digits) {
                uint32_t code = 0;
                int i = 1;
                for (; i <= digits && at + (size_t)i < p->bytes && isxdigit((unsigned char)p->source[at + (size_t)i]); i++) {
                    int digit = tolower((unsigned char)p->source[at + (size_t)i]);
                    code = code << 4 | (uint32_t)(isdigit(digit) ? digit - '0' : digit - 'a' + 10);
                }
                if (i <= digits || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
                    return parse_fail(p, "a string with a faulty \\%c escape", p->source[at]);
                n += (size_t)utf8_put(made + n, code);         /* the character is never longer than its escape */
                at += 1 + (size_t)digits;
                continue;
            }
            if (known && *known) {
                made[n++] = to[known - from];
                at++;
                continue;
            }
        }
        made[n++] = c;
    }
    p->token = (struct token){ .kind = TOKEN_STRING, .text = made, .bytes = n, .line = p->line };
    advance(p, at + 1);
    return 0;
}

static void lex_number(struct parser *p)
{
    size_t at = p->at;
    p->token = (struct token){ .kind = TOKEN_INTEGER, .text = p->source + at, .line = p->line };
    while (at < p->bytes && (isdigit((unsigned char)p->source[at]) || p->source[at] == '_'))
        at++;
    if (at + 1 < p->bytes && p->source[at] == '.' && isdigit((unsigned char)p->source[at + 1])) {
        p->token.kind = TOKEN_FLOAT;
        at++;
        while (at < p->bytes && isdigit((unsigned char)p->source[at]))
            at++;
    }
    if (at < p->bytes && (p->source[at] | 32) == 'e') {
        size_t digits = at + 1;
        if (digits < p->bytes && strchr("+-", p->source[digits]))
            digits++;
        if (digits < p->bytes && isdigit((unsigned char)p->source[digits])) {
            p->token.kind = TOKEN_FLOAT;
            for (at = digits; at < p->bytes && isdigit((unsigned char)p->source[at]);)
                at++;
        }
    }
    p->token.bytes = at - p->at;
    p->at = at;
}

static int lex_operator(struct parser *p)
{
    static const char *const two[] = { "//", "**", "==", "!=", "<=", ">=" };
    struct token *token = &p->token;
    char c = p->source[p->at];
    *token = (struct token){ .kind = TOKEN_OPERATOR, .text = p->source + p->at, .bytes = 1, .line = p->line };
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (starts(p, p->at, two[i]))
            token->bytes = 2;
    if (token->bytes == 1 && (!c || !strchr("+-*/%~<>=.,:|()[]{}", c)))
        return parse_fail(p, "unexpected character \"%.1s\"", p->source + p->at);
    memcpy(token->operator, p->source + p->at, token->bytes);
    if (token->bytes == 1 && strchr("([{", c))
        p->nesting++;
    if (token->bytes == 1 && strchr(")]}", c) && p->nesting)
        p->nesting--;
    p->at += token->bytes;
    return 0;
}

int lex_next(struct parser *p)
{
    size_t at = p->at;
    while (at < p->bytes && is_space(p->source[at]))
        at++;
    advance(p, at);
    if (at >= p->bytes)
        return parse_fail(p, "a tag that does not end");
    char sign = p->source[at];
    size_t close = at + (sign == '-' || sign == '+');
    if (!p->nesting && starts(p, close, p->tag == TAG_OUTPUT ? "}}" : "%}")) {
        p->token = (struct token){ .kind = TOKEN_END_TAG, .text = "end of the tag", .bytes = 14, .line = p->line };
        advance(p, close + 2);
        strip_after_tag(p, sign, p->tag == TAG_STATEMENT);
        return 0;
    }
    if (sign == '"' || sign == '\'')
        return lex_string(p);
    if (isdigit((unsigned char)sign)) {
        lex_number(p);
        return 0;
    }
    if (isalpha((unsigned char)sign) || sign == '_') {
        p->token = (struct token){ .kind = TOKEN_NAME, .text = p->source + at, .line = p->line };
        while (p->at < p->bytes && (isalnum((unsigned char)p->source[p->at]) || p->source[p->at] == '_'))
            p->at++;
        p->token.bytes = p->at - at;
        return 0;
    }
    return lex_operator(p);
}

bool token_is(const struct parser *p, const char *what)
{
    const struct token *token = &p->token;
    return (token->kind == TOKEN_NAME || token->kind == TOKEN_OPERATOR) && token->bytes == strlen(what) &&
           !memcmp(token->text, what, token->bytes);
}

int token_expect(struct parser *p, const char *what)
{
    if (!token_is(p, what))
        return parse_fail(p, "\"%s\" expected, \"%.*s\" found", what, p->token.bytes > 40 ? 40 : (int)p->token.bytes,
                          p->token.text);
    return lex_next(p);
}

const char *token_name(struct parser *p)
{
    if (p->token.kind != TOKEN_NAME) {
        parse_fail(p, "a name expected, \"%.*s\" found", p->token.bytes > 40 ? 40 : (int)p->token.bytes, p->token.text);
        return NULL;
    }
    char *name = pool_alloc(p->pool, p->token.bytes + 1, 1, p->err);
    if (!name)
        return NULL;
    memcpy(name, p->token.text, p->token.bytes);
    return lex_next(p) ? NULL : name;
}
