/* Makes the tokenizer of a GGUF file. Byte-level vocabularies (model gpt2) become a tokenizer.json: the file contains
 * tokens, their kinds and the merges, and tokenizer.ggml.pre names the pre-tokenizer (gguf_pre.c). SentencePiece
 * vocabularies (model llama) become a tokenizer.model; the file contains its scores and kinds unchanged. */
#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/checkpoint/gguf_pre.h"
#include "common/tokenizer/sentence.h"

/* Far beyond published vocabularies: 262144 tokens, 500000 merges. */
enum { TOKENS_MAX = 1 << 20, MERGES_MAX = 1 << 21 };

/* Kinds of tokens are those of SentencePiece: enum piece_type. */
struct vocabulary {
    const struct gguf *gguf;
    const struct gguf_entry *tokens, *types, *scores, *merges;
    int64_t bos, eos, pad, unk;         /* -1: none */
    bool add_bos, add_eos;
};

static int read_vocabulary(struct vocabulary *v, bool bytes, const struct pre_tokenizer *pre, struct err *err)
{
    const struct gguf *g = v->gguf;
    struct err fault = {0};
    v->tokens = gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &fault);
    v->types = fault.code ? NULL : gguf_array(g, "tokenizer.ggml.token_type", GGUF_I32, &fault);
    v->scores = fault.code || bytes ? NULL : gguf_array(g, "tokenizer.ggml.scores", GGUF_F32, &fault);
    v->merges = fault.code || !bytes ? NULL : gguf_array(g, "tokenizer.ggml.merges", GGUF_STRING, &fault);
    if (fault.code)
        return err_set(err, fault.code, "%s", fault.text);
    if (!v->tokens || !v->tokens->count || !(bytes ? v->merges : v->scores))
        return err_set(err, ERR_INPUT, "tokenizer.ggml.%s is missing, so the tokenizer is incomplete; put the GGUF file and "
                       "the model's tokenizer.json into one folder, and convert that folder",
                       !v->tokens || !v->tokens->count ? "tokens" : bytes ? "merges" : "scores");
    if ((v->types && v->types->count != v->tokens->count) || (v->scores && v->scores->count != v->tokens->count))
        return err_set(err, ERR_INPUT, "tokenizer.ggml.%s and tokenizer.ggml.tokens have different lengths; the file is "
                       "damaged",
                       v->types && v->types->count != v->tokens->count ? "token_type" : "scores");
    if (v->tokens->count > TOKENS_MAX || (v->merges && v->merges->count > MERGES_MAX))
        return err_set(err, ERR_INPUT, "tokenizer.ggml.%s has more than %d entries, the limit; the file is damaged",
                       v->tokens->count > TOKENS_MAX ? "tokens" : "merges",
                       v->tokens->count > TOKENS_MAX ? TOKENS_MAX : MERGES_MAX);
    v->add_bos = bytes ? pre->begins : true;
    const int64_t count = (int64_t)v->tokens->count;
    return gguf_token_id(g, "tokenizer.ggml.bos_token_id", count, &v->bos, err) ||
           gguf_token_id(g, "tokenizer.ggml.eos_token_id", count, &v->eos, err) ||
           gguf_token_id(g, "tokenizer.ggml.padding_token_id", count, &v->pad, err) ||
           gguf_token_id(g, "tokenizer.ggml.unknown_token_id", count, &v->unk, err) ||
           gguf_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos, err) ||
           gguf_bool(g, "tokenizer.ggml.add_eos_token", &v->add_eos, err) ? -1 : 0;
}

/* Returns the type of a token. Only one token is the unknown one. If its id is given, types in files are unreliable:
 * placeholders have its type, too, or the token itself has another type. */
static int type_of(const struct vocabulary *v, size_t id)
{
    int64_t type = v->types ? gguf_integer_at(v->gguf, v->types, id) : PIECE_NORMAL;
    if (v->scores && v->unk >= 0 && (size_t)v->unk == id)
        return PIECE_UNKNOWN;
    if (type == PIECE_UNKNOWN && v->unk >= 0)
        return PIECE_CONTROL;
    return type < PIECE_NORMAL || type > PIECE_BYTE ? PIECE_NORMAL : (int)type;
}

