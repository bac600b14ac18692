#include <string.h>

#include <utf8proc.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"

int origins_put(struct origins *origins, size_t end, bool from_template, struct err *err)
{
    struct origin_run *last = origins->n ? &origins->runs[origins->n - 1] : NULL;
    if (end == (last ? last->end : 0))
        return 0;
    if (last && last->from_template == from_template) {
        last->end = end;
        return 0;
    }
    if (mem_grow(&origins->runs, &origins->room, origins->n + 1, sizeof *origins->runs, err))
        return -1;
    origins->runs[origins->n++] = (struct origin_run){ end, from_template };
    return 0;
}

int origins_map(const struct origins *origins, size_t *run, size_t begin, size_t end, size_t out_begin, size_t out_end,
                bool same, struct origins *out, struct err *err)
{
    bool from_template = true;
    while (origins->runs[*run].end <= begin)
        ++*run;
    for (;; ++*run) {
        const struct origin_run *r = &origins->runs[*run];
        from_template = from_template && r->from_template;
        if (same && origins_put(out, out_begin + (r->end < end ? r->end : end) - begin, r->from_template, err))
            return -1;
        if (r->end >= end)
            break;
    }
    return same ? 0 : origins_put(out, out_end, from_template, err);
}

void added_trie_start(struct added_trie *trie)
{
    for (int i = 0; i < 256; i++)
        trie->roots[i] = -1;
}

static int32_t node_find(const struct added_trie *trie, int32_t first, uint8_t byte)
{
    while (first >= 0 && trie->nodes[first].byte != byte)
        first = trie->nodes[first].next;
    return first;
}

static int node_add(struct added_trie *trie, uint8_t byte, int32_t next, int32_t *out, struct err *err)
{
    if (trie->n >= INT32_MAX || mem_grow(&trie->nodes, &trie->room, trie->n + 1, sizeof *trie->nodes, err))
        return err_memory(err);
    trie->nodes[trie->n] = (struct added_node){ .byte = byte, .child = -1, .next = next, .token = -1 };
    *out = (int32_t)trie->n++;
    return 0;
}

int added_trie_put(struct added_trie *trie, const char *content, size_t bytes, int32_t token, struct err *err)
{
    const unsigned char *p = (const unsigned char *)content;
    int32_t at = trie->roots[p[0]];
    if (at < 0) {
        if (node_add(trie, p[0], -1, &at, err))
            return -1;
        trie->roots[p[0]] = at;
    }
    for (size_t i = 1; i < bytes; i++) {
        int32_t child = node_find(trie, trie->nodes[at].child, p[i]);
        if (child < 0) {
            if (node_add(trie, p[i], trie->nodes[at].child, &child, err))
                return -1;
            trie->nodes[at].child = child;
        }
        at = child;
    }
    if (trie->nodes[at].token >= 0)
        return err_set(err, ERR_INPUT, "the added token occurs twice: \"%.40s\"", content);
    trie->nodes[at].token = token;
    return 0;
}

int32_t added_child(const struct added_trie *trie, int32_t node, uint8_t byte)
{
    return node_find(trie, trie->nodes[node].child, byte);
}

int32_t added_longest(const struct added_trie *trie, const char *text, size_t at, size_t limit, size_t *end)
{
    int32_t found = -1, node = trie->roots[(unsigned char)text[at]];
    while (node >= 0) {
        at++;
        if (trie->nodes[node].token >= 0) {
            found = trie->nodes[node].token;
            *end = at;
        }
        node = at < limit ? added_child(trie, node, (uint8_t)text[at]) : -1;
    }
    return found;
}

/* Returns whether a character has the property White_Space of Unicode. */
bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Returns whether a character matches \w of Rust's regex: Alphabetic, marks, decimal digits, connectors, joiners. Circled
 * and squared letters are Alphabetic though their category is So. */
static bool is_word(uint32_t c)
{
    if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
        (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D)
        return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT: case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}

static size_t before(const char *text, size_t at, uint32_t *code)
{
    do
        at--;
    while (at && (text[at] & 0xC0) == 0x80);
    utf8_next(text + at, 4, code);
    return at;
}

static bool is_isolated(const char *text, size_t bytes, size_t begin, size_t end)
{
    uint32_t code = 0;
    if (begin) {
        before(text, begin, &code);
        if (is_word(code))
            return false;
    }
    return !(end < bytes && utf8_next(text + end, bytes - end, &code) && is_word(code));
}

static int cut_put(struct added_cuts *out, size_t begin, size_t end, int32_t token, struct err *err)
{
    if (mem_grow(&out->cuts, &out->room, out->n + 1, sizeof *out->cuts, err))
        return -1;
    out->cuts[out->n++] = (struct added_cut){ begin, end, token };
    return 0;
}

/* Finds added tokens, leftmost and longest, like an Aho-Corasick automaton of that kind: a match that is then discarded (not
 * a single word, or special in content) still consumes its bytes. */
int added_find(const struct added_trie *trie, const struct added_token *tokens, const char *text, size_t bytes,
               const struct origins *origins, struct added_cuts *out, struct err *err)
{
    size_t start = 0, run = 0;
    out->n = 0;
    for (size_t at = 0; at < bytes;) {
        size_t end = 0, begin = at;
        while (origins->runs[run].end <= at)
            run++;
        /* All bytes of a token have one origin. */
        int32_t found = added_longest(trie, text, at, origins->runs[run].end, &end);
        if (found < 0) {
            at++;
            continue;
        }
        const struct added_token *token = &tokens[found];
        at = end;
        if ((token->special && !origins->runs[run].from_template) ||
            (token->single_word && !is_isolated(text, bytes, begin, end)))
            continue;
        uint32_t code;
        size_t previous, next;
        if (token->lstrip && begin < start)         /* the token before took all of this white space */
            begin = start;
        if (token->rstrip && end < start)
            end = start;
        while (token->lstrip && begin > start && (previous = before(text, begin, &code), is_space(code)))
            begin = previous;
        while (token->rstrip && end < bytes && (next = (size_t)utf8_next(text + end, bytes - end, &code), is_space(code)))
            end += next;
        if (end <= begin)
            continue;
        if ((start < begin && cut_put(out, start, begin, -1, err)) || cut_put(out, begin, end, token->id, err))
            return -1;
        start = end;
    }
    return start < bytes ? cut_put(out, start, bytes, -1, err) : 0;
}
