#include "common/tokenizer/tokenizer.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"
#include "common/tokenizer/sentence.h"

void tokenizer_free(struct tokenizer **tokenizer)
{
    struct tokenizer *t = *tokenizer;
    if (!t)
        return;
    bpe_free(&t->bpe);
    sentence_free(&t->sentence);
    for (size_t i = 0; i < t->n_added; i++) {
        mem_free(&t->added[i].content);
        text_free(&t->added[i].form);
    }
    mem_free(&t->added);
    mem_free(&t->added_by_id);
    mem_free(&t->raw.nodes);
    mem_free(&t->normalized.nodes);
    for (int i = 0; i < t->n_splits; i++)
        needle_free(&t->splits[i].needle);
    for (int i = 0; i < t->n_normalizers; i++) {
        needle_free(&t->normalizers[i].needle);
        mem_free(&t->normalizers[i].content);
    }
    for (int i = 0; i < t->n_decoders; i++) {
        needle_free(&t->decoders[i].needle);
        mem_free(&t->decoders[i].content);
    }
    mem_free(&t->is_byte);
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

int32_t tokenizer_compare(const struct tokenizer *a, const struct tokenizer *b)
{
    const int size = a->bpe.size > b->bpe.size ? a->bpe.size : b->bpe.size;
    static const struct vocab_entry absent;
    for (int32_t id = 0; id < size; id++) {
        const struct vocab_entry *mine = id < a->bpe.size ? &a->bpe.entries[id] : &absent;
        const struct vocab_entry *its = id < b->bpe.size ? &b->bpe.entries[id] : &absent;
        if (mine->used != its->used || (mine->used && (mine->bytes != its->bytes ||
            memcmp(a->bpe.strings.data + mine->offset, b->bpe.strings.data + its->offset, mine->bytes))))
            return id;
    }
    return -1;
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
    struct text text[2];               /* output of each normaliser in turn */
    struct origins origins[2], section;
    struct pieces pieces[2];
    struct split_scratch split;
    struct bpe_scratch bpe;
    struct sentence_scratch sentence;
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
    sentence_scratch_free(&e->sentence);
    tokens_free(&e->out);
}

/* Encodes a normalised text without added tokens. */
static int encode_plain(struct encoder *e, const char *text, size_t bytes, bool at_start, struct err *err)
{
    struct pieces *in = &e->pieces[0], *out = &e->pieces[1];
    if (e->t->sentence)
        return sentence_encode(e->t->sentence, &e->t->bpe, text, bytes, &e->sentence, &e->out, err);
    in->at_start = out->at_start = at_start;
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

/* Encodes the text between added tokens that are searched before normalisation. */
static int encode_section(struct encoder *e, struct passage in, bool at_start, struct err *err)
{
    for (int i = 0; i < e->t->n_normalizers; i++) {
        struct text *made = &e->text[i & 1];
        if (e->t->normalizers[i].apply(&e->t->normalizers[i], &e->split.regex, in, made, &e->origins[i & 1], err))
            return -1;
        in = (struct passage){ made->data, made->length, &e->origins[i & 1] };
    }
    if (!in.bytes)
        return 0;
    if (added_find(&e->t->normalized, e->t->added, in.text, in.bytes, in.origins, &e->normalized, err))
        return -1;
    for (size_t i = 0; i < e->normalized.n; i++) {
        struct added_cut cut = e->normalized.cuts[i];
        if (cut.token >= 0 ? tokens_put(&e->out, cut.token, err) :
            encode_plain(e, in.text + cut.begin, cut.end - cut.begin, at_start && !cut.begin, err))
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
                   encode_section(e, (struct passage){ text + cut.begin, cut.end - cut.begin, &e->section }, !cut.begin, err)) {
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
        return err_set(err, ERR_INPUT, "the text has more than 2^31 tokens; split the text");
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
