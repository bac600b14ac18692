/* Tokenizers of GGUF files: byte-level vocabularies with each name of pre-tokenizer, and SentencePiece's; unsupported ones
 * are rejected with the reason. */
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/checkpoint/gguf.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/unit/gguf.h"

/* Opens a tokenizer from a vocabulary alone; NULL with the message in *err if it is rejected. */
static struct tokenizer *open_tokenizer(struct gguf_file *g, struct err *err)
{
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
    struct gguf read = {0};
    struct tokenizer *out = NULL;
    struct text file = gguf_join(g, 3);
    FILE *opened = tmpfile();
    assert_int_equal(fwrite(file.data, 1, file.length, opened), file.length);
    fflush(opened);
    struct source_file *source = checkpoint_add_file(cp, "v.gguf", NULL);
    source->fd = dup(fileno(opened));
    source->bytes = file.length;
    if (!gguf_read(&read, cp, 0, err) && !gguf_make_tokenizer(&read, cp, err)) {
        const struct text *text = &cp->texts[cp->texts[TEXT_TOKENIZER].length ? TEXT_TOKENIZER : TEXT_TOKENIZER_MODEL];
        if (tokenizer_new(&out, text->data, text->length, err))
            fail_msg("%s", err->text);
    }
    gguf_free(&read);
    checkpoint_close(&cp);
    text_free(&file);
    fclose(opened);
    return out;
}

static void check_ids(const struct tokenizer *t, const char *text, unsigned flags, const int32_t *ids, int count)
{
    struct tokens out = {0};
    struct err err = {0};
    if (tokenizer_encode(t, text, strlen(text), flags, &out, &err))
        fail_msg("%s", err.text);
    assert_int_equal(out.n, count);
    assert_memory_equal(out.ids, ids, (size_t)count * sizeof *ids);
    tokens_free(&out);
}
#define CHECK_IDS(t, text, flags, ...) \
    check_ids(t, text, flags, (const int32_t[]){__VA_ARGS__}, (int)(sizeof (int32_t[]){__VA_ARGS__} / sizeof(int32_t)))

static void put_bytes_vocabulary(struct gguf_file *g, const char *pre)
{
    static const char *const tokens[] = {"a", "b", "1", "\xC4\xA0", "ab", "\xC4\xA0" "a", "11", "<s>", "<tool>", "\"", "\\",
                                         "[PAD]"};
    static const int types[] = {1, 1, 1, 1, 1, 1, 1, 3, 4, 1, 1, 5};
    static const char *const merges[] = {"a b", "\xC4\xA0 a", "1 1"};
    gguf_put_text(g, "tokenizer.ggml.model", "gpt2");
    if (pre)
        gguf_put_text(g, "tokenizer.ggml.pre", pre);
    gguf_put_texts(g, "tokenizer.ggml.tokens", tokens, sizeof tokens / sizeof *tokens);
    gguf_put_ints(g, "tokenizer.ggml.token_type", types, sizeof types / sizeof *types);
    gguf_put_texts(g, "tokenizer.ggml.merges", merges, sizeof merges / sizeof *merges);
    gguf_put_int(g, "tokenizer.ggml.bos_token_id", 7);
}

static void test_byte_vocabulary(void **state)
{
    struct gguf_file g = {{0}};
    struct err err = {0};
    (void)state;
    put_bytes_vocabulary(&g, "gpt-2");
    struct tokenizer *t = open_tokenizer(&g, &err);
    CHECK_IDS(t, "ab a11\"\\", TOKENIZER_FRAME, 4, 5, 6, 9, 10);
    CHECK_IDS(t, "a<tool>b<s>", TOKENIZER_PARSE_SPECIAL, 0, 8, 1, 7);
    assert_true(tokenizer_is_special(t, 7) && !tokenizer_is_special(t, 8));
    assert_int_equal(tokenizer_find(t, "[PAD]"), -1);
    tokenizer_free(&t);
    put_bytes_vocabulary(&g, "qwen2");                  /* each digit is a piece */
    t = open_tokenizer(&g, &err);
    CHECK_IDS(t, "ab11", TOKENIZER_FRAME, 4, 2, 2);
    tokenizer_free(&t);
    put_bytes_vocabulary(&g, "llama-bpe");              /* bos is added unless the file says no */
    t = open_tokenizer(&g, &err);
    CHECK_IDS(t, "ab11", TOKENIZER_FRAME, 7, 4, 6);
    tokenizer_free(&t);
    put_bytes_vocabulary(&g, "llama-bpe");
    gguf_put_bool(&g, "tokenizer.ggml.add_bos_token", false);
    gguf_put_int(&g, "tokenizer.ggml.eos_token_id", 7);
    gguf_put_bool(&g, "tokenizer.ggml.add_eos_token", true);
    t = open_tokenizer(&g, &err);
    CHECK_IDS(t, "ab", TOKENIZER_FRAME, 4, 7);
    tokenizer_free(&t);
}