/* ---- ends ---- */

/* If a vocabulary has "<|return|>" and "<|call|>" (gpt-oss), these two end an answer, and "<|end|>" ends a message, after
 * which the next one follows. */
enum { END, RETURN, CALL };
static const char *const ENDS[] = {
    [END] = "<|end|>", [RETURN] = "<|return|>", [CALL] = "<|call|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
    "<|im_end|>", "<|endoftext|>", "<end_of_turn>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "</s>", "<eos>",
    "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};
enum { END_COUNT = sizeof ENDS / sizeof *ENDS };

/* Finds the ids of ENDS. Lists of different lengths give no ids: the tokenizer refuses them. */
static void find_ends(const struct gguf *g, int64_t vocab, int64_t found[END_COUNT])
{
    const struct gguf_entry *tokens = gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING, NULL);
    const struct gguf_entry *types = gguf_array(g, "tokenizer.ggml.token_type", GGUF_I32, NULL);
    for (int i = 0; i < END_COUNT; i++)
        found[i] = -1;
    if (!tokens || !types || types->count != tokens->count)
        return;
    size_t at = tokens->at;
    for (size_t id = 0; id < tokens->count && (int64_t)id < vocab; id++) {
        const struct gguf_string token = gguf_next_string(g, &at);
        const int64_t type = gguf_integer_at(g, types, id);
        for (int i = 0; (type == PIECE_CONTROL || type == PIECE_USER_DEFINED) && i < END_COUNT; i++)
            if (gguf_same(token, ENDS[i]))
                found[i] = (int64_t)id;
    }
    if (found[RETURN] >= 0 && found[CALL] >= 0)
        found[END] = -1;
}

static void add_end(int64_t ids[EOS_MAX], int *count, int64_t id)
{
    for (int i = 0; i < *count; i++)
        if (ids[i] == id)
            return;
    if (id >= 0 && *count < EOS_MAX)
        ids[(*count)++] = id;
}

int gguf_ends(const struct gguf *g, int64_t vocab, int64_t ids[EOS_MAX], int *count, struct err *err)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t id, found[END_COUNT];
    *count = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (gguf_token_id(g, keys[i], vocab, &id, err))
            return -1;
        add_end(ids, count, id);
    }
    find_ends(g, vocab, found);
    for (int i = 0; i < END_COUNT; i++)
        add_end(ids, count, found[i]);
    return 0;
}

/* ---- JSON ---- */

static int check_text(struct gguf_string s, const char *what, size_t index, struct err *err)
{
    if (s.bytes > 2 * PIECE_BYTES)
        return err_set(err, ERR_INPUT, "%s %zu has more than %d bytes, the limit; the file is damaged", what, index,
                       2 * PIECE_BYTES);
    if (!memchr(s.data, 0, s.bytes) && utf8_fault(s.data, s.bytes) == s.bytes)
        return 0;
    return err_set(err, ERR_INPUT, "%s %zu is not UTF-8 without NULs; the file is damaged", what, index);
}

