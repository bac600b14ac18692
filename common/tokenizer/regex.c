/* Patterns of tokenizer.json are written for Oniguruma (Ruby syntax); here they run on PCRE2. Most constructs mean the same;
 * this file rewrites those that do not and refuses those that cannot be rewritten:
 *
 *   \s \S \w \W \d \D   become explicit classes (PCRE2's \s has U+180E, its \w lacks marks)
 *   \p{Name}            general categories as they are; scripts become \p{sc:Name}, as PCRE2 10.40 and later read a bare
 *                       name as script extensions
 *   \uHHHH              becomes \x{HHHH}
 *   \b \B               become lookarounds with the class of \w
 *   ^ $                 match at line borders always: PCRE2_MULTILINE
 *   [a[b]] [a&&b]       classes in classes and their intersections become alternatives and lookaheads of plain classes
 *   {m,n}+              repeats in Ruby, is possessive in PCRE2: refused, like back references, options other than i, comments,
 *                       \h, \K, \G, \R, \X
 *
 * A search for a run of white space up to an end of line (\s+$) that fails at the beginning of the run fails everywhere in it.
 * The other positions are therefore skipped; trying them would take time quadratic in the run's length. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"

#define SPACES "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define NOT_SPACES "\\x00-\\x08\\x0E-\\x1F\\x21-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}" \
                   "\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}"
/* Alphabetic characters outside the category of letters: letter numbers, circled and squared letters. */
#define WORDS "\\p{L}\\p{M}\\p{Nd}\\p{Pc}\\p{Nl}" \
              "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"

struct pattern {
    const char *text;
    size_t bytes, at;
    struct text out;
};

static int refuse(const struct pattern *p, size_t from, const char *why, struct err *err)
{
    size_t rest = p->bytes - from;
    return err_set(err, ERR_INPUT, "pattern, offset %zu: %s at \"%.*s\" is not supported", from, why,
                   rest > 12 ? 12 : (int)rest, p->text + from);
}

static int peek(const struct pattern *p, size_t ahead)
{
    return p->at + ahead < p->bytes ? (unsigned char)p->text[p->at + ahead] : -1;
}

static bool is_category(const char *name, size_t bytes)
{
    static const char *const kinds[] = { "LultmoC", "Mnce", "Ndlo", "Pcdseifo", "Smcko", "Zslp", "Ccfson" };
    if (bytes < 1 || bytes > 2)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (name[0] == kinds[i][0])
            return bytes == 1 || (name[1] && islower((unsigned char)name[1]) && strchr(kinds[i] + 1, name[1]));
    return false;
}

/* Parses \p{...} and \P{...}; p->at is at the p. */
static int put_property(struct pattern *p, struct err *err)
{
    size_t from = p->at - 1, begin, end;
    bool negated = p->text[p->at] == 'P';
    if (peek(p, 1) != '{')
        return refuse(p, from, "a Unicode property without braces", err);
    begin = p->at + 2;
    if (begin < p->bytes && p->text[begin] == '^') {
        negated = !negated;
        begin++;
    }
    for (end = begin; end < p->bytes && (isalpha((unsigned char)p->text[end]) || p->text[end] == '_'); end++)
        ;
    if (end == begin || end == p->bytes || p->text[end] != '}' || end - begin > 40)
        return refuse(p, from, "this Unicode property", err);
    const char *script = is_category(p->text + begin, end - begin) ? "" : "sc:";
#if PCRE2_MAJOR == 10 && PCRE2_MINOR < 40
    script = "";
#endif
    p->at = end + 1;
    return text_printf(&p->out, err, "\\%c{%s%.*s}", negated ? 'P' : 'p', script, (int)(end - begin), p->text + begin);
}

static int put_hex(struct pattern *p, struct err *err)
{
    size_t from = p->at - 1, end = p->at + 1;
    uint32_t code = 0;
    bool braces = p->text[p->at] == 'x' && peek(p, 1) == '{';
    size_t max = braces ? 6 : p->text[p->at] == 'u' ? 4 : 2, min = p->text[p->at] == 'u' ? 4 : 1, n = 0;
    if (braces)
        end++;
    for (; n < max && end < p->bytes && isxdigit((unsigned char)p->text[end]); n++, end++) {
        int c = tolower((unsigned char)p->text[end]);
        code = code * 16 + (uint32_t)(isdigit(c) ? c - '0' : c - 'a' + 10);
    }
    if (n < min || (braces && (end >= p->bytes || p->text[end++] != '}')) || code > 0x10FFFF ||
        (code >= 0xD800 && code <= 0xDFFF) || (!braces && p->text[p->at] == 'x' && code > 0x7F))
        return refuse(p, from, "this character code", err);
    p->at = end;
    return text_printf(&p->out, err, "\\x{%X}", (unsigned)code);
}

