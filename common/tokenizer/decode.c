#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"

/* ---- text of single tokens ---- */

/* Converts letters of the byte-level alphabet to bytes; a token with any other letter is copied unchanged. */
int decode_byte_level(const struct decoder_step *step, struct regex_scratch *scratch, const struct text *in, struct text *out,
                      struct err *err)
{
    size_t begin = out->length;
    (void)step, (void)scratch;
    for (size_t at = 0; at < in->length;) {
        uint32_t code = 0;
        at += (size_t)utf8_next(in->data + at, in->length - at, &code);
        int byte = byte_level_byte(code);
        if (byte < 0) {
            out->length = begin;
            return text_put(out, in->data, in->length, err);
        }
        if (text_putc(out, (char)byte, err))
            return -1;
    }
    return 0;
}

int decode_replace(const struct decoder_step *step, struct regex_scratch *scratch, const struct text *in, struct text *out,
                   struct err *err)
{
    struct needle_walk walk = {0};
    struct span match;
    size_t at = 0;
    int rc;
    while ((rc = needle_next(&step->needle, scratch, in->data, in->length, &walk, &match, err)) > 0) {
        if (text_put(out, in->data + at, match.begin - at, err) || text_put(out, step->content, step->content_bytes, err))
            return -1;
        at = match.end;
    }
    return rc < 0 ? -1 : text_put(out, in->data + at, in->length - at, err);
}

int decode_strip(const struct decoder_step *step, struct regex_scratch *scratch, const struct text *in, struct text *out,
                 struct err *err)
{
    size_t begin = 0, end = in->length, length = step->needle.literal_bytes;
    (void)scratch;
    for (int64_t i = 0; i < step->left && end - begin >= length; i++, begin += length)
        if (memcmp(in->data + begin, step->needle.literal, length))
            break;
    for (int64_t i = 0; i < step->right && end - begin >= length; i++, end -= length)
        if (memcmp(in->data + end - length, step->needle.literal, length))
            break;
    return text_put(out, in->data + begin, end - begin, err);
}

/* Returns the byte of a token <0xNN>; -1 for other texts. */
static int byte_of(const struct text *token)
{
    if (token->length != 6 || memcmp(token->data, "<0x", 3) || token->data[5] != '>' ||
        !isxdigit((unsigned char)token->data[3]) || !isxdigit((unsigned char)token->data[4]))
        return -1;
    return (int)strtol((const char[]){ token->data[3], token->data[4], '\0' }, NULL, 16);
}

int decode_vocabulary(struct tokenizer *t, struct err *err)
{
    struct regex_scratch scratch = {0};
    struct text now = {0}, next = {0};
    int rc = -1;
    t->byte_offsets = mem_alloc((size_t)t->bpe.size + 1, sizeof *t->byte_offsets, err);
    t->is_byte = mem_alloc((size_t)t->bpe.size, sizeof *t->is_byte, err);
    if (!t->byte_offsets || !t->is_byte || text_puts(&t->bytes, "", err) || text_puts(&now, "", err) ||
        regex_scratch_start(&scratch, err))
        goto done;
    for (int id = 0; id < t->bpe.size; id++) {
        const struct vocab_entry *entry = &t->bpe.entries[id];
        t->byte_offsets[id] = t->bytes.length;
        if (!entry->used)
            continue;
        const struct added_token *added = t->added_by_id[id] >= 0 ? &t->added[t->added_by_id[id]] : NULL;
        text_clear(&now);
        if (added && !added->special && added->form.length ? text_put(&now, added->form.data, added->form.length, err) :
            text_put(&now, t->bpe.strings.data + entry->offset, entry->bytes, err))
            goto done;
        for (int i = 0; i < t->n_decoders; i++) {
            if (t->decoders[i].skips_added && added)
                continue;
            text_clear(&next);
            if (text_puts(&next, "", err) || t->decoders[i].apply(&t->decoders[i], &scratch, &now, &next, err))
                goto done;
            struct text made = next;
            next = now;
            now = made;
        }
        int byte = t->decoding.byte_tokens ? byte_of(&now) : -1;
        t->is_byte[id] = byte >= 0;
        if (byte >= 0 ? text_putc(&t->bytes, (char)byte, err) : text_put(&t->bytes, now.data, now.length, err))
            goto done;
    }
    t->byte_offsets[t->bpe.size] = t->bytes.length;
    rc = 0;
done:
    text_free(&now);
    text_free(&next);
    regex_scratch_free(&scratch);
    return rc;
}

