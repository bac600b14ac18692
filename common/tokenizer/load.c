#include <stdlib.h>
#include <string.h>

#include "common/base/json_walk.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"
#include "common/tokenizer/sentence.h"

/* ---- small readers of JSON members; `where` names the element in messages ---- */

int load_bool(const json_t *object, const char *where, const char *key, bool fallback, bool *out, struct err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        *out = fallback;
    else if (json_is_boolean(value))
        *out = json_is_true(value);
    else
        return err_set(err, ERR_INPUT, "%s: \"%s\" must be true or false", where, key);
    return 0;
}

/* Refuses members that have no meaning here unless they are absent, null or the empty string. */
static int must_be_empty(const json_t *object, const char *where, const char *key, struct err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value) || (json_is_string(value) && !json_string_length(value)) ||
        (json_is_number(value) && json_number_value(value) == 0))
        return 0;
    return err_set(err, ERR_INPUT, "%s: \"%s\" is not supported", where, key);
}

/* ---- the parts of the text ---- */

/* The parts of tokenizer.json: large members are only located, and the rest is parsed as a tree. */
struct source {
    struct json_part whole, model, added, vocab, merges;
    json_t *root, *settings;            /* root: without the large members; settings: members of the model */
    size_t n_added, n_vocab, n_merges;
};

static void source_close(struct source *s)
{
    json_decref(s->root);
    json_decref(s->settings);
}

static int source_open(struct source *s, const char *json, size_t bytes, struct err *err)
{
    static const char *const large[] = { "model", "added_tokens" }, *const of_model[] = { "vocab", "merges" };
    struct json_part parts[2];
    if (json_whole(&s->whole, bytes ? json : "", bytes, err))
        return -1;
    if (!json_part_is(s->whole, '{')) {
        s->root = json_part_read(s->whole, err);
        return s->root ? 0 : -1;
    }
    if (json_split(s->whole, large, 2, parts, &s->root, err))
        return -1;
    s->model = parts[0];
    s->added = parts[1];
    if (json_part_is(s->added, '[') && json_walk_count(s->added, &s->n_added, err))
        return -1;
    if (!json_part_is(s->model, '{'))
        return 0;
    if (json_split(s->model, of_model, 2, parts, &s->settings, err))
        return -1;
    s->vocab = parts[0];
    s->merges = parts[1];
    return (json_part_is(s->vocab, '{') && json_walk_count(s->vocab, &s->n_vocab, err)) ||
           (json_part_is(s->merges, '[') && json_walk_count(s->merges, &s->n_merges, err)) ? -1 : 0;
}

static bool is_absent(struct json_part part) { return !part.text || (part.bytes == 4 && !memcmp(part.text, "null", 4)); }

/* ---- the model ---- */

/* Splits "left right", or ["left", "right"]; *skip: the entry is a version comment, not a merge. */
static int split_merge(struct json_part merge, struct text *left, struct text *right, uint32_t rank, bool *skip,
                       struct err *err)
{
    struct json_walk walk;
    int more = 1, count = 0;
    *skip = false;
    if (json_part_is(merge, '"')) {
        if (json_part_string(merge, left, err))
            return -1;
        *skip = !strncmp(left->data, "#version", 8);
        char *space = strchr(left->data, ' ');
        if (!*skip && (!space || strchr(space + 1, ' ')))
            return err_set(err, ERR_INPUT, "merge %u: \"%.40s\" must be two tokens separated by a space", rank, left->data);
        if (*skip)
            return 0;
        text_clear(right);
        if (text_puts(right, space + 1, err))
            return -1;
        left->length = (size_t)(space - left->data);
        *space = '\0';
        return 0;
    }
    if (json_part_is(merge, '[')) {
        json_walk_start(&walk, merge);
        while ((more = json_walk_next(&walk, err)) > 0 && count < 2 && json_part_is(walk.value, '"'))
            if (json_part_string(walk.value, count++ ? right : left, err))
                return -1;
    }
    if (more < 0)
        return -1;
    return more || count != 2 ? err_set(err, ERR_INPUT, "merge %u must be a string or a list of two strings", rank) : 0;
}

