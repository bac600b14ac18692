#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/sentence.h"

static const char mark[] = "\xE2\x96\x81";
enum { MARK_BYTES = 3 };

void sentence_scratch_free(struct sentence_scratch *scratch)
{
    text_free(&scratch->text);
    bpe_scratch_free(&scratch->bpe);
    mem_free(&scratch->nodes);
    mem_free(&scratch->joints);
}

/* ---- normalisation ---- */

struct slice { const char *text; size_t bytes, used; };

/* Finds the longest rule that is a prefix of the text. The double array is that of Darts: a unit has a label (bits 0 to 7),
 * a flag for a value below it (8), and the offset of its children (10 to 31, shifted by 8 if bit 9 is set); bit 31 marks a
 * value. */
static bool rule_find(const struct sentence *s, const char *text, size_t bytes, struct slice *out)
{
    size_t node = 0, max = bytes < RULE_BYTES ? bytes : RULE_BYTES;
    uint32_t unit;
    bool found = false;
    if (!s->n_units)
        return false;
    unit = s->units[0];
    node ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
    for (size_t i = 0; i < max; i++) {
        node ^= (unsigned char)text[i];
        if (node >= s->n_units || ((unit = s->units[node]) & (1u << 31 | 0xFF)) != (unsigned char)text[i])
            break;
        node ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
        if (!(unit >> 8 & 1))
            continue;
        size_t at = node < s->n_units ? s->units[node] & ~(1u << 31) : SIZE_MAX;
        if (at < s->rules.length && (s->rules.data[at] & 0xC0) != 0x80) {   /* no text begins within a character */
            *out = (struct slice){ s->rules.data + at, strlen(s->rules.data + at), i + 1 };
            found = true;
        }
    }
    return found;
}

/* Normalises the beginning of the text: a user-defined symbol unchanged, the result of a rule, or one character. */
static struct slice next_slice(const struct sentence *s, const char *text, size_t bytes)
{
    struct slice out;
    size_t length = 0;
    if (added_longest(&s->user, text, 0, bytes, &length) >= 0)
        return (struct slice){ text, length, length };
    if (rule_find(s, text, bytes, &out))
        return out;
    length = (size_t)utf8_next(text, bytes, NULL);
    return (struct slice){ text, length, length };
}

static int normalize(const struct sentence *s, const char *text, size_t bytes, struct text *out, struct err *err)
{
    bool space_before = s->remove_extra;
    size_t at = 0;
    text_clear(out);
    while (s->remove_extra && at < bytes) {
        struct slice slice = next_slice(s, text + at, bytes - at);
        if (slice.bytes != 1 || slice.text[0] != ' ')
            break;
        at += slice.used;
    }
    if (at == bytes)
        return 0;
    if (s->add_dummy_prefix && text_put(out, mark, MARK_BYTES, err))
        return -1;
    while (at < bytes) {
        struct slice slice = next_slice(s, text + at, bytes - at);
        at += slice.used;
        while (space_before && slice.bytes && slice.text[0] == ' ') {
            slice.text++;
            slice.bytes--;
        }
        for (size_t i = 0; i < slice.bytes; i++)
            if (slice.text[i] == ' ' ? text_put(out, mark, MARK_BYTES, err) : text_putc(out, slice.text[i], err))
                return -1;
        if (slice.bytes)
            space_before = s->remove_extra && slice.text[slice.bytes - 1] == ' ';
    }
    while (s->remove_extra && out->length >= MARK_BYTES && !memcmp(out->data + out->length - MARK_BYTES, mark, MARK_BYTES))
        out->length -= MARK_BYTES;
    return 0;
}

/* ---- ids ---- */

/* Appends a piece. Unknown pieces become bytes, or one unknown token per run. */
static int put_piece(const struct sentence *s, const struct bpe *bpe, int32_t id, const char *text, size_t bytes,
                     bool *unknown_before, struct tokens *out, struct err *err)
{
    bool unknown = id == s->unk, again = unknown && *unknown_before;
    *unknown_before = unknown;
    if (!unknown || !s->byte_fallback)
        return again ? 0 : tokens_put(out, id, err);
    for (size_t i = 0; i < bytes; i++)
        if (tokens_put(out, bpe->byte_ids[(unsigned char)text[i]], err))
            return -1;
    return 0;
}

