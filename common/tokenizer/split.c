#include <string.h>

#include <utf8proc.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"

/* The built-in pattern of ByteLevel (use_regex), from GPT-2. */
const char split_byte_level_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

void pieces_free(struct pieces *pieces)
{
    text_free(&pieces->text);
    mem_free(&pieces->spans);
    pieces->n = pieces->room = 0;
}

void split_scratch_free(struct split_scratch *scratch)
{
    regex_scratch_free(&scratch->regex);
    mem_free(&scratch->cuts);
}

static int span_put(struct pieces *pieces, size_t begin, size_t end, struct err *err)
{
    if (begin == end)
        return 0;
    if (mem_grow(&pieces->spans, &pieces->room, pieces->n + 1, sizeof *pieces->spans, err))
        return -1;
    pieces->spans[pieces->n++] = (struct span){ begin, end };
    return 0;
}

static int cut_put(struct split_scratch *s, size_t begin, size_t end, bool match, struct err *err)
{
    if (mem_grow(&s->cuts, &s->room, s->n + 1, sizeof *s->cuts, err))
        return -1;
    s->cuts[s->n++] = (struct split_cut){ begin, end, match };
    return 0;
}

void needle_free(struct needle *needle)
{
    regex_free(&needle->regex);
    mem_free(&needle->literal);
}

static int find(const struct needle *needle, struct regex_scratch *scratch, const char *text, size_t bytes, size_t from,
                struct span *at, struct err *err)
{
    if (needle->regex.code)
        return regex_find(&needle->regex, scratch, text, bytes, from, at, err);
    const char *found = memmem(text + from, bytes - from, needle->literal, needle->literal_bytes);
    if (!found)
        return 0;
    at->begin = (size_t)(found - text);
    at->end = at->begin + needle->literal_bytes;
    return 1;
}

int needle_next(const struct needle *needle, struct regex_scratch *scratch, const char *text, size_t bytes,
                struct needle_walk *walk, struct span *at, struct err *err)
{
    int rc = 0;
    while (walk->from <= bytes && (rc = find(needle, scratch, text, bytes, walk->from, at, err)) > 0) {
        if (at->begin < at->end || !walk->any || at->end != walk->last) {
            walk->from = walk->last = at->end;
            walk->any = true;
            return 1;
        }
        walk->from += walk->from < bytes ? (size_t)utf8_next(text + walk->from, bytes - walk->from, NULL) : 1;
    }
    return rc < 0 ? -1 : 0;
}

/* Matches and the gaps between them. */
static int find_all(const struct split_step *step, struct split_scratch *s, const char *text, size_t bytes, struct err *err)
{
    struct needle_walk walk = {0};
    size_t gap = 0;
    struct span at;
    int rc;
    s->n = 0;
    while ((rc = needle_next(&step->needle, &s->regex, text, bytes, &walk, &at, err)) > 0) {
        if ((gap < at.begin && cut_put(s, gap, at.begin, false, err)) || cut_put(s, at.begin, at.end, true, err))
            return -1;
        gap = at.end;
    }
    if (rc < 0)
        return -1;
    return gap < bytes ? cut_put(s, gap, bytes, false, err) : 0;
}

/* Joins each match to a neighbour: the text before it or the text after it; never two matches in a row. */
static void merge_cuts(struct split_scratch *s, bool forwards)
{
    size_t n = s->n, kept = 0;
    bool match_before = false;
    for (size_t i = 0; i < n; i++) {
        size_t from = forwards ? i : n - 1 - i, to = forwards ? kept : n - 1 - kept;
        struct split_cut cut = s->cuts[from];
        if (cut.match && !match_before && kept) {
            struct split_cut *last = &s->cuts[forwards ? kept - 1 : n - kept];
            if (forwards)
                last->end = cut.end;
            else
                last->begin = cut.begin;
        } else {
            s->cuts[to] = cut;
            kept++;
        }
        match_before = cut.match;
    }
    if (!forwards)
        memmove(s->cuts, s->cuts + (n - kept), kept * sizeof *s->cuts);
    s->n = kept;
}

static int put_cuts(const struct split_step *step, struct split_scratch *s, size_t base, struct pieces *out, struct err *err)
{
    for (size_t i = 0; i < s->n; i++)
        s->cuts[i].match = s->cuts[i].match != step->invert;
    if (step->behavior == SPLIT_MERGED_WITH_PREVIOUS || step->behavior == SPLIT_MERGED_WITH_NEXT)
        merge_cuts(s, step->behavior == SPLIT_MERGED_WITH_PREVIOUS);
    for (size_t i = 0; i < s->n; i++) {
        size_t begin = s->cuts[i].begin, end = s->cuts[i].end;
        if (step->behavior == SPLIT_REMOVED && s->cuts[i].match)
            continue;
        if (step->behavior == SPLIT_CONTIGUOUS)
            while (i + 1 < s->n && s->cuts[i + 1].match == s->cuts[i].match)
                end = s->cuts[++i].end;
        if (span_put(out, base + begin, base + end, err))
            return -1;
    }
    return 0;
}

int split_pattern(const struct split_step *step, struct split_scratch *s, const struct pieces *in, struct pieces *out,
                  struct err *err)
{
    text_clear(&out->text);
    out->n = 0;
    if (text_put(&out->text, in->text.data, in->text.length, err))
        return -1;
    for (size_t i = 0; i < in->n; i++) {
        struct span span = in->spans[i];
        if (find_all(step, s, in->text.data + span.begin, span.end - span.begin, err) ||
            put_cuts(step, s, span.begin, out, err))
            return -1;
    }
    return 0;
}