static int load_merges(struct tokenizer *t, const struct source *s, struct err *err)
{
    struct text left = {0}, right = {0};
    struct json_walk walk;
    uint32_t rank = 0;
    int more = 1;
    bool skip;
    if (!json_part_is(s->merges, '['))
        return err_set(err, ERR_INPUT, "model: \"merges\" must be a list");
    if (bpe_merges_start(&t->bpe, s->n_merges, err))
        return -1;
    for (json_walk_start(&walk, s->merges); more > 0 && (more = json_walk_next(&walk, err)) > 0;)
        if (split_merge(walk.value, &left, &right, rank, &skip, err) ||
            (!skip && bpe_merge_add(&t->bpe, rank++, left.data, left.length, right.data, right.length, err)))
            more = err_at(err, "model");
    text_free(&left);
    text_free(&right);
    return more;
}

static int load_vocabulary(struct tokenizer *t, const struct source *s, struct err *err)
{
    struct text content = {0};
    struct json_walk walk;
    int more = 1;
    for (json_walk_start(&walk, s->vocab); more > 0 && (more = json_walk_next(&walk, err)) > 0;) {
        int64_t id;
        if (json_part_string(walk.key, &content, err))
            more = -1;
        else if (!json_part_integer(walk.value, &id))
            more = err_set(err, ERR_INPUT, "model: the id of token \"%.40s\" is not an integer", content.data);
        else if (bpe_add(&t->bpe, content.data, content.length, id, err))
            more = err_at(err, "model");
    }
    text_free(&content);
    return more;
}

static int load_model(struct tokenizer *t, const struct source *s, struct err *err)
{
    const json_t *model = s->settings;
    static const char *const empty[] = { "dropout", "continuing_subword_prefix", "end_of_word_suffix" };
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!json_is_object(model) || (type && strcmp(type, "BPE")) || (!type && !s->merges.text))
        return err_set(err, ERR_INPUT, "model: the type \"%.40s\" is not supported; only BPE is supported",
                       type ? type : "(no type)");
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        if (must_be_empty(model, "model", empty[i], err))
            return -1;
    if (!json_part_is(s->vocab, '{'))
        return err_set(err, ERR_INPUT, "model: \"vocab\" must be an object");
    if (bpe_start(&t->bpe, s->n_vocab + s->n_added, err) ||
        load_bool(model, "model", "fuse_unk", false, &t->bpe.fuse_unk, err) ||
        load_bool(model, "model", "byte_fallback", false, &t->bpe.byte_fallback, err) ||
        load_bool(model, "model", "ignore_merges", false, &t->bpe.ignore_merges, err))
        return -1;
    if (load_vocabulary(t, s, err))
        return -1;
    return bpe_index(&t->bpe, err) ? err_at(err, "model") : 0;
}

static int load_unknown(struct tokenizer *t, const json_t *model, struct err *err)
{
    const char *unk = json_string_value(json_object_get(model, "unk_token"));
    if (unk && (t->bpe.unk = bpe_find(&t->bpe, unk, strlen(unk))) < 0)
        return err_set(err, ERR_INPUT, "model: unk_token \"%.40s\" is not in the vocabulary", unk);
    return 0;
}

/* ---- added tokens ---- */

