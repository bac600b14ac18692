#include "common/model/tokenizer.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/model/tokenizer_internal.h"

void tokenizer_free(struct tokenizer **tokenizer)
{
    struct tokenizer *t = *tokenizer;
    if (!t)
        return;
    bpe_free(&t->bpe);
    for (size_t i = 0; i < t->n_added; i++)
        mem_free(&t->added[i].content);
    mem_free(&t->added);
    mem_free(&t->added_by_id);
    mem_free(&t->raw.nodes);
    mem_free(&t->normalized.nodes);
    for (int i = 0; i < t->n_splits; i++) {
        regex_free(&t->splits[i].regex);
        mem_free(&t->splits[i].literal);
    }
    tokens_free(&t->before);
    tokens_free(&t->after);
    text_free(&t->bytes);
    mem_free(&t->byte_offsets);
    mem_free(tokenizer);
}

int tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return tokenizer->bpe.size;
}

void tokenizer_hash(const struct tokenizer *tokenizer, struct sha256 *out)
{
    *out = tokenizer->hash;
}

const uint8_t *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *bytes)
{
    if (id < 0 || id >= t->bpe.size || !t->bpe.entries[id].used)
        return NULL;
    *bytes = t->byte_offsets[id + 1] - t->byte_offsets[id];
    return (const uint8_t *)t->bytes.data + t->byte_offsets[id];
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->bpe.size && t->added_by_id[id] >= 0 && t->added[t->added_by_id[id]].special;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *content)
{
    return bpe_find(&tokenizer->bpe, content, strlen(content));
}

/* ---- encoding: added tokens, normalisation, added tokens again, pre-tokenisation, merges ---- */

struct encoder {
    const struct tokenizer *t;
    struct added_cuts raw, normalized;
    struct text text[2];               /* what normalisers make, in turns */
    struct origins origins[2], section;
    struct pieces pieces[2];
    struct split_scratch split;
    struct bpe_scratch bpe;
    struct tokens out;
};

static void encoder_free(struct encoder *e)
{
    mem_free(&e->raw.cuts);
    mem_free(&e->normalized.cuts);
    for (int i = 0; i < 2; i++) {
        text_free(&e->text[i]);
        mem_free(&e->origins[i].runs);
        pieces_free(&e->pieces[i]);
    }
    mem_free(&e->section.runs);
    split_scratch_free(&e->split);
    bpe_scratch_free(&e->bpe);
    tokens_free(&e->out);
}

/* A normalised text without added tokens. */
static int encode_plain(struct encoder *e, const char *text, size_t bytes, struct err *err)
{
    struct pieces *in = &e->pieces[0], *out = &e->pieces[1];
    text_clear(&in->text);
    in->n = 0;
    if (text_put(&in->text, text, bytes, err) || mem_grow(&in->spans, &in->room, 1, sizeof *in->spans, err))
        return -1;
    in->spans[in->n++] = (struct span){ 0, bytes };
    for (int i = 0; i < e->t->n_splits; i++) {
        const struct split_step *step = &e->t->splits[i];
        if (step->apply(step, &e->split, in, out, err))
            return -1;
        struct pieces *made = out;
        out = in;
        in = made;
    }
    for (size_t i = 0; i < in->n; i++)
        if (bpe_encode(&e->t->bpe, in->text.data + in->spans[i].begin, in->spans[i].end - in->spans[i].begin, &e->bpe, &e->out,
                       err))
            return -1;
    return 0;
}

/* The text between the added tokens of the first kind. */
static int encode_section(struct encoder *e, const char *text, size_t bytes, const struct origins *origins, struct err *err)
{
    for (int i = 0; i < e->t->n_normalizers; i++) {
        struct text *made = &e->text[i & 1];
        if (e->t->normalizers[i].apply(text, bytes, origins, made, &e->origins[i & 1], err))
            return -1;
        text = made->data;
        bytes = made->length;
        origins = &e->origins[i & 1];
    }
    if (!bytes)
        return 0;
    if (added_find(&e->t->normalized, e->t->added, text, bytes, origins, &e->normalized, err))
        return -1;
    for (size_t i = 0; i < e->normalized.n; i++) {
        struct added_cut cut = e->normalized.cuts[i];
        if (cut.token >= 0 ? tokens_put(&e->out, cut.token, err) : encode_plain(e, text + cut.begin, cut.end - cut.begin, err))
            return -1;
    }
    return 0;
}

static int cut_origins(const struct origins *all, size_t *run, struct added_cut cut, struct origins *out, struct err *err)
{
    out->n = 0;
    while (*run && all->runs[*run - 1].end > cut.begin)        /* lstrip may reach back */
        --*run;
    while (all->runs[*run].end <= cut.begin)
        ++*run;
    for (size_t i = *run;; i++) {
        size_t end = all->runs[i].end < cut.end ? all->runs[i].end : cut.end;
        if (origins_put(out, end - cut.begin, all->runs[i].from_template, err))
            return -1;
        if (end == cut.end)
            return 0;
    }
}

