#include "common/draft/suffix_corpus.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/model/model.h"
#include "common/stream/decode.h"
#include "common/stream/reader.h"
#include "common/tokenizer/tokenizer.h"

enum { INDEX_VERSION = 2 };

static const uint8_t magic[8] = {0x89, 'M', 'O', 'E', 'S', 'F', 'X', '\n'};

struct index_head {
    uint8_t magic[8];
    uint32_t version, depth;
    uint64_t tokens, nodes, texts;
    struct sha256 tokenizer;            /* zeros: unknown */
    struct digest128 digest;            /* digest of the file, computed with zeros in this member */
};

struct suffix_corpus {
    struct suffix_corpus_setup setup;
    struct suffix_tree tree;
    struct file_map map;                /* the mapped index, into which the tree points; unused if the tree owns its arrays */
    struct sha256 tokenizer_id;         /* zeros: unknown */
    struct tokenizer *tokenizer;        /* loaded when there is text to tokenise */
    struct tokens ids;                  /* scratch */
    int64_t texts;
    double seconds;
    bool loaded;
};

void suffix_corpus_close(struct suffix_corpus **corpus)
{
    struct suffix_corpus *c = *corpus;
    if (!c)
        return;
    suffix_tree_free(&c->tree);
    file_map_close(&c->map);
    tokenizer_free(&c->tokenizer);
    tokens_free(&c->ids);
    mem_free(corpus);
}

const struct suffix_tree *suffix_corpus_tree(const struct suffix_corpus *corpus) { return &corpus->tree; }

void suffix_corpus_describe(const struct suffix_corpus *corpus, char *out, size_t room)
{
    snprintf(out, room, "%d tokens of %lld texts, index of %.1f MB %s in %.2f s", corpus->tree.tokens,
             (long long)corpus->texts, (double)suffix_tree_bytes(&corpus->tree) / 1e6, corpus->loaded ? "loaded" : "built",
             corpus->seconds);
}

/* ---- texts ---- */

static int add_ids(struct suffix_corpus *corpus, const int32_t *token, int count, struct err *err)
{
    for (int at = 0; at < count; at++)
        if (token[at] < 0 || token[at] >= corpus->setup.vocab)
            return err_set(err, ERR_INPUT, "token %d is outside the vocabulary of %d tokens; use answers of this model",
                           (int)token[at], corpus->setup.vocab);
    corpus->texts++;
    return suffix_tree_add(&corpus->tree, token, count, err);
}

static int add_text(struct suffix_corpus *corpus, const char *text, size_t bytes, struct err *err)
{
    size_t fault = utf8_fault(text, bytes);
    const char *nul = memchr(text, 0, bytes);
    if (fault < bytes || nul)
        return err_set(err, ERR_INPUT, "byte %zu is not valid UTF-8, so this is not text, nor is it an index, a decode stream "
                       "or token ids; name a corpus of one of these kinds",
                       fault < bytes ? fault : (size_t)(nul - text));
    if (!corpus->tokenizer) {
        size_t length = 0;
        const char *json = corpus->setup.model ? model_tokenizer_json(corpus->setup.model, &length) : NULL;
        if (!json)
            return err_set(err, ERR_INPUT, "a corpus of text needs a tokenizer, which the model does not have; give token ids");
        if (tokenizer_new(&corpus->tokenizer, json, length, err))
            return -1;
    }
    corpus->ids.n = 0;
    return tokenizer_encode(corpus->tokenizer, text, bytes, 0, &corpus->ids, err) ||
           add_ids(corpus, corpus->ids.ids, corpus->ids.n, err) ? -1 : 0;
}

/* Adds a text that is a list of token ids. */
static int add_list(struct suffix_corpus *corpus, const json_t *list, struct err *err)
{
    size_t count = json_array_size(list);
    int32_t *token = mem_alloc(count, sizeof *token, err);
    int rc = token && count <= SUFFIX_TOKENS_MAX ? 0 : -1;
    for (size_t at = 0; !rc && at < count; at++) {
        const json_t *item = json_array_get(list, at);
        json_int_t value = json_integer_value(item);
        if (!json_is_integer(item) || value < 0 || value > INT32_MAX)
            rc = err_set(err, ERR_INPUT, "item %zu is not a token id; expected a list of token ids, or text", at + 1);
        token[at] = (int32_t)value;
    }
    rc = rc ? rc : add_ids(corpus, token, (int)count, err);
    mem_free(&token);
    return rc;
}