/* ---- tokens to text ---- */

void token_decoder_start(struct token_decoder *decoder, const struct tokenizer *tokenizer, unsigned flags)
{
    *decoder = (struct token_decoder){ .tokenizer = tokenizer, .flags = flags, .to_strip = tokenizer->decoding.strip };
}

static int emit(struct token_decoder *d, const void *bytes, size_t count, struct text *out, struct err *err)
{
    if (!count)
        return 0;
    d->to_strip = 0;
    return text_put(out, bytes, count, err);
}

static int emit_replacements(struct token_decoder *d, int count, struct text *out, struct err *err)
{
    while (count-- > 0)
        if (emit(d, "\xEF\xBF\xBD", 3, out, err))
            return -1;
    return 0;
}

/* Returns whether n bytes (1 to 3) are a prefix of a character. */
static bool is_prefix(const uint8_t *p, int n)
{
    int length = p[0] >= 0xC2 && p[0] <= 0xDF ? 2 : (p[0] & 0xF0) == 0xE0 ? 3 : p[0] >= 0xF0 && p[0] <= 0xF4 ? 4 : 0;
    if (n >= length)
        return false;
    if (n > 1) {
        uint8_t low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80, high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
        if (p[1] < low || p[1] > high)
            return false;
    }
    return n < 3 || (p[2] & 0xC0) == 0x80;
}

/* Flushes held-back bytes that cannot become a character: as one U+FFFD, or (byte tokens) one per byte. */
static int flush_held(struct token_decoder *d, int count, struct text *out, struct err *err)
{
    return emit_replacements(d, d->tokenizer->decoding.byte_tokens ? count : count > 0, out, err);
}

static int put_byte(struct token_decoder *d, uint8_t byte, struct text *out, struct err *err)
{
    d->held[d->n_held++] = byte;
    while (d->n_held) {
        int length = utf8_next((const char *)d->held, (size_t)d->n_held, NULL);
        if (length) {
            d->n_held = 0;             /* the last byte made it whole */
            return emit(d, d->held, (size_t)length, out, err);
        }
        if (is_prefix(d->held, d->n_held))
            return 0;
        /* The bytes before the last one are not a prefix of a character, or the last byte alone is invalid. */
        if (flush_held(d, d->n_held > 1 ? d->n_held - 1 : 1, out, err))
            return -1;
        d->held[0] = byte;
        d->n_held = d->n_held > 1 ? 1 : 0;
    }
    return 0;
}

/* Appends complete characters; some at the beginning of the text may be stripped. */
static int put_characters(struct token_decoder *d, const uint8_t *bytes, size_t count, struct text *out, struct err *err)
{
    const struct decoding *how = &d->tokenizer->decoding;
    size_t length = strlen(how->stripped);
    for (int n = 0; d->to_strip && count >= length && !memcmp(bytes, how->stripped, length) && !(how->strip_each && n); n++) {
        bytes += length;
        count -= length;
        d->to_strip -= !how->strip_each;
    }
    return emit(d, bytes, count, out, err);
}

/* Appends complete runs: a run of byte tokens is appended when it has ended, as characters or as that many U+FFFD. Invalid
 * bytes are appended at once; a run longer than the buffer is appended up to its last complete character. */