static int load_added_token(struct tokenizer *t, const json_t *item, struct err *err)
{
    const json_t *content = json_object_get(item, "content"), *id = json_object_get(item, "id");
    size_t bytes = json_string_length(content);
    if (!json_is_string(content) || !json_is_integer(id))
        return err_set(err, ERR_INPUT, "an added token must have \"id\" and \"content\"");
    if (!bytes || bytes > TOKENIZER_ADDED_BYTES)
        return err_set(err, ERR_INPUT, "\"%.40s\" has %zu bytes, but must have 1 to %d", json_string_value(content), bytes,
                       TOKENIZER_ADDED_BYTES);
    if (mem_grow(&t->added, &t->added_room, t->n_added + 1, sizeof *t->added, err))
        return -1;
    struct added_token *token = &t->added[t->n_added];
    token->content = mem_copy(json_string_value(content), bytes, err);
    if (!token->content)
        return -1;
    t->n_added++;
    token->bytes = bytes;
    if (load_bool(item, token->content, "special", false, &token->special, err) ||
        load_bool(item, token->content, "single_word", false, &token->single_word, err) ||
        load_bool(item, token->content, "lstrip", false, &token->lstrip, err) ||
        load_bool(item, token->content, "rstrip", false, &token->rstrip, err) ||
        load_bool(item, token->content, "normalized", !token->special, &token->normalized, err))
        return -1;
    json_int_t value = json_integer_value(id);
    int32_t known = bpe_find(&t->bpe, token->content, bytes);
    if (known >= 0 && known != value)
        return err_set(err, ERR_INPUT, "\"%.40s\" has id %lld, but the vocabulary gives it id %d", token->content,
                       (long long)value,
                       (int)known);
    if (known < 0) {
        if (bpe_add(&t->bpe, token->content, bytes, value, err))
            return -1;
        t->bpe.entries[value].added = true;
    }
    token->id = (int32_t)value;
    return 0;
}

/* Adds tokens to the tries; those with "normalized" are searched in normalised text, in their normalised form. */
static int index_added(struct tokenizer *t, struct err *err)
{
    struct regex_scratch scratch = {0};
    struct text form[2] = {{0}};
    struct origins runs[2] = {{0}}, whole = {0};
    int rc = -1;
    added_trie_start(&t->raw);
    added_trie_start(&t->normalized);
    if (regex_scratch_start(&scratch, err))
        goto done;
    for (size_t i = 0; i < t->n_added; i++) {
        const char *content = t->added[i].content;
        size_t bytes = t->added[i].bytes;
        whole.n = 0;
        if (origins_put(&whole, bytes, true, err))
            goto done;
        const struct origins *origins = &whole;
        for (int k = 0; t->added[i].normalized && k < t->n_normalizers; k++) {
            struct passage in = { content, bytes, origins };
            if (t->normalizers[k].apply(&t->normalizers[k], &scratch, in, &form[k & 1], &runs[k & 1], err))
                goto done;
            content = form[k & 1].data;
            bytes = form[k & 1].length;
            origins = &runs[k & 1];
        }
        if (t->added[i].normalized && text_put(&t->added[i].form, content, bytes, err))
            goto done;
        if (bytes && added_trie_put(t->added[i].normalized ? &t->normalized : &t->raw, content, bytes, (int32_t)i, err))
            goto done;
    }
    rc = 0;
done:
    for (int k = 0; k < 2; k++) {
        text_free(&form[k]);
        mem_free(&runs[k].runs);
    }
    mem_free(&whole.runs);
    regex_scratch_free(&scratch);
    return rc;
}

static int index_by_id(struct tokenizer *t, struct err *err)
{
    t->added_by_id = mem_alloc((size_t)t->bpe.size, sizeof *t->added_by_id, err);
    if (!t->added_by_id)
        return -1;
    for (int id = 0; id < t->bpe.size; id++)
        t->added_by_id[id] = -1;
    for (size_t i = 0; i < t->n_added; i++)
        t->added_by_id[t->added[i].id] = (int32_t)i;
    return 0;
}

static int load_added(struct tokenizer *t, const struct source *s, struct err *err)
{
    struct json_walk walk;
    if (s->n_added)
        json_walk_start(&walk, s->added);
    for (size_t i = 0; i < s->n_added; i++) {
        json_t *item = json_walk_next(&walk, err) > 0 ? json_part_read(walk.value, err) : NULL;
        int rc = item ? load_added_token(t, item, err) : -1;
        json_decref(item);
        if (rc)
            return err_at(err, "added_tokens[%zu]", i);
    }
    if (bpe_index(&t->bpe, err) || index_added(t, err))
        return err_at(err, "added_tokens");
    return index_by_id(t, err);
}