/* Returns the order in the heap, where a smaller number comes first: highest score first, then leftmost. */
static uint64_t order_of(float score, int32_t left)
{
    uint32_t bits;
    score += 0.0f;                     /* -0 is 0 */
    memcpy(&bits, &score, sizeof bits);
    bits = bits >> 31 ? bits : ~bits & 0x7FFFFFFF;
    return (uint64_t)bits << 32 | (uint32_t)left;
}

struct joiner {
    const struct sentence *s;
    const struct bpe *bpe;
    struct sentence_scratch *scratch;
    bool unknown_before;
    struct tokens *out;
};

/* Symbols: .id is the offset in the text, .bytes the length (0: merged into another). User-defined symbols never merge; the
 * top bit of .bytes marks them. */
enum { FROZEN = INT32_MIN };

static int push_pair(struct joiner *j, int32_t left, int32_t right, struct err *err)
{
    const struct bpe_symbol *symbols = j->scratch->bpe.symbols;
    if (left < 0 || right < 0 || (symbols[left].bytes | symbols[right].bytes) & (uint32_t)FROZEN)
        return 0;
    size_t bytes = (size_t)symbols[left].bytes + symbols[right].bytes;
    if (bytes > j->s->longest)
        return 0;
    int32_t id = bpe_find(j->bpe, j->scratch->text.data + symbols[left].id, bytes);
    if (id < 0)
        return 0;
    int type = j->s->types[id];
    if (type != PIECE_NORMAL && type != PIECE_USER_DEFINED && type != PIECE_UNUSED)
        return 0;
    if (type == PIECE_UNUSED)
        j->scratch->joints[id] = symbols[left].bytes;
    struct bpe_pending item = { order_of(j->s->scores[id], left), (int32_t)bytes };
    return bpe_heap_put(&j->scratch->bpe, item, err);
}

/* Splits an unused piece again into the two parts that it was merged from. */
static int put_symbol(struct joiner *j, const char *text, size_t bytes, struct err *err)
{
    int32_t id = bpe_find(j->bpe, text, bytes);
    if (id >= 0 && j->s->types[id] == PIECE_UNUSED && j->scratch->joints[id]) {
        size_t left = j->scratch->joints[id];
        return put_symbol(j, text, left, err) || put_symbol(j, text + left, bytes - left, err) ? -1 : 0;
    }
    return put_piece(j->s, j->bpe, id < 0 ? j->s->unk : id, text, bytes, &j->unknown_before, j->out, err);
}

static int split_symbols(struct joiner *j, size_t *n, struct err *err)
{
    struct bpe_scratch *b = &j->scratch->bpe;
    const struct text *text = &j->scratch->text;
    *n = 0;
    for (size_t at = 0, length = 0; at < text->length; at += length, ++*n) {
        bool user = added_longest(&j->s->user, text->data + at, 0, text->length - at, &length) >= 0;
        if (!user)
            length = (size_t)utf8_next(text->data + at, text->length - at, NULL);
        if (mem_grow(&b->symbols, &b->symbol_room, *n + 1, sizeof *b->symbols, err))
            return -1;
        b->symbols[*n] = (struct bpe_symbol){ .id = (int32_t)at, .before = (int32_t)*n - 1, .after = (int32_t)*n + 1,
                                              .bytes = (uint32_t)length | (user ? (uint32_t)FROZEN : 0) };
    }
    b->symbols[*n - 1].after = -1;
    return 0;
}