static int encode_text(struct encoder *e, const char *text, size_t bytes, const struct origins *origins, struct err *err)
{
    size_t run = 0;
    if (added_find(&e->t->raw, e->t->added, text, bytes, origins, &e->raw, err))
        return -1;
    for (size_t i = 0; i < e->raw.n; i++) {
        struct added_cut cut = e->raw.cuts[i];
        if (cut.token >= 0) {
            if (tokens_put(&e->out, cut.token, err))
                return -1;
        } else if (cut_origins(origins, &run, cut, &e->section, err) ||
                   encode_section(e, text + cut.begin, cut.end - cut.begin, &e->section, err)) {
            return -1;
        }
    }
    return 0;
}

static int tokens_append(struct tokens *out, const struct tokens *more, struct err *err)
{
    if (!more->n)
        return 0;
    if (more->n > INT32_MAX - out->n)
        return err_set(err, ERR_INPUT, "a text of more than 2^31 tokens");
    if (mem_grow(&out->ids, &out->room, (size_t)out->n + (size_t)more->n, sizeof *out->ids, err))
        return -1;
    memcpy(out->ids + out->n, more->ids, (size_t)more->n * sizeof *out->ids);
    out->n += more->n;
    return 0;
}

int tokenizer_encode_segments(const struct tokenizer *t, const char *text, const struct text_segment *segments,
                              size_t n_segments, unsigned flags, struct tokens *out, struct err *err)
{
    struct encoder e = { .t = t };
    struct origins origins = {0};
    size_t bytes = 0, fault;
    int rc = -1;
    for (size_t i = 0; i < n_segments; i++) {
        if (!size_add(bytes, segments[i].bytes, &bytes)) {
            err_memory(err);
            goto done;
        }
        if (origins_put(&origins, bytes, segments[i].from_template || flags & TOKENIZER_PARSE_SPECIAL, err))
            goto done;
    }
    if ((fault = utf8_fault(text, bytes)) < bytes) {
        err_set(err, ERR_INPUT, "byte %zu of the text (0x%02x) is not valid UTF-8; convert the text to UTF-8", fault,
                (unsigned)(unsigned char)text[fault]);
        goto done;
    }
    if (regex_scratch_start(&e.split.regex, err))
        goto done;
    if (flags & TOKENIZER_FRAME && tokens_append(&e.out, &t->before, err))
        goto done;
    if (bytes && encode_text(&e, text, bytes, &origins, err))
        goto done;
    if (flags & TOKENIZER_FRAME && tokens_append(&e.out, &t->after, err))
        goto done;
    rc = tokens_append(out, &e.out, err);
done:
    encoder_free(&e);
    mem_free(&origins.runs);
    return rc;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, unsigned flags, struct tokens *out,
                     struct err *err)
{
    struct text_segment whole = { .bytes = bytes, .from_template = false };
    return tokenizer_encode_segments(tokenizer, text, &whole, 1, flags, out, err);
}

/* ---- decoding ---- */

static const char replacement[] = "\xEF\xBF\xBD";

void token_decoder_start(struct token_decoder *decoder, const struct tokenizer *tokenizer, unsigned flags)
{
    *decoder = (struct token_decoder){ .tokenizer = tokenizer, .flags = flags };
}

/* Whether n bytes (1 to 3) can still become a character. */
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

static int put_byte(struct token_decoder *d, uint8_t byte, struct text *out, struct err *err)
{
    d->held[d->n_held++] = byte;
    while (d->n_held) {
        int length = utf8_next((const char *)d->held, (size_t)d->n_held, NULL);
        if (length) {
            d->n_held = 0;             /* the last byte made it whole */
            return text_put(out, d->held, (size_t)length, err);
        }
        if (is_prefix(d->held, d->n_held))
            return 0;
        /* What came before the last byte was a prefix of nothing, or the byte stands alone and is none. */
        if (text_put(out, replacement, 3, err))
            return -1;
        d->held[0] = byte;
        d->n_held = d->n_held > 1 ? 1 : 0;
    }
    return 0;
}

int token_decoder_put(struct token_decoder *d, int32_t id, struct text *out, struct err *err)
{
    size_t count;
    const uint8_t *bytes = tokenizer_token_bytes(d->tokenizer, id, &count);
    if (!bytes || (!(d->flags & TOKENIZER_SHOW_SPECIAL) && tokenizer_is_special(d->tokenizer, id)))
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (!d->n_held && bytes[i] < 0x80) {
            size_t run = 1;
            while (i + run < count && bytes[i + run] < 0x80)
                run++;
            if (text_put(out, bytes + i, run, err))
                return -1;
            i += run - 1;
        } else if (put_byte(d, bytes[i], out, err)) {
            return -1;
        }
    }
    d->started = true;
    return 0;
}

int token_decoder_end(struct token_decoder *d, struct text *out, struct err *err)
{
    bool held = d->n_held > 0;
    d->n_held = 0;
    return held ? text_put(out, replacement, 3, err) : 0;
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