static void test_pre_names(void **state)
{
    static const char *const names[] = {
        "gpt-2", "jais", "phi-2", "gigachat", "a.x-4.0", "mellum", "trillion", "mpt", "olmo", "starcoder", "refact", "smollm",
        "codeshell", "minerva-7b", "command-r", "falcon", "llama-bpe", "llama3", "llama-v3", "smaug-bpe", "falcon3", "pixtral",
        "midm-2.0", "lfm2", "glm4", "chatglm-bpe", "dbrx", "qwen2", "deepseek-r1-qwen", "megrez", "qwen35", "gpt-4o", "llama4",
        "kanana2", "minimax-m2", "kimi-k2", "hunyuan", "solar-open", "tekken",
        "deepseek-llm", "deepseek-coder", "deepseek-v3", "joyai-llm"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gguf_file g = {{0}};
        struct err err = {0};
        put_bytes_vocabulary(&g, names[i]);
        struct tokenizer *t = open_tokenizer(&g, &err);
        assert_non_null(t);
        CHECK_IDS(t, "ab a", 0, 4, 5);
        tokenizer_free(&t);
    }
}

/* Converts a tokenizer.json to the keys of a GGUF file. */
static void put_json(struct gguf_file *g, const json_t *root, const char *pre)
{
    const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens"), *merge, *item;
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges"), *id;
    size_t count = json_object_size(vocab) + json_array_size(added), n = json_array_size(merges), at;
    const char **tokens = calloc(count, sizeof *tokens), **pairs = calloc(n, sizeof *pairs), *content;
    int *types = calloc(count, sizeof *types);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = "[PAD]";
        types[i] = 5;
    }
    json_object_foreach(vocab, content, id) {
        assert_true((size_t)json_integer_value(id) < count);
        tokens[json_integer_value(id)] = content;
        types[json_integer_value(id)] = 1;
    }
    json_array_foreach(added, at, item) {
        json_int_t where = json_integer_value(json_object_get(item, "id"));
        assert_true((size_t)where < count);
        tokens[where] = json_string_value(json_object_get(item, "content"));
        types[where] = json_is_true(json_object_get(item, "special")) ? 3 : 4;
    }
    json_array_foreach(merges, at, merge) {
        char pair[512];
        snprintf(pair, sizeof pair, "%s %s", json_string_value(json_array_get(merge, 0)),
                 json_string_value(json_array_get(merge, 1)));
        pairs[at] = strdup(json_is_string(merge) ? json_string_value(merge) : pair);
    }
    gguf_put_text(g, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(g, "tokenizer.ggml.pre", pre);
    gguf_put_texts(g, "tokenizer.ggml.tokens", tokens, count);
    gguf_put_ints(g, "tokenizer.ggml.token_type", types, count);
    gguf_put_texts(g, "tokenizer.ggml.merges", pairs, n);
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)pairs[i]);
    free(tokens);
    free(types);
    free(pairs);
}

/* Returns whether a text contains an added token that matches whole words only: GGUF files cannot express this. */
static bool has_word(const json_t *root, const char *text)
{
    const json_t *token;
    bool found = false;
    size_t i;
    json_array_foreach(json_object_get(root, "added_tokens"), i, token)
        found |= json_is_true(json_object_get(token, "single_word")) &&
                 strstr(text, json_string_value(json_object_get(token, "content")));
    return found;
}

/* If such a tokenizer.json has goldens, the same texts give the same ids. */
static void test_goldens(void **state)
{
    static const struct { const char *name, *json, *pre; } tokenizers[] = {
        {"pocket", "pocket/model/tokenizer.json", "qwen2"}, {"qwen2", "../golden/tokenizer/qwen2.json", "qwen2"},
        {"llama3", "../golden/tokenizer/llama3.json", "llama-bpe"}, {"three", "../golden/tokenizer/three.json", "deepseek-v3"},
        {"whole", "../golden/tokenizer/whole.json", "gpt-4o"},
        {"kimi", "../golden/tokenizer/kimi.json", "kimi-k2"}, {"qwen35", "../golden/tokenizer/qwen35.json", "qwen35"}};
    (void)state;
    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++) {
        char path[1200], line[1 << 16], cases[64];
        struct gguf_file g = {{0}};
        struct err err = {0};
        int seen = 0;
        json_t *root = json_load_file(unit_path(unit_models(), tokenizers[i].json), 0, NULL);
        assert_non_null(root);
        put_json(&g, root, tokenizers[i].pre);
        struct tokenizer *t = open_tokenizer(&g, &err);
        assert_non_null(t);
        snprintf(cases, sizeof cases, "../golden/tokenizer/%s.jsonl", tokenizers[i].name);
        snprintf(path, sizeof path, "%s", unit_path(unit_models(), cases));
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        while (fgets(line, sizeof line, file)) {
            json_t *item = json_loads(line, JSON_ALLOW_NUL, NULL);
            const json_t *text = json_object_get(item, "text"), *ids = json_object_get(item, "ids");
            struct tokens out = {0};
            if (json_is_string(text) && json_is_array(ids) && !has_word(root, json_string_value(text))) {
                if (tokenizer_encode(t, json_string_value(text), json_string_length(text), TOKENIZER_PARSE_SPECIAL, &out, &err))
                    fail_msg("%s: %s", tokenizers[i].name, err.text);
                bool same = (size_t)out.n == json_array_size(ids);
                for (int k = 0; k < out.n && same; k++)
                    same = out.ids[k] == json_integer_value(json_array_get(ids, (size_t)k));
                if (!same)
                    fail_msg("%s: other ids for %s", tokenizers[i].name, line);
                seen++;
            }
            tokens_free(&out);
            json_decref(item);
        }
        fclose(file);
        assert_true(seen > 50);
        tokenizer_free(&t);
        json_decref(root);
    }
}