bool is_numeric(uint32_t code)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(uint32_t code)
{
    if (code < 0x80)
        return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
               (code >= '{' && code <= '~');
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_PC: case UTF8PROC_CATEGORY_PD: case UTF8PROC_CATEGORY_PS: case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI: case UTF8PROC_CATEGORY_PF: case UTF8PROC_CATEGORY_PO:
        return true;
    default:
        return false;
    }
}

/* Uses single characters of a kind as matches. */
int split_characters(const struct split_step *step, struct split_scratch *s, const struct pieces *in, struct pieces *out,
                 struct err *err)
{
    text_clear(&out->text);
    out->n = 0;
    if (text_put(&out->text, in->text.data, in->text.length, err))
        return -1;
    for (size_t i = 0; i < in->n; i++) {
        const char *text = in->text.data + in->spans[i].begin;
        size_t bytes = in->spans[i].end - in->spans[i].begin, gap = 0;
        s->n = 0;
        for (size_t at = 0; at < bytes;) {
            uint32_t code = 0;
            size_t next = at + (size_t)utf8_next(text + at, bytes - at, &code);
            if (step->is(code)) {
                if ((gap < at && cut_put(s, gap, at, false, err)) || cut_put(s, at, next, true, err))
                    return -1;
                gap = next;
            }
            at = next;
        }
        if ((gap < bytes && cut_put(s, gap, bytes, false, err)) || put_cuts(step, s, in->spans[i].begin, out, err))
            return -1;
    }
    return 0;
}

uint32_t byte_level_char(uint8_t byte)
{
    if (byte < 33)
        return 256u + byte;
    if (byte >= 127 && byte <= 160)
        return 256u + 33u + (byte - 127u);
    return byte == 173 ? 256u + 67u : byte;
}

int byte_level_byte(uint32_t code)
{
    if (code >= 256) {
        if (code < 256 + 33)
            return (int)(code - 256);
        if (code < 256 + 67)
            return (int)(code - 256 - 33 + 127);
        return code == 256 + 67 ? 173 : -1;
    }
    return byte_level_char((uint8_t)code) == code ? (int)code : -1;
}

/* Splits (use_regex) and maps every byte to a letter of the byte-level alphabet. */
int split_byte_level(const struct split_step *step, struct split_scratch *s, const struct pieces *in, struct pieces *out,
                     struct err *err)
{
    struct text spaced = {0};
    int rc = -1;
    text_clear(&out->text);
    out->n = 0;
    for (size_t i = 0; i < in->n; i++) {
        const char *text = in->text.data + in->spans[i].begin;
        size_t bytes = in->spans[i].end - in->spans[i].begin;
        if (step->add_prefix_space && text[0] != ' ') {
            text_clear(&spaced);
            if (text_putc(&spaced, ' ', err) || text_put(&spaced, text, bytes, err))
                goto done;
            text = spaced.data;
            bytes = spaced.length;
        }
        s->n = 0;
        if (step->use_regex ? find_all(step, s, text, bytes, err) : cut_put(s, 0, bytes, false, err))
            goto done;
        for (size_t k = 0; k < s->n; k++) {
            size_t begin = out->text.length;
            for (size_t at = s->cuts[k].begin; at < s->cuts[k].end; at++) {
                char letter[4];
                if (text_put(&out->text, letter, (size_t)utf8_put(letter, byte_level_char((uint8_t)text[at])), err))
                    goto done;
            }
            if (span_put(out, begin, out->text.length, err))
                goto done;
        }
    }
    rc = 0;
done:
    text_free(&spaced);
    return rc;
}

/* Replaces spaces by the literal and prepends it, unless the text already begins with it (with first_only, only at the start of
 * the input). Each literal begins a piece (use_regex); otherwise nothing is split. */
int split_metaspace(const struct split_step *step, struct split_scratch *s, const struct pieces *in, struct pieces *out,
                    struct err *err)
{
    const char *mark = step->needle.literal;
    size_t length = step->needle.literal_bytes;
    (void)s;
    text_clear(&out->text);
    out->n = 0;
    for (size_t i = 0; i < in->n; i++) {
        const char *text = in->text.data + in->spans[i].begin;
        size_t bytes = in->spans[i].end - in->spans[i].begin, begin = out->text.length;
        bool marked = text[0] == ' ' || (bytes >= length && !memcmp(text, mark, length));
        bool here = step->add_prefix_space && (!step->first_only || (in->at_start && !in->spans[i].begin));
        if (!marked && here && text_put(&out->text, mark, length, err))
            return -1;
        for (size_t at = 0; at < bytes;) {
            const char *space = memchr(text + at, ' ', bytes - at);
            size_t end = space ? (size_t)(space - text) : bytes;
            if (text_put(&out->text, text + at, end - at, err) || (space && text_put(&out->text, mark, length, err)))
                return -1;
            at = end + (space != NULL);
        }
        while (step->use_regex) {
            const char *next = memmem(out->text.data + begin + 1, out->text.length - begin - 1, mark, length);
            if (!next)
                break;
            size_t end = (size_t)(next - out->text.data);
            if (span_put(out, begin, end, err))
                return -1;
            begin = end;
        }
        if (span_put(out, begin, out->text.length, err))
            return -1;
    }
    return 0;
}