static int encode_bpe(struct joiner *j, struct err *err)
{
    struct bpe_scratch *b = &j->scratch->bpe;
    const char *text = j->scratch->text.data;
    size_t n;
    struct sentence_scratch *scratch = j->scratch;
    if (j->s->has_unused) {
        if (mem_grow(&scratch->joints, &scratch->joint_room, j->s->count, sizeof *scratch->joints, err))
            return -1;
        memset(scratch->joints, 0, j->s->count * sizeof *scratch->joints);
    }
    if (split_symbols(j, &n, err))
        return -1;
    b->n_heap = 0;
    for (size_t i = 1; i < n; i++)
        if (push_pair(j, (int32_t)i - 1, (int32_t)i, err))
            return -1;
    while (b->n_heap) {
        struct bpe_pending top = bpe_heap_take(b);
        int32_t at = (int32_t)(top.order & UINT32_MAX);
        struct bpe_symbol *left = &b->symbols[at];
        if (!left->bytes || left->after < 0 || left->bytes + b->symbols[left->after].bytes != (uint32_t)top.id)
            continue;                                  /* one of the two has changed */
        struct bpe_symbol *right = &b->symbols[left->after];
        left->bytes += right->bytes;
        left->after = right->after;
        right->bytes = 0;
        if (left->after >= 0)
            b->symbols[left->after].before = at;
        if (push_pair(j, left->before, at, err) || push_pair(j, at, left->after, err))
            return -1;
    }
    for (int32_t at = 0; at >= 0; at = b->symbols[at].after)
        if (put_symbol(j, text + b->symbols[at].id, b->symbols[at].bytes & ~(uint32_t)FROZEN, err))
            return -1;
    return 0;
}

/* Stores a better path to the node. Scores are computed in single precision, as in the original, which decides ties. */
static void improve(struct sentence_node *node, float score, int32_t id, int32_t begin)
{
    if (node->begin < 0 || score > node->score)
        *node = (struct sentence_node){ score, id, begin };
}

/* Finds the pieces of greatest total score (Viterbi); an unknown character scores 10 below the lowest score. */
static int encode_unigram(struct joiner *j, struct err *err)
{
    const struct sentence *s = j->s;
    const char *text = j->scratch->text.data;
    size_t bytes = j->scratch->text.length;
    float unknown = s->min - 10.0f;
    if (mem_grow(&j->scratch->nodes, &j->scratch->node_room, bytes + 1, sizeof *j->scratch->nodes, err))
        return -1;
    struct sentence_node *nodes = j->scratch->nodes;
    for (size_t i = 0; i <= bytes; i++)
        nodes[i] = (struct sentence_node){ 0, -1, -1 };
    for (size_t begin = 0, length; begin < bytes; begin += length) {
        float here = nodes[begin].score;
        bool single = false;
        length = (size_t)utf8_next(text + begin, bytes - begin, NULL);
        int32_t node = s->pieces.roots[(unsigned char)text[begin]];
        for (size_t end = begin + 1; node >= 0; end++) {
            int32_t id = s->pieces.nodes[node].token;
            if (id >= 0 && s->types[id] != PIECE_UNUSED) {
                /* User defined symbols always win. */
                float score = s->types[id] == PIECE_USER_DEFINED ? (float)((double)((float)(end - begin) * s->greatest) - 0.1) :
                              s->scores[id];
                improve(&nodes[end], score + here, id, (int32_t)begin);
                single = single || end - begin == length;
            }
            node = end < bytes ? added_child(&s->pieces, node, (uint8_t)text[end]) : -1;
        }
        if (!single)
            improve(&nodes[begin + length], unknown + here, s->unk, (int32_t)begin);
    }
    /* Reverses the back pointers in place: each node then points to the next one. */
    size_t end = bytes;
    for (int32_t next = -1; ; ) {
        int32_t begin = nodes[end].begin;
        nodes[end].begin = next;
        next = (int32_t)end;
        if (!end)
            break;
        end = (size_t)begin;
    }
    for (size_t at = 0; nodes[at].begin >= 0; at = (size_t)nodes[at].begin) {
        size_t to = (size_t)nodes[at].begin;
        if (put_piece(s, j->bpe, nodes[to].id, text + at, to - at, &j->unknown_before, j->out, err))
            return -1;
    }
    return 0;
}

int sentence_encode(const struct sentence *s, const struct bpe *bpe, const char *text, size_t bytes,
                    struct sentence_scratch *scratch, struct tokens *out, struct err *err)
{
    struct joiner joiner = { .s = s, .bpe = bpe, .scratch = scratch, .out = out };
    if (normalize(s, text, bytes, &scratch->text, err))
        return -1;
    if (scratch->text.length > INT32_MAX / 2)
        return err_set(err, ERR_INPUT, "the text has more than 2^30 bytes; split the text");
    if (!scratch->text.length)
        return 0;
    return s->unigram ? encode_unigram(&joiner, err) : encode_bpe(&joiner, err);
}