static int add_line(struct suffix_corpus *corpus, const char *line, size_t bytes, struct err *err)
{
    json_error_t fault;
    json_t *item = json_read(line, bytes, JSON_REJECT_DUPLICATES, &fault);
    const json_t *tokens = json_is_array(item) ? item : json_object_get(item, "tokens"), *text = json_object_get(item, "text");
    int rc;
    if (!item)
        rc = json_no_memory(&fault)
            ? err_memory(err) : err_set(err, ERR_INPUT, "not valid JSON: %s; if the file is plain text, give its name the "
                                        "ending .txt", fault.text);
    else if (json_is_array(tokens))
        rc = add_list(corpus, tokens, err);
    else if (json_is_string(text))
        rc = add_text(corpus, json_string_value(text), json_string_length(text), err);
    else
        rc = err_set(err, ERR_INPUT, "expected a list of token ids, or an object with `tokens' or `text'");
    json_decref(item);
    return rc;
}

static int add_lines(struct suffix_corpus *corpus, const char *data, size_t bytes, struct err *err)
{
    const char *end = data + bytes;
    int64_t number = 1;
    for (const char *line = data; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        const char *first = line;
        while (first < stop && (*first == ' ' || *first == '\t' || *first == '\r'))
            first++;
        if (first < stop && add_line(corpus, line, (size_t)(stop - line), err))
            return err_at(err, "line %lld", (long long)number);
        line = stop + 1;
    }
    return 0;
}

static int add_stream(struct suffix_corpus *corpus, const char *path, struct err *err)
{
    struct reader *in = NULL;
    const struct record *record;
    char hex[65] = "";
    int more;
    static const struct sha256 none;
    if (reader_open(&in, path, STREAM_DECODE, NULL, err))
        return -1;
    const struct header *header = reader_header(in);
    if (memcmp(&corpus->tokenizer_id, &none, sizeof none))
        sha256_hex(&corpus->tokenizer_id, hex);
    if (header->has_model && hex[0] && header->model.tokenizer_sha256[0] && strcmp(hex, header->model.tokenizer_sha256)) {
        more = err_set(err, ERR_INPUT, "%s: its tokens come from another tokenizer; use answers of this model, or their text",
                       path);
        goto done;
    }
    while ((more = reader_next(in, &record, err)) > 0) {
        const struct decode_done *done = record->body;
        if (record->kind == &decode_done_kind && add_ids(corpus, done->tokens, done->n, err)) {
            more = err_at(err, "%s", path);
            break;
        }
    }
done:
    reader_close(&in);
    return more;
}

/* ---- the index as a file ---- */

static struct index_head head_of(const struct suffix_corpus *corpus)
{
    const struct suffix_tree *tree = &corpus->tree;
    struct index_head head = {.version = INDEX_VERSION, .depth = (uint32_t)tree->depth, .tokens = (uint64_t)tree->tokens,
                              .nodes = (uint64_t)tree->nodes, .texts = (uint64_t)corpus->texts,
                              .tokenizer = corpus->tokenizer_id};
    memcpy(head.magic, magic, sizeof magic);
    return head;
}

static int digest_index(const struct index_head *head, const void *tokens, size_t token_bytes, const void *nodes,
                        size_t node_bytes, struct digest128 *out, struct err *err)
{
    struct index_head blank = *head;
    struct xxh3_stream *stream = NULL;
    if (xxh3_stream_new(&stream, err))
        return -1;
    blank.digest = (struct digest128){0, 0};
    xxh3_stream_put(stream, &blank, sizeof blank);
    xxh3_stream_put(stream, tokens, token_bytes);
    xxh3_stream_put(stream, nodes, node_bytes);
    *out = xxh3_stream_digest(stream);
    xxh3_stream_free(&stream);
    return 0;
}

static bool is_index(const uint8_t *data, size_t bytes)
{
    return bytes >= sizeof magic && !memcmp(data, magic, sizeof magic);
}

int suffix_corpus_save(const struct suffix_corpus *corpus, const char *path, struct err *err)
{
    const struct suffix_tree *tree = &corpus->tree;
    const size_t token_bytes = (size_t)tree->tokens * sizeof *tree->token;
    const size_t node_bytes = (size_t)tree->nodes * sizeof *tree->node;
    struct index_head head = head_of(corpus);
    struct output *out = NULL;
    struct file_map old = {0};
    bool other = !access(path, F_OK) && (file_map_open(&old, path, NULL) || !is_index(old.data, old.bytes));
    file_map_close(&old);
    if (other)
        return err_set(err, ERR_INPUT, "%s: already exists, and is not the index of a corpus; save the index to another file",
                       path);
    if (digest_index(&head, tree->token, token_bytes, tree->node, node_bytes, &head.digest, err) ||
        output_open(&out, path, err))
        return -1;
    if (output_write(out, &head, sizeof head, err) || output_write(out, tree->token, token_bytes, err) ||
        output_write(out, tree->node, node_bytes, err)) {
        output_discard(&out);
        return -1;
    }
    return output_commit(&out, err);
}