static int put_escape(struct pattern *p, bool in_class, struct err *err)
{
    static const struct { char letter; const char *outside, *inside; } classes[] = {
        { 's', "[" SPACES "]", SPACES },     { 'S', "[^" SPACES "]", NOT_SPACES },
        { 'w', "[" WORDS "]", WORDS },       { 'W', "[^" WORDS "]", NULL },
        { 'd', "\\p{Nd}", "\\p{Nd}" },       { 'D', "\\P{Nd}", "\\P{Nd}" },
        { 'r', "\\x0D", "\\x0D" },           { 'n', "\\x0A", "\\x0A" },
        { 't', "\\x09", "\\x09" },           { 'f', "\\x0C", "\\x0C" },
        { 'v', "\\x0B", "\\x0B" },           { 'A', "\\A", NULL },
        { 'z', "\\z", NULL },                { 'Z', "\\Z", NULL },
        { 'b', "(?:(?<=[" WORDS "])(?![" WORDS "])|(?<![" WORDS "])(?=[" WORDS "]))", NULL },
        { 'B', "(?:(?<=[" WORDS "])(?=[" WORDS "])|(?<![" WORDS "])(?![" WORDS "]))", NULL },
    };
    size_t from = p->at++;
    int c = peek(p, 0);
    if (c < 0)
        return refuse(p, from, "a backslash at the end", err);
    if (c == 'p' || c == 'P')
        return put_property(p, err);
    if (c == 'x' || c == 'u')
        return put_hex(p, err);
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (c == classes[i].letter) {
            const char *text = in_class ? classes[i].inside : classes[i].outside;
            if (!text)
                return refuse(p, from, "this escape in a class", err);
            p->at++;
            return text_puts(&p->out, text, err);
        }
    if (isalnum(c) || c >= 0x80)
        return refuse(p, from, "this escape", err);
    p->at++;
    return text_putc(&p->out, '\\', err) || text_putc(&p->out, (char)c, err) ? -1 : 0;
}

/* Parses one class: [, an optional ^, its parts, ]. Plain items and nested classes are alternatives; && begins another list
 * of alternatives, and a character must be in every list. They become (?:(?=list)list), a negated one (?:(?!list)any). */
struct class_parts {
    struct text done, list, items;     /* lookaheads so far; alternatives since the last &&; plain items of the last one */
    bool nested;
};

static int put_class_into(struct pattern *p, int depth, struct text *out, struct err *err);

static int end_items(struct class_parts *c, struct err *err)
{
    if (!c->items.length)
        return 0;
    int rc = text_printf(&c->list, err, "%s[%s]", c->list.length ? "|" : "", c->items.data);
    text_clear(&c->items);
    return rc;
}

/* Reads up to the closing bracket. */
static int read_parts(struct pattern *p, int depth, struct class_parts *c, struct err *err)
{
    while (p->at < p->bytes && p->text[p->at] != ']') {
        char letter = p->text[p->at];
        int rc = 0;
        if (letter == '\\') {
            struct text outer = p->out;
            p->out = c->items;
            rc = put_escape(p, true, err);
            c->items = p->out;
            p->out = outer;
        } else if (letter == '[' && peek(p, 1) == ':') {
            return refuse(p, p->at, "a named class", err);
        } else if (letter == '[') {
            c->nested = true;
            rc = end_items(c, err) || (c->list.length && text_putc(&c->list, '|', err)) ||
                 put_class_into(p, depth + 1, &c->list, err);
        } else if (letter == '&' && peek(p, 1) == '&') {
            c->nested = true;
            p->at += 2;
            if (end_items(c, err))
                return -1;
            if (!c->list.length)
                return refuse(p, p->at - 2, "an intersection with an empty class", err);
            rc = text_printf(&c->done, err, "(?=%s)", c->list.data);
            text_clear(&c->list);
        } else {
            p->at++;
            rc = text_putc(&c->items, letter, err);
        }
        if (rc)
            return -1;
    }
    return 0;
}

static int put_class_into(struct pattern *p, int depth, struct text *out, struct err *err)
{
    struct class_parts c = {0};
    size_t from = p->at++;
    bool negated = peek(p, 0) == '^';
    int rc = -1;
    p->at += negated;
    if (peek(p, 0) == ']' || depth > 8) {
        refuse(p, from, depth > 8 ? "a class nested deeper than 8" : "an empty class", err);
        goto done;
    }
    if (read_parts(p, depth, &c, err))
        goto done;
    if (p->at == p->bytes) {
        refuse(p, from, "a character class without its end", err);
        goto done;
    }
    p->at++;
    if (!c.nested) {
        rc = text_printf(out, err, "[%s%s]", negated ? "^" : "", c.items.data);
        goto done;
    }
    if (end_items(&c, err))
        goto done;
    if (!c.list.length) {
        refuse(p, from, "an intersection with an empty class", err);
        goto done;
    }
    const char *done = c.done.data ? c.done.data : "";
    rc = negated ? text_printf(out, err, "(?:(?!%s(?:%s))(?s:.))", done, c.list.data) :
         text_printf(out, err, "(?:%s(?:%s))", done, c.list.data);
done:
    text_free(&c.done);
    text_free(&c.list);
    text_free(&c.items);
    return rc;
}

static int put_class(struct pattern *p, struct err *err)
{
    return put_class_into(p, 0, &p->out, err);
}

