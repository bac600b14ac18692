#include "common/tokenizer/tiktoken.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"
#include "common/tokenizer/patterns.h"

/* Published vocabularies: 163,584 tokens of at most 128 bytes. */
enum { TOKENS_MAX = 1 << 20, TOKEN_BYTES = 1024, RESERVED = 256, EXTRAS = 205 };

static const struct kind {
    const char *class;              /* tokenizer_class in tokenizer_config.json */
    const char *pattern;
    bool composed;                  /* normalised to NFC */
    bool by_line;                   /* a rank is the number of a line; repeated tokens are skipped and not counted */
} kinds[] = {
    [TIKTOKEN_KIMI] = {"TikTokenTokenizer", PATTERN_KIMI},
    [TIKTOKEN_HUNYUAN] = {"HYTokenizer", PATTERN_WORDS("\\p{N}"), .composed = true, .by_line = true},
};

/* ---- reading ---- */

/* Decodes one line's base64 up to the space. Returns the bytes written; -1: not base64, or too long. */
static int decode_base64(const char *text, size_t length, char out[TOKEN_BYTES])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int bytes = 0, pending = 0;
    if (!length || length % 4 || length / 4 * 3 > TOKEN_BYTES)
        return -1;
    for (int padding = 2; padding && text[length - 1] == '='; padding--)
        length--;
    for (size_t i = 0; i < length; i++) {
        const char *letter = text[i] ? strchr(letters, text[i]) : NULL;
        if (!letter)
            return -1;
        bits = bits << 6 | (uint32_t)(letter - letters);
        pending += 6;
        if (pending >= 8) {
            pending -= 8;
            out[bytes++] = (char)(bits >> pending);
        }
    }
    return bytes;
}

/* Returns the rank after the space; -1: not a number in range. */
static int64_t read_rank(const char *text, size_t length)
{
    int64_t rank = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || rank > TOKENS_MAX)
            return -1;
        rank = rank * 10 + (text[i] - '0');
    }
    return length && rank < TOKENS_MAX ? rank : -1;
}

struct token { size_t offset, bytes, line; int64_t rank; };      /* offset: in `strings` */
struct ranks {
    struct text strings;
    struct token *tokens;
    size_t count, room;
};

static int read_line(struct ranks *r, const char *line, size_t length, struct err *err)
{
    char token[TOKEN_BYTES];
    const char *space = memchr(line, ' ', length);
    const size_t coded = space ? (size_t)(space - line) : 0;
    const int bytes = space ? decode_base64(line, coded, token) : -1;
    const int64_t rank = space ? read_rank(space + 1, length - coded - 1) : -1;
    if (bytes <= 0 || rank < 0)
        return err_set(err, ERR_INPUT, "expected a line with a token of 1 to %d bytes in base64, a space and a rank below %d; "
                       "download the file again", TOKEN_BYTES, TOKENS_MAX);
    if (r->count == TOKENS_MAX)
        return err_set(err, ERR_INPUT, "the file has more than %d tokens, the limit; it is damaged", TOKENS_MAX);
    if (mem_grow(&r->tokens, &r->room, r->count + 1, sizeof *r->tokens, err))
        return -1;
    r->tokens[r->count] = (struct token){.offset = r->strings.length, .bytes = (size_t)bytes, .line = r->count, .rank = rank};
    r->count++;
    return text_put(&r->strings, token, (size_t)bytes, err);
}

static int read_lines(struct ranks *r, const struct text *file, struct err *err)
{
    size_t number = 0;
    for (size_t at = 0, end; at < file->length; at = end + 1) {
        const char *newline = memchr(file->data + at, '\n', file->length - at);
        end = newline ? (size_t)(newline - file->data) : file->length;
        const size_t length = end - at - (end > at && file->data[end - 1] == '\r');
        number++;
        if (length && read_line(r, file->data + at, length, err))
            return err_at(err, "line %zu", number);
    }
    return r->count ? 0 : err_set(err, ERR_INPUT, "the file has no tokens; download it again");
}

struct ordered { const char *data; size_t bytes, line; };