/* Loads an index, which is mapped at corpus->map. */
static int load(struct suffix_corpus *corpus, struct err *err)
{
    static const struct sha256 none;
    const uint8_t *data = corpus->map.data;
    const size_t bytes = corpus->map.bytes;
    struct index_head head;
    struct digest128 digest;
    bool sound;
    if (bytes < sizeof head)
        return err_set(err, ERR_INPUT, "the index is truncated; build it again");
    memcpy(&head, data, sizeof head);
    if (head.version != INDEX_VERSION)
        return err_set(err, ERR_INPUT, "the index has version %u, but this program reads version %d; build it again",
                       (unsigned)head.version, INDEX_VERSION);
    if (head.depth < 2 || head.depth > SUFFIX_DEPTH_MAX || head.tokens > SUFFIX_TOKENS_MAX || !head.nodes ||
        head.nodes > 2 * head.tokens + 1 ||
        bytes != sizeof head + head.tokens * sizeof(int32_t) + head.nodes * sizeof(struct suffix_node))
        return err_set(err, ERR_INPUT, "the index is damaged: its sizes contradict its length of %zu bytes; build it again",
                       bytes);
    const size_t token_bytes = (size_t)head.tokens * sizeof(int32_t);
    const uint8_t *nodes = data + sizeof head + token_bytes;
    if (digest_index(&head, data + sizeof head, token_bytes, nodes, (size_t)head.nodes * sizeof(struct suffix_node), &digest,
                     err))
        return -1;
    if (digest.low != head.digest.low || digest.high != head.digest.high)
        return err_set(err, ERR_INPUT, "the index is damaged: its digest is wrong; build it again");
    if (memcmp(&head.tokenizer, &none, sizeof none) && memcmp(&corpus->tokenizer_id, &none, sizeof none) &&
        memcmp(&head.tokenizer, &corpus->tokenizer_id, sizeof none))
        return err_set(err, ERR_INPUT, "the index has tokens of another tokenizer; build it again from answers of this model");
    corpus->tree = (struct suffix_tree){
        .depth = (int)head.depth, .tokens = (int)head.tokens, .nodes = (int)head.nodes,
        .token = (const int32_t *)(const void *)(data + sizeof head), .node = (const struct suffix_node *)(const void *)nodes};
    corpus->texts = (int64_t)head.texts;
    corpus->loaded = true;
    if (suffix_tree_adopt(&corpus->tree, corpus->setup.vocab, &sound, err))
        return -1;
    return sound ? 0 : err_set(err, ERR_INPUT, "the index is not a valid tree of this model's tokens; build it again");
}

/* ---- */

static int build(struct suffix_corpus *corpus, const char *path, struct err *err)
{
    const uint8_t *data = corpus->map.data;
    const size_t bytes = corpus->map.bytes;
    size_t first = 0;
    if (suffix_tree_init(&corpus->tree, corpus->setup.depth, err))
        return -1;
    while (first < bytes && strchr(" \t\r\n", data[first] ? data[first] : 'x'))
        first++;
    if (first == bytes)
        return err_set(err, ERR_INPUT, "%s: the corpus is empty; name files with texts", path);
    bool lines = !text_ends(path, ".txt") && (data[first] == '{' || data[first] == '[');
    if (reader_sniff(data, bytes)) {
        if (add_stream(corpus, path, err))
            return -1;
    } else if (lines ? add_lines(corpus, (const char *)data, bytes, err) : add_text(corpus, (const char *)data, bytes, err)) {
        return err_at(err, "%s", path);
    }
    file_map_close(&corpus->map);
    return suffix_tree_sort(&corpus->tree, err);
}

int suffix_corpus_grow(struct suffix_corpus *corpus, struct err *err) { return suffix_tree_thaw(&corpus->tree, err); }

int suffix_corpus_add(struct suffix_corpus *corpus, const int32_t *token, int count, struct err *err)
{
    return add_ids(corpus, token, count, err);
}

int suffix_corpus_open(struct suffix_corpus **out, const char *path, const struct suffix_corpus_setup *setup, struct err *err)
{
    struct suffix_corpus *corpus = mem_alloc(1, sizeof *corpus, err);
    const double began = clock_seconds();
    if (!corpus)
        return -1;
    corpus->setup = *setup;
    if (setup->model)
        corpus->tokenizer_id = model_identity(setup->model)->tokenizer;
    if (!path) {
        if (suffix_tree_init(&corpus->tree, setup->depth, err))
            goto failed;
        *out = corpus;
        return 0;
    }
    if (file_map_open(&corpus->map, path, err))
        goto failed;
    bool index = is_index(corpus->map.data, corpus->map.bytes);
    if (index ? load(corpus, err) && err_at(err, "%s", path) : build(corpus, path, err))
        goto failed;
    corpus->seconds = clock_seconds() - began;
    *out = corpus;
    return 0;
failed:
    suffix_corpus_close(&corpus);
    return -1;
}