/* ---- identity ---- */

static int hash_u64(struct sha256_stream *stream, uint64_t value, struct err *err)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    return sha256_stream_put(stream, bytes, sizeof bytes, err);
}

static int hash_model(const struct tokenizer *t, struct sha256_stream *stream, struct err *err)
{
    const struct bpe *bpe = &t->bpe;
    if (hash_u64(stream, (uint64_t)bpe->size, err))
        return -1;
    for (int id = 0; id < bpe->size; id++) {
        const struct vocab_entry *entry = &bpe->entries[id];
        const struct added_token *added = t->added_by_id[id] >= 0 ? &t->added[t->added_by_id[id]] : NULL;
        unsigned flags = !entry->used ? 64u : !added ? 32u : (unsigned)(added->special | added->single_word << 1 |
                         added->lstrip << 2 | added->rstrip << 3 | added->normalized << 4);
        if (hash_u64(stream, flags, err) || hash_u64(stream, entry->bytes, err) ||
            (entry->used && sha256_stream_put(stream, bpe->strings.data + entry->offset, entry->bytes, err)))
            return -1;
    }
    return hash_u64(stream, (uint64_t)(bpe->fuse_unk | bpe->byte_fallback << 1 | bpe->ignore_merges << 2), err) ||
           hash_u64(stream, (uint64_t)bpe->unk + 1, err) ? -1 : 0;
}

static int hash_merges(const struct tokenizer *t, size_t count, struct sha256_stream *stream, struct err *err)
{
    uint64_t *by_rank = mem_alloc(count, sizeof *by_rank, err);
    int rc = by_rank ? 0 : -1;
    for (size_t i = 0; !rc && i < t->bpe.n_merge_slots; i++)
        if (t->bpe.merges[i].key != UINT64_MAX)
            by_rank[t->bpe.merges[i].rank] = t->bpe.merges[i].key;
    for (size_t i = 0; !rc && i < count; i++)
        rc = hash_u64(stream, by_rank[i], err);
    mem_free(&by_rank);
    return rc;
}

static int hash_all(struct tokenizer *t, const struct source *s, struct err *err)
{
    static const char *const members[] = { "normalizer", "pre_tokenizer", "post_processor", "decoder" };
    static const size_t flags = JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);     /* for good */
    struct sha256_stream *stream = NULL;
    char *text = NULL;
    int rc = -1;
    if (sha256_stream_new(&stream, err) || hash_model(t, stream, err) ||
        hash_merges(t, s->n_merges, stream, err))
        goto done;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const json_t *member = json_object_get(s->root, members[i]);
        free(text);
        text = member ? json_text(member, flags, err) : mem_string("null", err);
        if (!text) {
            err_memory(err);
            goto done;
        }
        if (hash_u64(stream, strlen(text), err) || sha256_stream_put(stream, text, strlen(text), err))
            goto done;
    }
    rc = sha256_stream_end(&stream, &t->hash, err);
done:
    free(text);
    sha256_stream_free(&stream);
    return rc;
}

static int load(struct tokenizer *t, const struct source *s, struct err *err)
{
    const json_t *root = s->root;
    if (!json_is_object(root) || !(json_part_is(s->added, '[') || is_absent(s->added)))
        return err_set(err, ERR_INPUT, "is not a tokenizer.json; expected a JSON object with a list \"added_tokens\"");
    if (load_model(t, s, err) || load_merges(t, s, err) ||
        load_normalizer(t, root, err) || load_added(t, s, err) || load_unknown(t, s->settings, err) ||
        load_pre_tokenizer(t, root, err) || load_post_processor(t, root, err) || load_decoder(t, root, err))
        return -1;
    return hash_all(t, s, err) || decode_vocabulary(t, err) ? -1 : 0;         /* both read the elements loaded above */
}

/* ---- tokenizer.model ---- */