static int compare(const void *left, const void *right)
{
    const struct ordered *a = left, *b = right;
    const int order = memcmp(a->data, b->data, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order                ? order :
           a->bytes != b->bytes ? (a->bytes < b->bytes ? -1 : 1) :
                                  (a->line > b->line) - (a->line < b->line);
}

/* Ranks tokens by their lines, without those that an earlier line has, too. */
static int rank_by_line(struct ranks *r, struct err *err)
{
    struct ordered *sorted = mem_alloc(r->count, sizeof *sorted, err);
    size_t kept = 0;
    if (!sorted)
        return -1;
    for (size_t i = 0; i < r->count; i++)
        sorted[i] = (struct ordered){r->strings.data + r->tokens[i].offset, r->tokens[i].bytes, i};
    qsort(sorted, r->count, sizeof *sorted, compare);
    for (size_t i = 0; i < r->count; i++) {
        const bool repeated = i && sorted[i].bytes == sorted[i - 1].bytes &&
                              !memcmp(sorted[i].data, sorted[i - 1].data, sorted[i].bytes);
        r->tokens[sorted[i].line].rank = repeated ? -1 : 0;
    }
    for (size_t i = 0; i < r->count; i++)
        if (r->tokens[i].rank >= 0) {
            r->tokens[kept] = r->tokens[i];
            r->tokens[kept].rank = (int64_t)kept;
            kept++;
        }
    r->count = kept;
    mem_free(&sorted);
    return 0;
}

static int index_tokens(struct bpe *bpe, const struct ranks *r, struct err *err)
{
    if (bpe_start(bpe, r->count, err))
        return -1;
    for (size_t i = 0; i < r->count; i++)
        if (bpe_add(bpe, r->strings.data + r->tokens[i].offset, r->tokens[i].bytes, r->tokens[i].rank, err))
            return err_at(err, "token %zu", i + 1);
    if (bpe_index(bpe, err))
        return -1;
    if ((size_t)bpe->size != r->count)
        return err_set(err, ERR_INPUT, "the highest rank is %d, but there are %zu tokens; download the file again",
                       bpe->size - 1,
                       r->count);
    return 0;
}

/* ---- writing ---- */

/* Writes bytes as a JSON string of the byte-level alphabet. */
static int put_letters(struct text *out, const char *bytes, size_t count, struct err *err)
{
    if (text_putc(out, '"', err))
        return -1;
    for (size_t i = 0; i < count; i++) {
        char letter[4];
        const int length = utf8_put(letter, byte_level_char((uint8_t)bytes[i]));
        if (((bytes[i] == '"' || bytes[i] == '\\') && text_putc(out, '\\', err)) ||
            text_put(out, letter, (size_t)length, err))
            return -1;
    }
    return text_putc(out, '"', err);
}

/* Returns the offset of the border between a token's last two pieces when only pairs of a lower rank are merged; 0: the
 * number of pieces left is not two. */
static size_t find_border(const struct bpe *bpe, const char *token, size_t bytes, int32_t rank)
{
    uint16_t starts[TOKEN_BYTES + 1];           /* offset of each piece; then the end */
    int32_t joined[TOKEN_BYTES];                /* rank of a piece joined with the next one; INT32_MAX: no token */
    size_t pieces = bytes;
    for (size_t i = 0; i <= bytes; i++)
        starts[i] = (uint16_t)i;
    for (size_t i = 0; i + 1 < bytes; i++) {
        const int32_t id = bpe_find(bpe, token + i, 2);
        joined[i] = id < 0 ? INT32_MAX : id;
    }
    while (pieces > 2) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < pieces; i++)
            if (joined[i] < joined[best])
                best = i;
        if (joined[best] >= rank)
            return 0;
        memmove(starts + best + 1, starts + best + 2, (pieces - best - 1) * sizeof *starts);
        if (best + 2 < pieces)
            memmove(joined + best, joined + best + 1, (pieces - best - 2) * sizeof *joined);
        pieces--;
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < pieces; i++) {
            const int32_t id = bpe_find(bpe, token + starts[i], (size_t)starts[i + 2] - starts[i]);
            joined[i] = id < 0 ? INT32_MAX : id;
        }
    }
    return pieces == 2 ? starts[1] : 0;
}

static int put_merge(struct text *out, const char *token, size_t border, size_t bytes, bool first, struct err *err)
{
    return text_puts(out, first ? "[" : ",[", err) || put_letters(out, token, border, err) || text_putc(out, ',', err) ||
           put_letters(out, token + border, bytes - border, err) || text_putc(out, ']', err) ? -1 : 0;
}

static int put_model(struct text *out, const struct bpe *bpe, struct err *err)
{
    size_t put = 0;
    if (text_puts(out, "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{", err))
        return -1;
    for (int id = 0; id < bpe->size; id++) {
        const struct vocab_entry *entry = &bpe->entries[id];
        if ((id && text_putc(out, ',', err)) || put_letters(out, bpe->strings.data + entry->offset, entry->bytes, err) ||
            text_printf(out, err, ":%d", id))
            return -1;
    }
    if (text_puts(out, "},\"merges\":[", err))
        return -1;
    for (int id = 0; id < bpe->size; id++) {
        const struct vocab_entry *entry = &bpe->entries[id];
        const char *token = bpe->strings.data + entry->offset;
        const size_t bytes = entry->bytes, border = find_border(bpe, token, bytes, id);
        for (size_t at = border ? border : 1; at < bytes; at = border ? bytes : at + 1)
            if ((border || (bpe_find(bpe, token, at) >= 0 && bpe_find(bpe, token + at, bytes - at) >= 0)) &&
                put_merge(out, token, at, bytes, put++ == 0, err))
                return -1;
    }
    return text_puts(out, "]}", err);
}