static int put_string(struct text *out, struct gguf_string s, struct err *err)
{
    size_t from = 0;
    if (text_putc(out, '"', err))
        return -1;
    for (size_t i = 0; i <= s.bytes; i++) {
        unsigned char byte = i < s.bytes ? (unsigned char)s.data[i] : 0;
        if (i < s.bytes && byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
        if (text_put(out, s.data + from, i - from, err) || (i < s.bytes && text_printf(out, err, "\\u%04x", byte)))
            return -1;
        from = i + 1;
    }
    return text_putc(out, '"', err);
}

static int put_chars(struct text *out, const char *text, struct err *err)
{
    return put_string(out, (struct gguf_string){text, strlen(text)}, err);
}

static struct gguf_string token_at(const struct vocabulary *v, int64_t id)
{
    struct gguf_string token = {"", 0};
    size_t at = v->tokens->at;
    for (int64_t i = 0; i <= id; i++)
        token = gguf_next_string(v->gguf, &at);
    return token;
}

static int check_size(const struct text *out, enum source_text which, struct err *err)
{
    if (out->length <= source_text_kinds[which].limit)
        return 0;
    return err_set(err, ERR_INPUT, "the tokenizer is larger than the limit of %zu bytes",
                   source_text_kinds[which].limit);
}

/* Writes added_tokens: special and other tokens that are matched with the text before all other steps. */
static int put_added(struct text *out, const struct vocabulary *v, struct err *err)
{
    size_t at = v->tokens->at, put = 0;
    if (text_puts(out, "\"added_tokens\":[", err))
        return -1;
    for (size_t id = 0; id < v->tokens->count; id++) {
        struct gguf_string token = gguf_next_string(v->gguf, &at);
        int type = type_of(v, id);
        if (check_text(token, "token", id, err) || check_size(out, TEXT_TOKENIZER, err))
            return -1;
        if (type == PIECE_NORMAL || type == PIECE_UNUSED || type == PIECE_BYTE)
            continue;
        if (text_printf(out, err, "%s{\"id\":%zu,\"special\":%s,\"normalized\":false,\"content\":", put++ ? "," : "", id,
                        type == PIECE_USER_DEFINED ? "false" : "true") ||
            put_string(out, token, err) || text_putc(out, '}', err))
            return -1;
    }
    return text_puts(out, "],", err);
}

/* Writes the model. Tokens of type UNUSED pad the vocabulary; no text is encoded as one of these. */
static int put_model(struct text *out, const struct vocabulary *v, const struct pre_tokenizer *pre, struct err *err)
{
    size_t at = v->tokens->at, put = 0;
    if (text_printf(out, err, "\"model\":{\"type\":\"BPE\",\"ignore_merges\":%s,\"vocab\":{",
                    pre->whole_words ? "true" : "false"))
        return -1;
    for (size_t id = 0; id < v->tokens->count; id++) {
        struct gguf_string token = gguf_next_string(v->gguf, &at);
        if (type_of(v, id) != PIECE_NORMAL)
            continue;
        if ((put++ && text_putc(out, ',', err)) || put_string(out, token, err) || text_printf(out, err, ":%zu", id) ||
            check_size(out, TEXT_TOKENIZER, err))
            return -1;
    }
    if (text_puts(out, "},\"merges\":[", err))
        return -1;
    at = v->merges->at;
    for (size_t i = 0; i < v->merges->count; i++) {
        struct gguf_string merge = gguf_next_string(v->gguf, &at);
        if (check_text(merge, "merge", i, err) || (i && text_putc(out, ',', err)) || put_string(out, merge, err) ||
            check_size(out, TEXT_TOKENIZER, err))
            return -1;
    }
    return text_puts(out, "]}", err);
}

static int put_frame_token(struct text *out, const struct vocabulary *v, int64_t id, const char *before, const char *after,
                           struct err *err)
{
    return text_printf(out, err, "%s{\"SpecialToken\":{\"type_id\":0,\"id\":", before) ||
           put_string(out, token_at(v, id), err) || text_printf(out, err, "}}%s", after) ? -1 : 0;
}

static int put_frame_id(struct text *out, const struct vocabulary *v, int64_t id, struct err *err)
{
    return put_string(out, token_at(v, id), err) || text_printf(out, err, ":{\"ids\":[%lld]}", (long long)id) ? -1 : 0;
}

/* Writes the post-processor: the tokens before and after a text. */
static int put_frame(struct text *out, const struct vocabulary *v, struct err *err)
{
    const bool begin = v->add_bos && v->bos >= 0, end = v->add_eos && v->eos >= 0, both = begin && end && v->bos != v->eos;
    if (!begin && !end)
        return 0;
    if (text_puts(out, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[", err) ||
        (begin && put_frame_token(out, v, v->bos, "", ",", err)) ||
        text_puts(out, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", err) ||
        (end && put_frame_token(out, v, v->eos, ",", "", err)) || text_puts(out, "],\"special_tokens\":{", err) ||
        (begin && put_frame_id(out, v, v->bos, err)) || (both && text_putc(out, ',', err)) ||
        (end && (both || !begin) && put_frame_id(out, v, v->eos, err)))
        return -1;
    return text_puts(out, "}},", err);
}

static int put_split(struct text *out, const char *pattern, bool last, struct err *err)
{
    return text_puts(out, "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":", err) ||
           put_chars(out, pattern, err) || text_puts(out, last ? "}}" : "}},", err) ? -1 : 0;
}

static int put_pre_tokenizer(struct text *out, const struct pre_tokenizer *pre, struct err *err)
{
    if (text_puts(out, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[", err))
        return -1;
    if (pre->punctuation && text_puts(out, "{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"},", err))
        return -1;
    for (int i = 0; i < PRE_PATTERNS && pre->patterns[i]; i++)
        if (put_split(out, pre->patterns[i], false, err))
            return -1;
    if ((pre->digits && text_puts(out, "{\"type\":\"Digits\",\"individual_digits\":true},", err)) ||
        text_printf(out, err, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":%s}",
                    pre->words ? "true" : "false"))
        return -1;
    if (pre->after && (text_puts(out, ",{\"type\":\"Digits\",\"individual_digits\":false},", err) ||
                        put_split(out, pre->after, true, err)))
        return -1;
    return text_puts(out, "]},", err);
}

static int make_json(struct text *out, const struct vocabulary *v, const struct pre_tokenizer *pre, struct err *err)
{
    return text_puts(out, "{", err) || put_added(out, v, err) ||
           (pre->composed && text_puts(out, "\"normalizer\":{\"type\":\"NFC\"},", err)) ||
           put_pre_tokenizer(out, pre, err) || put_frame(out, v, err) ||
           text_puts(out, "\"decoder\":{\"type\":\"ByteLevel\"},", err) || put_model(out, v, pre, err) ||
           text_putc(out, '}', err) || check_size(out, TEXT_TOKENIZER, err) ? -1 : 0;
}

/* ---- SentencePiece ---- */

static int put_varint(struct text *out, uint64_t value, struct err *err)
{
    while (value > 0x7F) {
        if (text_putc(out, (char)(value | 0x80), err))
            return -1;
        value >>= 7;
    }
    return text_putc(out, (char)value, err);
}

static int put_number(struct text *out, int field, uint64_t value, struct err *err)
{
    return put_varint(out, (uint64_t)field << 3, err) || put_varint(out, value, err) ? -1 : 0;
}

static int put_bytes(struct text *out, int field, const void *data, size_t bytes, struct err *err)
{
    return put_varint(out, (uint64_t)field << 3 | 2, err) || put_varint(out, bytes, err) ||
           text_put(out, data, bytes, err) ? -1 : 0;
}

/* Writes an entry of ModelProto.pieces: piece, score, type. */
static int put_piece(struct text *out, struct text *piece, const struct vocabulary *v, size_t id, struct gguf_string token,
                     struct err *err)
{
    char score[4];
    memcpy(score, v->gguf->data + v->scores->at + 4 * id, sizeof score);
    text_clear(piece);
    return put_bytes(piece, 1, token.data, token.bytes, err) || put_varint(piece, 2 << 3 | 5, err) ||
           text_put(piece, score, sizeof score, err) || put_number(piece, 3, (uint64_t)type_of(v, id), err) ||
           put_bytes(out, 1, piece->data, piece->length, err) ? -1 : 0;
}

/* Writes trainer_spec: BPE, with bytes if the vocabulary has byte tokens; and normalizer_spec: a space in front of the text
 * if requested. */
static int put_specs(struct text *out, const struct vocabulary *v, bool bytes, struct err *err)
{
    struct text spec = {0};
    bool prefix = true, collapse = false;
    int rc = -1;
    if (gguf_bool(v->gguf, "tokenizer.ggml.add_space_prefix", &prefix, err) ||
        gguf_bool(v->gguf, "tokenizer.ggml.remove_extra_whitespaces", &collapse, err) || put_number(&spec, 3, 2, err) ||
        put_number(&spec, 35, bytes, err) ||
        put_number(&spec, 41, v->add_bos && v->bos >= 0 ? (uint64_t)v->bos : UINT32_MAX, err) ||
        put_bytes(out, 2, spec.data, spec.length, err))
        goto done;
    text_clear(&spec);
    if (put_number(&spec, 3, prefix, err) || put_number(&spec, 4, collapse, err) ||
        put_bytes(out, 3, spec.data, spec.length, err))
        goto done;
    rc = 0;
done:
    text_free(&spec);
    return rc;
}

static int make_sentence(struct text *out, const struct vocabulary *v, struct err *err)
{
    struct text piece = {0};
    size_t at = v->tokens->at;
    bool bytes = false;
    int rc = -1;
    for (size_t id = 0; id < v->tokens->count; id++) {
        struct gguf_string token = gguf_next_string(v->gguf, &at);
        bytes |= type_of(v, id) == PIECE_BYTE;
        if (check_text(token, "token", id, err) || put_piece(out, &piece, v, id, token, err) ||
            check_size(out, TEXT_TOKENIZER_MODEL, err))
            goto done;
    }
    rc = put_specs(out, v, bytes, err);
done:
    text_free(&piece);
    return rc;
}

/* ---- the texts ---- */

/* Writes the settings with the strings that chat templates use. */
static int make_settings(struct text *out, const struct vocabulary *v, struct err *err)
{
    const struct { const char *name; int64_t id; } tokens[] = {
        {"bos_token", v->bos}, {"eos_token", v->eos}, {"pad_token", v->pad}, {"unk_token", v->unk}};
    int put = 0;
    if (text_putc(out, '{', err))
        return -1;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        struct gguf_string token = tokens[i].id < 0 ? (struct gguf_string){"", 0} : token_at(v, tokens[i].id);
        if (tokens[i].id < 0)
            continue;
        if (check_text(token, "token", (size_t)tokens[i].id, err) ||
            text_printf(out, err, "%s\"%s\":", put++ ? "," : "", tokens[i].name) || put_string(out, token, err))
            return -1;
    }
    return text_putc(out, '}', err);
}

int gguf_make_tokenizer(const struct gguf *g, struct checkpoint *cp, struct err *err)
{
    struct vocabulary v = {.gguf = g};
    struct gguf_string model = {"", 0}, jinja = {"", 0};
    const struct pre_tokenizer *pre = NULL;
    if (gguf_text(g, "tokenizer.chat_template", false, &jinja, err) || gguf_text(g, "tokenizer.ggml.model", false, &model, err))
        return -1;
    if (jinja.bytes > source_text_kinds[TEXT_CHAT_TEMPLATE].limit)
        return err_set(err, ERR_INPUT, "tokenizer.chat_template has more than %zu bytes, the limit; the file is damaged",
                       source_text_kinds[TEXT_CHAT_TEMPLATE].limit);
    if (!cp->texts[TEXT_CHAT_TEMPLATE].length && jinja.bytes &&
        text_put(&cp->texts[TEXT_CHAT_TEMPLATE], jinja.data, jinja.bytes, err))
        return -1;
    if (cp->texts[TEXT_TOKENIZER].length || cp->texts[TEXT_TOKENIZER_MODEL].length || !model.bytes ||
        gguf_same(model, "no_vocab") || gguf_same(model, "none"))
        return 0;
    bool bytes = gguf_same(model, "gpt2");
    if (!bytes && !gguf_same(model, "llama"))
        return err_set(err, ERR_INPUT, "tokenizer.ggml.model is \"%.*s\"; only gpt2 and llama are supported; put the GGUF "
                       "file and the model's tokenizer.json into one folder, and convert that folder",
                       model.bytes < 40 ? (int)model.bytes : 40, model.data);
    if (bytes && !(pre = pre_tokenizer_find(g, err)))
        return -1;
    if (read_vocabulary(&v, bytes, pre, err) ||
        (bytes ? make_json(&cp->texts[TEXT_TOKENIZER], &v, pre, err)
               : make_sentence(&cp->texts[TEXT_TOKENIZER_MODEL], &v, err)))
        return -1;
    return cp->texts[TEXT_TOKENIZER_CONFIG].length ? 0 : make_settings(&cp->texts[TEXT_TOKENIZER_CONFIG], &v, err);
}
