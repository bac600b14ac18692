#include "common/tokenizer/sentence.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"

/* ---- protobuf: a message is a row of fields, each a number, a wire type and a value ---- */

struct field {
    uint32_t number;
    int type;                          /* 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes */
    uint64_t value;
    const uint8_t *data;
    size_t bytes;
};
struct message {
    const uint8_t *data;
    size_t bytes, at;
};

static bool take_varint(struct message *m, uint64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (m->at == m->bytes)
            return false;
        uint8_t byte = m->data[m->at++];
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* Reads the next field. Returns 1; 0 at the end; -1 on error. */
static int next_field(struct message *m, struct field *out, struct err *err)
{
    uint64_t key = 0, length = 0;
    size_t from = m->at;
    if (m->at == m->bytes)
        return 0;
    *out = (struct field){ .data = m->data };
    if (!take_varint(m, &key) || key >> 3 == 0 || key >> 3 > 0x1FFFFFFF)
        goto broken;
    out->number = (uint32_t)(key >> 3);
    out->type = (int)(key & 7);
    switch (out->type) {
    case 0:
        if (!take_varint(m, &out->value))
            goto broken;
        return 1;
    case 1: length = 8; break;
    case 5: length = 4; break;
    case 2:
        if (!take_varint(m, &length))
            goto broken;
        break;
    default:
        goto broken;
    }
    if (length > m->bytes - m->at)
        goto broken;
    out->data = m->data + m->at;
    out->bytes = (size_t)length;
    m->at += (size_t)length;
    return 1;
broken:
    return err_set(err, ERR_INPUT, "is not a SentencePiece model: the field at byte %zu of a message is invalid", from);
}

/* ---- the model ---- */

static int read_piece(struct sentence *s, struct bpe *bpe, const struct field *field, struct err *err)
{
    struct message m = { .data = field->data, .bytes = field->bytes };
    struct field f, piece = {0};
    uint32_t bits = 0;
    uint64_t type = PIECE_NORMAL;
    size_t id = s->count;
    int rc;
    while ((rc = next_field(&m, &f, err)) > 0) {
        if (f.number == 1 && f.type == 2)
            piece = f;
        else if (f.number == 2 && f.type == 5)
            bits = f.data[0] | (uint32_t)f.data[1] << 8 | (uint32_t)f.data[2] << 16 | (uint32_t)f.data[3] << 24;
        else if (f.number == 3 && f.type == 0)
            type = f.value;
    }
    if (rc < 0)
        return -1;
    if (!piece.bytes || piece.bytes > PIECE_BYTES || memchr(piece.data, 0, piece.bytes) ||
        utf8_fault((const char *)piece.data, piece.bytes) < piece.bytes)
        return err_set(err, ERR_INPUT, "piece %zu must be UTF-8 text of 1 to %d bytes", id, PIECE_BYTES);
    memcpy(&s->scores[id], &bits, sizeof bits);
    if (!isfinite(s->scores[id]) || type < PIECE_NORMAL || type > PIECE_BYTE)
        return err_set(err, ERR_INPUT, "piece %zu has an invalid score or type", id);
    s->types[id] = (uint8_t)type;
    s->count++;
    char *content = mem_copy(piece.data, piece.bytes, err);    /* NUL-terminated copy for messages */
    rc = content ? bpe_add(bpe, content, piece.bytes, (int64_t)id, err) : -1;
    mem_free(&content);
    return rc;
}

static int read_trainer(struct sentence *s, const struct field *field, int64_t *bos, struct err *err)
{
    struct message m = { .data = field->data, .bytes = field->bytes };
    uint64_t kind = 1;
    struct field f;
    int rc;
    while ((rc = next_field(&m, &f, err)) > 0) {
        if (f.type == 0 && f.number == 3)
            kind = f.value;
        else if (f.type == 0 && f.number == 24 && f.value)
            return err_set(err, ERR_INPUT, "treat_whitespace_as_suffix is not supported");
        else if (f.type == 0 && f.number == 35)
            s->byte_fallback = f.value != 0;
        else if (f.type == 0 && f.number == 41)
            *bos = (int32_t)(uint32_t)f.value;
        else if (f.type == 2 && f.number == 44) {
            text_clear(&s->unknown);
            if (f.bytes > RULE_BYTES || utf8_fault((const char *)f.data, f.bytes) < f.bytes)
                return err_set(err, ERR_INPUT, "unk_surface must be UTF-8 text of at most %d bytes", RULE_BYTES);
            if (text_put(&s->unknown, f.data, f.bytes, err))
                return -1;
        }
    }
    if (!rc && kind != 1 && kind != 2)
        return err_set(err, ERR_INPUT, "a model of type %s is not supported; only unigram and BPE are supported",
                       kind == 3 ? "WORD" : kind == 4 ? "CHAR" : "(unknown)");
    s->unigram = kind == 1;
    return rc;
}

/* Reads the rules: size of the double array in bytes, its units, then the strings, each ended by a NUL. */
static int read_rules(struct sentence *s, const struct field *f, struct err *err)
{
    size_t trie = 0, run = 0;
    if (!f->bytes)
        return 0;
    if (f->bytes > 4)
        trie = f->data[0] | (size_t)f->data[1] << 8 | (size_t)f->data[2] << 16 | (size_t)f->data[3] << 24;
    if (f->bytes <= 4 || trie % 4 || !trie || trie >= f->bytes - 4 || f->data[f->bytes - 1] || s->units)
        return err_set(err, ERR_INPUT, "precompiled_charsmap is damaged");
    s->n_units = trie / 4;
    s->units = mem_alloc(s->n_units, sizeof *s->units, err);
    if (!s->units || text_put(&s->rules, f->data + 4 + trie, f->bytes - 4 - trie, err))
        return -1;
    for (size_t i = 0; i < s->n_units; i++) {
        const uint8_t *p = f->data + 4 + 4 * i;
        s->units[i] = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }
    if (utf8_fault(s->rules.data, s->rules.length) < s->rules.length)
        return err_set(err, ERR_INPUT, "precompiled_charsmap: its texts are not valid UTF-8");
    for (size_t i = 0; i < s->rules.length; i++) {
        run = s->rules.data[i] ? run + 1 : 0;
        if (run > RULE_BYTES)
            return err_set(err, ERR_INPUT, "precompiled_charsmap: a rule makes more than %d bytes", RULE_BYTES);
    }
    return 0;
}

static int read_normalizer(struct sentence *s, const struct field *field, struct err *err)
{
    struct message m = { .data = field->data, .bytes = field->bytes };
    struct field f;
    int rc;
    while ((rc = next_field(&m, &f, err)) > 0) {
        if (f.number == 2 && f.type == 2 && read_rules(s, &f, err))
            return -1;
        if (f.number == 3 && f.type == 0)
            s->add_dummy_prefix = f.value != 0;
        if (f.number == 4 && f.type == 0)
            s->remove_extra = f.value != 0;
        if (f.number == 5 && f.type == 0 && !f.value)
            return err_set(err, ERR_INPUT, "escape_whitespaces = false is not supported");
    }
    return rc;
}

static int read_denormalizer(const struct field *field, struct err *err)
{
    struct message m = { .data = field->data, .bytes = field->bytes };
    struct field f;
    int rc;
    while ((rc = next_field(&m, &f, err)) > 0)
        if (f.number == 2 && f.type == 2 && f.bytes)
            return err_set(err, ERR_INPUT, "denormalizer_spec is not supported");
    return rc;
}

/* Derives the settings that depend on all pieces. */
static int derive_settings(struct sentence *s, struct bpe *bpe, int64_t bos, struct err *err)
{
    size_t n_bytes = 0;
    s->unk = -1;
    s->min = FLT_MAX;
    s->greatest = FLT_MIN;
    added_trie_start(&s->user);
    added_trie_start(&s->pieces);
    if (bpe_index(bpe, err))
        return -1;
    for (size_t id = 0; id < s->count; id++) {
        const struct vocab_entry *entry = &bpe->entries[id];
        const char *content = bpe->strings.data + entry->offset;
        int type = s->types[id];
        bool from_text = type == PIECE_NORMAL || type == PIECE_USER_DEFINED || type == PIECE_UNUSED;
        if (type == PIECE_UNKNOWN && s->unk >= 0)
            return err_set(err, ERR_INPUT, "pieces %d and %zu both have type UNKNOWN, but only one may", (int)s->unk, id);
        if (type == PIECE_UNKNOWN)
            s->unk = (int32_t)id;
        if (type == PIECE_NORMAL) {
            s->min = s->scores[id] < s->min ? s->scores[id] : s->min;
            s->greatest = s->scores[id] > s->greatest ? s->scores[id] : s->greatest;
        }
        s->has_unused = s->has_unused || type == PIECE_UNUSED;
        if (from_text && entry->bytes > s->longest)
            s->longest = entry->bytes;
        if (type == PIECE_BYTE) {
            int byte = 0;
            while (byte < 256 && bpe->byte_ids[byte] != (int32_t)id)
                byte++;
            if (byte == 256)
                return err_set(err, ERR_INPUT, "piece %zu, \"%.40s\", has type BYTE, but is not of the form <0xNN>", id,
                               content);
            n_bytes++;
        }
        if ((type == PIECE_USER_DEFINED && added_trie_put(&s->user, content, entry->bytes, (int32_t)id, err)) ||
            (from_text && s->unigram && added_trie_put(&s->pieces, content, entry->bytes, (int32_t)id, err)))
            return -1;
    }
    if (s->unk < 0)
        return err_set(err, ERR_INPUT, "no piece has type UNKNOWN");
    if (n_bytes != (s->byte_fallback ? 256 : 0))
        return err_set(err, ERR_INPUT, "%zu pieces have type BYTE, which contradicts byte_fallback = %s", n_bytes,
                       s->byte_fallback ? "true" : "false");
    s->bos = bos >= 0 && (size_t)bos < s->count && s->types[bos] == PIECE_CONTROL ? (int32_t)bos : -1;
    return 0;
}

static int read_all(struct sentence *s, struct bpe *bpe, const uint8_t *data, size_t bytes, struct err *err)
{
    struct message m = { .data = data, .bytes = bytes };
    size_t pieces = 0;
    int64_t bos = 1;
    struct field f;
    int rc;
    while ((rc = next_field(&m, &f, err)) > 0)
        pieces += f.number == 1 && f.type == 2;
    if (rc < 0)
        return -1;
    if (!pieces || pieces > (1u << 28))
        return err_set(err, ERR_INPUT, "is not a SentencePiece model: it has %zu pieces", pieces);
    s->types = mem_alloc(pieces, sizeof *s->types, err);
    s->scores = mem_alloc(pieces, sizeof *s->scores, err);
    bpe->room = pieces;
    bpe->entries = mem_alloc(pieces, sizeof *bpe->entries, err);
    bpe->unk = -1;
    if (!s->types || !s->scores || !bpe->entries || text_puts(&s->unknown, " \xE2\x81\x87 ", err))
        return -1;
    s->add_dummy_prefix = s->remove_extra = s->unigram = true;
    m.at = 0;
    while ((rc = next_field(&m, &f, err)) > 0) {
        if (f.type != 2)
            continue;
        if ((f.number == 1 && read_piece(s, bpe, &f, err)) || (f.number == 2 && read_trainer(s, &f, &bos, err)) ||
            (f.number == 3 && read_normalizer(s, &f, err)) || (f.number == 5 && read_denormalizer(&f, err)))
            return -1;
    }
    return rc < 0 ? -1 : derive_settings(s, bpe, bos, err);
}

int sentence_read(struct sentence **out, struct bpe *bpe, const uint8_t *data, size_t bytes, struct err *err)
{
    struct sentence *s = mem_alloc(1, sizeof *s, err);
    if (!s || read_all(s, bpe, data, bytes, err)) {
        sentence_free(&s);
        return -1;
    }
    *out = s;
    return 0;
}

void sentence_free(struct sentence **sentence)
{
    struct sentence *s = *sentence;
    if (!s)
        return;
    mem_free(&s->types);
    mem_free(&s->scores);
    mem_free(&s->user.nodes);
    mem_free(&s->pieces.nodes);
    mem_free(&s->units);
    text_free(&s->rules);
    text_free(&s->unknown);
    mem_free(sentence);
}