/* Returns the name of a special token: index counts from the first one. *special: false if tokenizer_config.json says so. */
static const char *name_special(enum tiktoken_model model, const json_t *given, int index, int id, char made[64], bool *special)
{
    static const char *const names[] = {"<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"};
    enum { NAMES = sizeof names / sizeof *names };
    *special = true;
    if (model == TIKTOKEN_HUNYUAN) {
        snprintf(made, 64, "<|extra_%d|>", index - NAMES);
        return index < NAMES ? names[index] : made;
    }
    snprintf(made, 64, "%d", id);
    const json_t *token = json_object_get(given, made), *content = json_object_get(token, "content");
    if (json_is_string(content) && json_string_length(content)) {
        *special = !json_is_false(json_object_get(token, "special"));
        return json_string_value(content);
    }
    snprintf(made, 64, "<|reserved_token_%d|>", id);
    return made;
}

static int put_specials(struct text *out, enum tiktoken_model model, const json_t *given, int first, struct err *err)
{
    const int count = model == TIKTOKEN_HUNYUAN ? 5 + EXTRAS : RESERVED;
    if (text_puts(out, "{\"added_tokens\":[", err))
        return -1;
    for (int i = 0; i < count; i++) {
        char made[64];
        bool special;
        const char *name = name_special(model, given, i, first + i, made, &special);
        if (i && text_putc(out, ',', err))
            return -1;
        json_t *token = json_pack("{s:i,s:s,s:b,s:b}", "id", first + i, "content", name, "special", special, "normalized", 0);
        char *text = token ? json_text(token, JSON_COMPACT, err) : NULL;
        json_decref(token);
        const int rc = text ? text_puts(out, text, err) : err_memory(err);
        mem_free(&text);
        if (rc)
            return -1;
    }
    return text_puts(out, "],", err);
}

static int put_splits(struct text *out, const struct kind *kind, struct err *err)
{
    json_t *pattern = json_string(kind->pattern);
    char *text = pattern ? json_text(pattern, JSON_ENCODE_ANY, err) : NULL;
    json_decref(pattern);
    if (!text)
        return err_memory(err);
    const int rc = text_printf(out, err, "%s\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                               "\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":%s}},{\"type\":\"ByteLevel\","
                               "\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},",
                               kind->composed ? "\"normalizer\":{\"type\":\"NFC\"}," : "", text);
    mem_free(&text);
    return rc;
}

/* Returns the object of tokenizer_config.json; NULL with err set if it names another tokenizer class. */
static json_t *read_config(const struct kind *kind, const struct text *config, struct err *err)
{
    json_error_t fault;
    json_t *root = config->length ? json_read(config->data, config->length, JSON_REJECT_DUPLICATES, &fault) : json_object();
    const char *class = json_string_value(json_object_get(root, "tokenizer_class"));
    if (!root)
        err_memory(err);            /* the text was read once before */
    if (!class || !strcmp(class, kind->class))
        return root;
    err_set(err, ERR_INPUT, "tokenizer_config.json has the tokenizer_class \"%.60s\", but files of this kind are supported "
            "for %s only; put the model's tokenizer.json into the folder", class, kind->class);
    json_decref(root);
    return NULL;
}

int tiktoken_json(struct text *out, enum tiktoken_model model, const struct text *ranks, const struct text *config,
                  struct err *err)
{
    const struct kind *kind = &kinds[model];
    struct ranks read = {.tokens = NULL};
    struct bpe bpe = {.unk = -1};
    struct text made = {0};
    json_t *root = read_config(kind, config, err);
    int rc = -1;
    if (!root || read_lines(&read, ranks, err) || (kind->by_line && rank_by_line(&read, err)) ||
        index_tokens(&bpe, &read, err) ||
        put_specials(&made, model, json_object_get(root, "added_tokens_decoder"), bpe.size, err) ||
        put_splits(&made, kind, err) || put_model(&made, &bpe, err) || text_putc(&made, '}', err))
        goto done;
    text_free(out);
    *out = made;
    made = (struct text){0};
    rc = 0;
done:
    text_free(&made);
    text_free(&read.strings);
    mem_free(&read.tokens);
    bpe_free(&bpe);
    json_decref(root);
    return rc;
}