static void put_pieces(struct gguf_file *g)
{
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "\xE2\x96\x81", "a", "b", "ab", "\xE2\x96\x81" "ab", "<hole>"};
    static const int types[] = {2, 3, 3, 1, 1, 1, 1, 1, 2};
    static const float scores[] = {0, 0, 0, -4, -5, -6, -1, -2, 0};
    gguf_put_text(g, "tokenizer.ggml.model", "llama");
    gguf_put_texts(g, "tokenizer.ggml.tokens", tokens, sizeof tokens / sizeof *tokens);
    gguf_put_ints(g, "tokenizer.ggml.token_type", types, sizeof types / sizeof *types);
    gguf_put_floats(g, "tokenizer.ggml.scores", scores, sizeof scores / sizeof *scores);
    gguf_put_int(g, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_int(g, "tokenizer.ggml.unknown_token_id", 0);
}

static void test_pieces(void **state)
{
    struct gguf_file g = {{0}};
    struct err err = {0};
    (void)state;
    put_pieces(&g);
    struct tokenizer *t = open_tokenizer(&g, &err);
    assert_non_null(t);
    CHECK_IDS(t, "ab  b", TOKENIZER_FRAME, 1, 7, 3, 3, 5);
    CHECK_IDS(t, "ab</s><hole>", TOKENIZER_PARSE_SPECIAL, 7, 2, 8);
    tokenizer_free(&t);
    put_pieces(&g);
    gguf_put_bool(&g, "tokenizer.ggml.add_space_prefix", false);
    gguf_put_bool(&g, "tokenizer.ggml.add_bos_token", false);
    t = open_tokenizer(&g, &err);
    CHECK_IDS(t, "ab", TOKENIZER_FRAME, 6);
    tokenizer_free(&t);
}

static void expect_refused(struct gguf_file *g, const char *part)
{
    struct err err = {0};
    assert_null(open_tokenizer(g, &err));
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_refused_tokenizers(void **state)
{
    static const char *const one[] = {"a"};
    static const char *const bad[] = {"\xFF"};
    static const int types[] = {1, 1};
    struct gguf_file g = {{0}};
    (void)state;
    put_bytes_vocabulary(&g, "klingon");
    expect_refused(&g, "tokenizer.ggml.pre is \"klingon\"");
    put_bytes_vocabulary(&g, NULL);
    expect_refused(&g, "tokenizer.ggml.pre is missing");
    gguf_put_text(&g, "tokenizer.ggml.model", "bert");
    expect_refused(&g, "tokenizer.ggml.model is \"bert\"");
    gguf_put_text(&g, "tokenizer.ggml.model", "llama");
    gguf_put_texts(&g, "tokenizer.ggml.tokens", one, 1);
    expect_refused(&g, "tokenizer.ggml.scores is missing");
    gguf_put_text(&g, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(&g, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_texts(&g, "tokenizer.ggml.tokens", one, 1);
    gguf_put_texts(&g, "tokenizer.ggml.merges", one, 0);
    gguf_put_ints(&g, "tokenizer.ggml.token_type", types, 2);
    expect_refused(&g, "token_type and tokenizer.ggml.tokens have");
    gguf_put_text(&g, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(&g, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_texts(&g, "tokenizer.ggml.tokens", bad, 1);
    gguf_put_texts(&g, "tokenizer.ggml.merges", one, 0);
    expect_refused(&g, "token 0 is not UTF-8");
    gguf_put_text(&g, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(&g, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_ints(&g, "tokenizer.ggml.tokens", types, 2);
    expect_refused(&g, "tokenizer.ggml.tokens must be a list of texts");
    static char wide[9000];
    static const char *many[(1 << 20) + 1];
    memset(wide, 'a', sizeof wide - 1);
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        many[i] = "";
    many[0] = wide;
    for (size_t count = 1; count; count = count == 1 ? sizeof many / sizeof *many : 0) {
        gguf_put_text(&g, "tokenizer.ggml.model", "gpt2");
        gguf_put_text(&g, "tokenizer.ggml.pre", "gpt-2");
        gguf_put_texts(&g, "tokenizer.ggml.tokens", many, count);
        gguf_put_texts(&g, "tokenizer.ggml.merges", one, 0);
        expect_refused(&g, count == 1 ? "token 0 has more than 8192 bytes"
                                      : "tokenizer.ggml.tokens has more than 1048576 entries");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_vocabulary), cmocka_unit_test(test_pre_names), cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_pieces), cmocka_unit_test(test_refused_tokenizers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