/* Control symbols become special added tokens. Byte pieces decode to their byte, the unknown piece to the model's text for
 * unknown tokens, other pieces to their text with spaces in place of U+2581. */
static int load_pieces(struct tokenizer *t, struct err *err)
{
    const struct sentence *s = t->sentence;
    t->byte_offsets = mem_alloc(s->count + 1, sizeof *t->byte_offsets, err);
    t->is_byte = mem_alloc(s->count, sizeof *t->is_byte, err);
    if (!t->byte_offsets || !t->is_byte || text_puts(&t->bytes, "", err))
        return -1;
    for (size_t id = 0; id < s->count; id++) {
        const struct vocab_entry *entry = &t->bpe.entries[id];
        const char *content = t->bpe.strings.data + entry->offset;
        int rc = 0;
        t->byte_offsets[id] = t->bytes.length;
        switch (s->types[id]) {
        case PIECE_CONTROL:
            if (mem_grow(&t->added, &t->added_room, t->n_added + 1, sizeof *t->added, err))
                return -1;
            struct added_token *added = &t->added[t->n_added];
            *added = (struct added_token){ .bytes = entry->bytes, .id = (int32_t)id, .special = true };
            added->content = mem_copy(content, entry->bytes, err);
            if (!added->content)
                return -1;
            t->n_added++;
            rc = text_put(&t->bytes, content, entry->bytes, err);
            break;
        case PIECE_UNKNOWN:
            rc = text_put(&t->bytes, s->unknown.data, s->unknown.length, err);
            break;
        case PIECE_BYTE:
            t->is_byte[id] = true;
            rc = text_putc(&t->bytes, (char)strtol((const char[]){ content[3], content[4], '\0' }, NULL, 16), err);
            break;
        default:
            for (size_t at = 0; at < entry->bytes && !rc;) {
                bool mark = entry->bytes - at >= 3 && !memcmp(content + at, "\xE2\x96\x81", 3);
                rc = text_putc(&t->bytes, mark ? ' ' : content[at], err);
                at += mark ? 3 : 1;
            }
        }
        if (rc)
            return -1;
    }
    t->byte_offsets[s->count] = t->bytes.length;
    return 0;
}

static int load_sentence(struct tokenizer *t, const uint8_t *data, size_t bytes, struct err *err)
{
    if (sentence_read(&t->sentence, &t->bpe, data, bytes, err) || load_pieces(t, err) || index_added(t, err) ||
        index_by_id(t, err) || hash_sha256(data, bytes, &t->hash, err))
        return -1;
    const struct sentence *s = t->sentence;
    t->decoding.byte_tokens = s->byte_fallback;
    t->decoding.strip = s->add_dummy_prefix || s->remove_extra;
    t->decoding.strip_each = s->remove_extra;
    t->decoding.unstripped = s->unk;
    memcpy(t->decoding.stripped, " ", 2);
    return s->bos >= 0 ? tokens_put(&t->before, s->bos, err) : 0;
}

/* Returns whether data is JSON, which begins with a brace. A protobuf message begins with the tag of its first piece, which
 * is a line feed. */
static bool is_json(const char *data, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && memchr(" \t\r\n", data[at], 4))
        at++;
    return !bytes || data[0] != '\n' || (at < bytes && data[at] == '{');
}

static int load_json(struct tokenizer *t, const char *json, size_t bytes, struct err *err)
{
    struct source source = {0};
    int rc = source_open(&source, json, bytes, err) || load(t, &source, err) ? -1 : 0;
    source_close(&source);
    return rc;
}

int tokenizer_new(struct tokenizer **out, const char *json, size_t bytes, struct err *err)
{
    struct tokenizer *t = mem_alloc(1, sizeof *t, err);
    if (!t)
        return -1;
    t->decoding.unstripped = -1;
    if (is_json(json, bytes) ? load_json(t, json, bytes, err) : load_sentence(t, (const uint8_t *)json, bytes, err)) {
        tokenizer_free(&t);
        return -1;
    }
    *out = t;
    return 0;
}