static int put_group(struct pattern *p, struct err *err)
{
    static const char *const openings[] = { "(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:" };
    if (!p->at && p->bytes > 4 && !memcmp(p->text, "(?i)", 4)) {       /* further on, its reach differs */
        p->at += 4;
        return text_puts(&p->out, "(?i)", err);
    }
    if (peek(p, 1) == '*')
        return refuse(p, p->at, "a callout", err);
    if (peek(p, 1) != '?') {
        p->at++;
        return text_puts(&p->out, "(?:", err);                 /* nothing here reads captures */
    }
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        size_t length = strlen(openings[i]);
        if (p->bytes - p->at >= length && !memcmp(p->text + p->at, openings[i], length)) {
            p->at += length;
            return text_puts(&p->out, openings[i], err);
        }
    }
    return refuse(p, p->at, "this kind of group", err);
}

static int put_interval(struct pattern *p, struct err *err)
{
    size_t end = p->at + 1;
    while (end < p->bytes && (isdigit((unsigned char)p->text[end]) || p->text[end] == ','))
        end++;
    if (end == p->bytes || p->text[end] != '}' || end == p->at + 1 || !isdigit((unsigned char)p->text[p->at + 1]))
        return refuse(p, p->at, "this brace", err);
    if (end + 1 < p->bytes && p->text[end + 1] == '+')
        return refuse(p, p->at, "+ after an interval", err);
    if (text_put(&p->out, p->text + p->at, end + 1 - p->at, err))
        return -1;
    p->at = end + 1;
    return 0;
}

static int translate(struct pattern *p, struct err *err)
{
    if (p->bytes == 4 && !memcmp(p->text, "\\s+$", 4))
        return text_puts(&p->out, "(?:(?<![" SPACES "])|\\G)[" SPACES "]+$", err);
    while (p->at < p->bytes) {
        int rc;
        switch (p->text[p->at]) {
        case '\\': rc = put_escape(p, false, err); break;
        case '[':  rc = put_class(p, err); break;
        case '(':  rc = put_group(p, err); break;
        case '{':  rc = put_interval(p, err); break;
        default:   rc = text_putc(&p->out, p->text[p->at++], err);
        }
        if (rc)
            return -1;
    }
    return text_puts(&p->out, "", err);
}

int regex_compile(struct regex *out, const char *pattern, size_t bytes, struct err *err)
{
    struct pattern p = { .text = pattern, .bytes = bytes };
    pcre2_compile_context *context = NULL;
    int code, rc = -1;
    PCRE2_SIZE at;
    if (!bytes || bytes > TOKENIZER_PATTERN_BYTES || memchr(pattern, 0, bytes)) {
        err_set(err, ERR_INPUT, "a pattern must have 1 to %d bytes and no NUL", TOKENIZER_PATTERN_BYTES);
        goto done;
    }
    if (translate(&p, err))
        goto done;
    context = pcre2_compile_context_create(NULL);
    if (!context) {
        err_memory(err);
        goto done;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    out->code = pcre2_compile((PCRE2_SPTR)p.out.data, p.out.length,
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    if (!out->code) {
        char message[200] = "?";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        err_set(err, ERR_INPUT, "pattern \"%.60s\": %s", pattern, message);
        goto done;
    }
    pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE);          /* without a JIT the interpreter runs the pattern */
    rc = 0;
done:
    pcre2_compile_context_free(context);
    text_free(&p.out);
    return rc;
}

void regex_free(struct regex *regex)
{
    pcre2_code_free(regex->code);
    regex->code = NULL;
}

/* Limits of one search: far above the need of published tokenizers, and low enough to end within seconds. */
enum { MATCH_LIMIT = 20000000, DEPTH_LIMIT = 200000, HEAP_LIMIT_KIB = 262144, STACK_BYTES = 8 << 20 };

int regex_scratch_start(struct regex_scratch *s, struct err *err)
{
    s->data = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    if (!s->data || !s->context) {
        regex_scratch_free(s);
        return err_memory(err);
    }
    pcre2_set_match_limit(s->context, MATCH_LIMIT);
    pcre2_set_depth_limit(s->context, DEPTH_LIMIT);
    pcre2_set_heap_limit(s->context, HEAP_LIMIT_KIB);
    s->stack = pcre2_jit_stack_create(32768, STACK_BYTES, NULL);
    if (s->stack)
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return 0;
}

void regex_scratch_free(struct regex_scratch *s)
{
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    *s = (struct regex_scratch){0};
}

int regex_find(const struct regex *regex, struct regex_scratch *s, const char *text, size_t bytes, size_t from, struct span *at,
               struct err *err)
{
    int rc = pcre2_match(regex->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, s->data, s->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(regex->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->data, s->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        char message[200] = "?";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)message, sizeof message);
        return err_set(err, ERR_INPUT, "the tokenizer's pattern, at byte %zu of a text of %zu: %s", from, bytes, message);
    }
    PCRE2_SIZE *ovector = pcre2_get_ovector_pointer(s->data);
    *at = (struct span){ ovector[0], ovector[1] };
    return 1;
}