static int put_run_byte(struct token_decoder *d, uint8_t byte, struct text *out, struct err *err)
{
    if (d->run_bad)
        return emit_replacements(d, 1, out, err);
    if (d->n_run == sizeof d->run) {
        size_t whole = utf8_fault((const char *)d->run, sizeof d->run);
        if (put_characters(d, d->run, whole, out, err))
            return -1;
        d->n_run -= (int)whole;
        memmove(d->run, d->run + whole, (size_t)d->n_run);
    }
    d->run[d->n_run++] = byte;
    size_t fault = utf8_fault((const char *)d->run, (size_t)d->n_run);
    if ((int)fault == d->n_run || is_prefix(d->run + fault, d->n_run - (int)fault))
        return 0;
    int count = d->n_run;
    d->n_run = 0;
    d->run_bad = true;
    return emit_replacements(d, count, out, err);
}

/* Flushes held-back bytes when no byte can follow. */
static int end_run(struct token_decoder *d, struct text *out, struct err *err)
{
    int count = d->n_held, n = d->n_run;
    d->n_held = d->n_run = 0;
    d->run_bad = false;
    if (n && utf8_fault((const char *)d->run, (size_t)n) == (size_t)n)
        return put_characters(d, d->run, (size_t)n, out, err);
    return emit_replacements(d, n, out, err) || flush_held(d, count, out, err) ? -1 : 0;
}

/* Decodes the first token where its text differs from that of later ones. */
static int put_first(struct token_decoder *d, int32_t id, struct text *out, struct err *err)
{
    const struct tokenizer *t = d->tokenizer;
    const char *text = t->bpe.strings.data + t->bpe.entries[id].offset;
    size_t bytes = t->bpe.entries[id].bytes, length = strlen(t->decoding.dropped);
    for (size_t at = 0; at < bytes;) {
        const char *next = memmem(text + at, bytes - at, t->decoding.dropped, length);
        size_t end = next ? (size_t)(next - text) : bytes;
        if (emit(d, text + at, end - at, out, err))
            return -1;
        at = end + (next ? length : 0);
    }
    return 0;
}

int token_decoder_put(struct token_decoder *d, int32_t id, struct text *out, struct err *err)
{
    const struct tokenizer *t = d->tokenizer;
    size_t count;
    const uint8_t *bytes = tokenizer_token_bytes(t, id, &count);
    if (!bytes || (!(d->flags & TOKENIZER_SHOW_SPECIAL) && tokenizer_is_special(t, id)))
        return 0;
    bool first = !d->started;
    d->started = true;
    if (t->decoding.byte_tokens) {
        if (t->is_byte[id])
            return t->decoding.whole_runs ? put_run_byte(d, bytes[0], out, err) : put_byte(d, bytes[0], out, err);
        if (end_run(d, out, err))
            return -1;
    }
    if (first && t->decoding.first_drops)
        return put_first(d, id, out, err);
    if (id == t->decoding.unstripped)
        return emit(d, bytes, count, out, err);
    if (!t->decoding.raw)
        return put_characters(d, bytes, count, out, err);
    for (size_t i = 0; i < count; i++) {
        if (!d->n_held && bytes[i] < 0x80) {
            size_t run = 1;
            while (i + run < count && bytes[i + run] < 0x80)
                run++;
            if (put_characters(d, bytes + i, run, out, err))
                return -1;
            i += run - 1;
        } else if (put_byte(d, bytes[i], out, err)) {
            return -1;
        }
    }
    return 0;
}

int token_decoder_end(struct token_decoder *d, struct text *out, struct err *err)
{
    return end_run(d, out, err);
}

int tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int n, unsigned flags, struct text *out,
                     struct err *err)
{
    struct token_decoder decoder;
    token_decoder_start(&decoder, tokenizer, flags);
    for (int i = 0; i < n; i++)
        if (token_decoder_put(&decoder, ids[i], out, err))
            return -1;
    return token_decoder_end(&decoder, out, err);
}
