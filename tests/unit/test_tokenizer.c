/* The tokenizer compared with the Python package (tests/golden/tokenizer); round trips, streaming, malformed files. */
#include "tests/unit/unit.h"

#include <time.h>

#include <jansson.h>

#include "common/base/file.h"
#include "common/base/utf8.h"
#include "common/tokenizer/tiktoken.h"
#include "common/tokenizer/tokenizer.h"

static struct tokenizer *load(const char *path)
{
    struct err err = {0};
    struct text json = {0};
    struct tokenizer *t = NULL;
    if (file_read(&json, path, (size_t)1 << 26, &err) || tokenizer_new(&t, json.data, json.length, &err))
        fail_msg("%s: %s", path, err.text);
    text_free(&json);
    return t;
}

static struct tokenizer *load_pocket(void)
{
    return load(unit_path(unit_models(), "pocket/model/tokenizer.json"));
}

static void assert_ids(const json_t *expected, const struct tokens *tokens, const char *what)
{
    bool same = (int)json_array_size(expected) == tokens->n;
    for (int i = 0; same && i < tokens->n; i++)
        same = json_integer_value(json_array_get(expected, (size_t)i)) == tokens->ids[i];
    if (!same)
        fail_msg("other ids for \"%s\"", what);
}

static void check_case(const struct tokenizer *t, const json_t *item)
{
    static const struct { const char *key; unsigned flags; } kinds[] = {
        { "ids", TOKENIZER_PARSE_SPECIAL }, { "plain", 0 }, { "framed", TOKENIZER_PARSE_SPECIAL | TOKENIZER_FRAME }
    };
    const json_t *text = json_object_get(item, "text");
    struct err err = {0};
    for (int k = 0; k < 3; k++) {
        const json_t *expected = json_object_get(item, kinds[k].key);
        struct tokens tokens = {0};
        if (tokenizer_encode(t, json_string_value(text), json_string_length(text), kinds[k].flags, &tokens, &err))
            fail_msg("%s", err.text);
        assert_ids(expected ? expected : json_object_get(item, "ids"), &tokens, json_string_value(text));
        tokens_free(&tokens);
    }
}

/* Calls check for each line of a golden file; returns the number of lines. */
static int each_case(const struct tokenizer *t, const char *name, void (*check)(const struct tokenizer *, const json_t *))
{
    struct err err = {0};
    struct text lines = {0};
    int count = 0;
    char path[1200];
    snprintf(path, sizeof path, "%s/../golden/tokenizer/%s.jsonl", unit_models(), name);
    if (file_read(&lines, path, (size_t)1 << 26, &err))
        fail_msg("%s", err.text);
    for (char *line = strtok(lines.data, "\n"); line; line = strtok(NULL, "\n"), count++) {
        json_t *item = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(item);
        check(t, item);
        json_decref(item);
    }
    text_free(&lines);
    return count;
}

static void check_decoding(const struct tokenizer *t, const json_t *item, unsigned max)
{
    const json_t *list = json_object_get(item, json_object_get(item, "random") ? "random" : "ids"), *id;
    const json_t *back = json_object_get(item, "back"), *shown = json_object_get(item, "shown");
    struct tokens tokens = {0};
    size_t i;
    tokens.ids = calloc(json_array_size(list) + 1, sizeof *tokens.ids);
    json_array_foreach(list, i, id)
        tokens.ids[tokens.n++] = (int32_t)json_integer_value(id);
    back = back ? back : json_object_get(item, "text");
    for (unsigned flags = 0; flags <= max; flags++) {
        const json_t *expected = flags && shown ? shown : back;
        struct text out = {0};
        struct token_decoder decoder;
        token_decoder_start(&decoder, t, flags);
        for (int k = 0; k < tokens.n; k++) {
            assert_int_equal(token_decoder_put(&decoder, tokens.ids[k], &out, NULL), 0);
            assert_int_equal(utf8_fault(out.data ? out.data : "", out.length), out.length);
        }
        assert_int_equal(token_decoder_end(&decoder, &out, NULL), 0);
        if (out.length != json_string_length(expected) ||
            (out.length && memcmp(out.data, json_string_value(expected), out.length)))
            fail_msg("other text (flags %u): \"%s\" for \"%s\"", flags, out.data ? out.data : "", json_string_value(expected));
        text_free(&out);
    }
    free(tokens.ids);
}

static void check_both_ways(const struct tokenizer *t, const json_t *item)
{
    if (json_object_get(item, "text"))
        check_case(t, item);
    check_decoding(t, item, TOKENIZER_SHOW_SPECIAL);
}

static void pocket_ids_are_those_of_the_package(void **state)
{
    struct tokenizer *t = load_pocket();
    (void)state;
    assert_true(each_case(t, "pocket", check_both_ways) > 150);
    tokenizer_free(&t);
}

static void every_kind_of_element_gives_the_ids_of_the_package(void **state)
{
    static const char *const names[] = {
        "prefix", "flags", "chain", "whole", "three", "lines", "previous", "contiguous", "removed",
        "llama3", "qwen2", "nested", "kimi", "qwen35"
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1200];
        snprintf(path, sizeof path, "%s/../golden/tokenizer/%s.json", unit_models(), names[i]);
        struct tokenizer *t = load(path);
        assert_true(each_case(t, names[i], check_both_ways) > 130);
        tokenizer_free(&t);
    }
}

static struct tokenizer *made_of(const json_t *root)
{
    struct tokenizer *t = NULL;
    struct err err = {0};
    char *json = json_dumps(root, 0);
    if (tokenizer_new(&t, json, strlen(json), &err))
        fail_msg("%s", err.text);
    free(json);
    return t;
}

/* Patterns of families whose vocabularies are too large to keep: a vocabulary of bytes shows where pieces end. */
static void patterns_of_families_split_as_those_of_the_package(void **state)
{
    char path[1200];
    struct text lines = {0};
    struct tokenizer *t = NULL;
    int families = 0, texts = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/../golden/tokenizer/families.jsonl", unit_models());
    assert_int_equal(file_read(&lines, path, (size_t)1 << 26, NULL), 0);
    json_t *root = json_load_file(unit_path(unit_models(), "../golden/tokenizer/families.json"), 0, NULL);
    assert_non_null(root);
    for (char *line = strtok(lines.data, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *item = json_loads(line, JSON_ALLOW_NUL, NULL), *pre = json_object_get(item, "pre_tokenizer");
        assert_non_null(item);
        if (pre) {
            tokenizer_free(&t);
            json_object_set(root, "pre_tokenizer", pre);
            t = made_of(root);
            families++;
        } else {
            check_case(t, item);
            texts++;
        }
        json_decref(item);
    }
    assert_true(families >= 7 && texts >= 15 * families);
    tokenizer_free(&t);
    json_decref(root);
    text_free(&lines);
}

static void check_ids_of(const struct tokenizer *t, const json_t *item, const char *key)
{
    const json_t *text = json_object_get(item, "text");
    struct tokens tokens = {0};
    struct err err = {0};
    if (tokenizer_encode(t, json_string_value(text), json_string_length(text), TOKENIZER_PARSE_SPECIAL, &tokens, &err))
        fail_msg("%s", err.text);
    assert_ids(json_object_get(item, key), &tokens, json_string_value(text));
    tokens_free(&tokens);
}

static void check_kimi(const struct tokenizer *t, const json_t *item) { check_ids_of(t, item, "kimi"); }
static void check_hunyuan(const struct tokenizer *t, const json_t *item) { check_ids_of(t, item, "hunyuan"); }

static struct tokenizer *of_ranks(enum tiktoken_model model, const struct text *ranks, const char *settings, struct err *err)
{
    struct text json = {0}, config = {0};
    struct tokenizer *t = NULL;
    text_puts(&config, settings, NULL);
    if (!tiktoken_json(&json, model, ranks, &config, err) && tokenizer_new(&t, json.data, json.length, err))
        fail_msg("%s", err->text);
    text_free(&json);
    text_free(&config);
    return t;
}

static void vocabularies_of_tiktoken_give_its_ids(void **state)
{
    char path[1200], settings[400];
    struct text ranks = {0};
    struct err err = {0};
    int first = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/../golden/tokenizer/tiktoken.model", unit_models());
    assert_int_equal(file_read(&ranks, path, 1 << 20, NULL), 0);
    for (size_t i = 0; i < ranks.length; i++)
        first += ranks.data[i] == '\n';
    snprintf(settings, sizeof settings, "{\"tokenizer_class\":\"TikTokenTokenizer\",\"added_tokens_decoder\":{\"%d\":"
             "{\"content\":\"[BOS]\",\"special\":true},\"%d\":{\"content\":\"<|im_end|>\",\"special\":false},"
             "\"7\":{\"content\":\"no\"}}}", first, first + 2);
    struct tokenizer *t = of_ranks(TIKTOKEN_KIMI, &ranks, settings, &err);
    assert_non_null(t);
    assert_int_equal(tokenizer_vocab_size(t), first + 256);
    assert_true(each_case(t, "tiktoken", check_kimi) > 25);
    assert_true(tokenizer_is_special(t, first) && !tokenizer_is_special(t, first + 2) && tokenizer_is_special(t, first + 255));
    tokenizer_free(&t);
    assert_int_equal(text_puts(&ranks, "dGg= 5\r\n\r\ndGg= 6", NULL), 0);      /* "th" again: not counted */
    t = of_ranks(TIKTOKEN_HUNYUAN, &ranks, "", &err);
    assert_non_null(t);
    assert_int_equal(tokenizer_vocab_size(t), first + 210);
    assert_true(each_case(t, "tiktoken", check_hunyuan) > 25);
    tokenizer_free(&t);
    text_free(&ranks);
}

static void damaged_vocabularies_of_tiktoken_are_refused(void **state)
{
    static const struct { const char *ranks, *settings, *named; } cases[] = {
        { "", "", "the file has no tokens" }, { "YQ== 0\nYg 1\n", "", "line 2: expected a line" }, { "YQ== 0\nY!== 1\n", "",
                                                                                                    "line 2" },
        { "YQ== 0\nYg== x\n", "", "line 2" }, { "YQ== 0\nYg==\n", "", "line 2" }, { "YQ== 0\nYg== -1\n", "", "line 2" },
        { "YQ== 0\nYg== 1048576\n", "", "below 1048576" }, { "YQ== 0\nYg== 2\n", "", "the highest rank is 2" },
        { "YQ== 0\nYg== 0\n", "", "id 0 is used twice" }, { "YQ== 0\nYQ== 1\n", "", "two ids" }, { "==== 0\n", "", "line 1" },
        { "YQ== 0\n", "{\"tokenizer_class\":\"Qwen\"}", "tokenizer_class \"Qwen\"" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text ranks = {0};
        struct err err = {0};
        text_puts(&ranks, cases[i].ranks, NULL);
        assert_null(of_ranks(TIKTOKEN_KIMI, &ranks, cases[i].settings, &err));
        if (err.code != ERR_INPUT || !strstr(err.text, cases[i].named))
            fail_msg("\"%s\" does not name %s", err.text, cases[i].named);
        text_free(&ranks);
    }
}

/* SentencePiece has no way to show control symbols. */
static void check_model_both_ways(const struct tokenizer *t, const json_t *item)
{
    if (json_object_get(item, "text"))
        check_case(t, item);
    check_decoding(t, item, 0);
}

static void marked_spaces_give_ids_and_texts_of_the_package(void **state)
{
    static const char *const names[] = { "prepend", "first", "always", "never", "bare", "pieces", "spaces" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1200];
        snprintf(path, sizeof path, "%s/../golden/tokenizer/%s.json", unit_models(), names[i]);
        struct tokenizer *t = load(path);
        assert_true(each_case(t, names[i], check_both_ways) > 90);
        tokenizer_free(&t);
    }
}

static void models_of_sentencepiece_give_its_ids_and_texts(void **state)
{
    static const char *const names[] = { "sp-bpe", "sp-unigram", "sp-bytes", "sp-unused" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1200];
        snprintf(path, sizeof path, "%s/../golden/tokenizer/%s.model", unit_models(), names[i]);
        struct tokenizer *t = load(path);
        assert_true(each_case(t, names[i], check_model_both_ways) > 90);
        tokenizer_free(&t);
    }
}

/* A run of byte tokens longer than the buffer: 400 characters of two bytes, then half a character. */
static void long_runs_of_byte_tokens_come_out_in_part(void **state)
{
    char path[1200];
    struct token_decoder decoder;
    struct text out = {0};
    (void)state;
    snprintf(path, sizeof path, "%s/../golden/tokenizer/first.json", unit_models());
    struct tokenizer *t = load(path);
    int32_t lead = tokenizer_find(t, "<0xC3>"), trail = tokenizer_find(t, "<0xA9>");
    token_decoder_start(&decoder, t, 0);
    for (int i = 0; i < 801; i++)
        assert_int_equal(token_decoder_put(&decoder, i % 2 ? trail : lead, &out, NULL), 0);
    assert_true(out.length > 500 && utf8_fault(out.data, out.length) == out.length);
    size_t shown = out.length;
    assert_int_equal(token_decoder_end(&decoder, &out, NULL), 0);
    assert_int_equal(out.length, shown + 3 * (801 - shown));
    assert_memory_equal(out.data + shown, "\xEF\xBF\xBD", 3);
    text_free(&out);
    tokenizer_free(&t);
}

/* Decoding returns the text except for changes by NFC: then encoding the decoded text gives the same ids. */
static void check_round_trip(const struct tokenizer *t, const json_t *item)
{
    const json_t *text = json_object_get(item, "text");
    struct err err = {0};
    struct tokens first = {0}, second = {0};
    struct text once = {0}, twice = {0};
    if (!text)
        return;
    assert_int_equal(tokenizer_encode(t, json_string_value(text), json_string_length(text), 0, &first, &err), 0);
    assert_int_equal(tokenizer_decode(t, first.ids, first.n, 0, &once, &err), 0);
    assert_int_equal(tokenizer_encode(t, once.data, once.length, 0, &second, &err), 0);
    assert_int_equal(tokenizer_decode(t, second.ids, second.n, 0, &twice, &err), 0);
    assert_int_equal(first.n, second.n);
    assert_int_equal(once.length, twice.length);
    if (first.n)
        assert_memory_equal(first.ids, second.ids, (size_t)first.n * sizeof *first.ids);
    bool ascii = true;
    for (size_t i = 0; i < json_string_length(text); i++)
        ascii = ascii && !(json_string_value(text)[i] & 0x80);
    if (ascii) {
        assert_int_equal(once.length, json_string_length(text));
        if (once.length)
            assert_memory_equal(once.data, json_string_value(text), once.length);
    }
    tokens_free(&first);
    tokens_free(&second);
    text_free(&once);
    text_free(&twice);
}

static void decoding_gives_the_normalised_text_back(void **state)
{
    struct tokenizer *t = load_pocket();
    struct tokens tokens = {0};
    struct text out = {0};
    (void)state;
    each_case(t, "pocket", check_round_trip);
    assert_int_equal(tokenizer_encode(t, "cafe\xCC\x81 A\xCC\x8A", 11, 0, &tokens, NULL), 0);
    assert_int_equal(tokenizer_decode(t, tokens.ids, tokens.n, 0, &out, NULL), 0);
    assert_string_equal(out.data, "caf\xC3\xA9 \xC3\x85");
    tokens_free(&tokens);
    text_free(&out);
    tokenizer_free(&t);
}

static void a_stream_never_splits_a_character(void **state)
{
    struct tokenizer *t = load_pocket();
    static const char text[] = "a\xF0\x9F\x98\x80\xE6\xBC\xA2z";
    struct token_decoder decoder;
    struct tokens tokens = {0};
    struct text out = {0};
    (void)state;
    assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, 0, &tokens, NULL), 0);
    assert_true(tokens.n > 6);                         /* so that characters are spread over tokens */
    token_decoder_start(&decoder, t, 0);
    for (int i = 0; i < tokens.n; i++) {
        assert_int_equal(token_decoder_put(&decoder, tokens.ids[i], &out, NULL), 0);
        assert_int_equal(utf8_fault(out.data ? out.data : "", out.length), out.length);
    }
    assert_int_equal(token_decoder_end(&decoder, &out, NULL), 0);
    assert_string_equal(out.data, text);
    text_clear(&out);                                  /* the first two bytes of the emoji, and the end */
    token_decoder_start(&decoder, t, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(token_decoder_put(&decoder, tokens.ids[i], &out, NULL), 0);
    assert_string_equal(out.data, "a");
    assert_int_equal(token_decoder_end(&decoder, &out, NULL), 0);
    assert_string_equal(out.data, "a\xEF\xBF\xBD");
    tokens_free(&tokens);
    text_free(&out);
    tokenizer_free(&t);
}

static void special_tokens_show_when_asked(void **state)
{
    struct tokenizer *t = load_pocket();
    int32_t ids[] = { tokenizer_find(t, "<|user|>"), tokenizer_find(t, "a"), 99999, tokenizer_find(t, "<|end|>") };
    struct text out = {0};
    (void)state;
    assert_int_equal(ids[0], 2045);
    assert_true(tokenizer_is_special(t, 2045) && !tokenizer_is_special(t, ids[1]) && !tokenizer_is_special(t, -1));
    assert_int_equal(tokenizer_decode(t, ids, 4, 0, &out, NULL), 0);
    assert_string_equal(out.data, "a");
    text_clear(&out);
    assert_int_equal(tokenizer_decode(t, ids, 4, TOKENIZER_SHOW_SPECIAL, &out, NULL), 0);
    assert_string_equal(out.data, "<|user|>a<|end|>");
    text_free(&out);
    tokenizer_free(&t);
}

static int count(const struct tokens *tokens, int32_t id)
{
    int n = 0;
    for (int i = 0; i < tokens->n; i++)
        n += tokens->ids[i] == id;
    return n;
}

static void content_cannot_make_special_tokens(void **state)
{
    struct tokenizer *t = load_pocket();
    static const char text[] = "<|user|>\n<|end|> and <|end|>\n";
    static const struct text_segment whole[] = { { 9, true }, { 7, false }, { 5, false }, { 8, true } };
    static const struct text_segment half[] = {
        { 9, true }, { 3, false }, { 4, true }, { 5, true }, { 4, true }, { 4, false }
    };
    struct tokens tokens = {0}, plain = {0}, inside = {0};
    (void)state;
    assert_int_equal(tokenizer_encode_segments(t, text, whole, 4, 0, &tokens, NULL), 0);
    assert_int_equal(count(&tokens, 2045), 1);
    assert_int_equal(count(&tokens, 2047), 1);
    assert_int_equal(tokens.ids[tokens.n - 2], 2047);
    /* Between the two special tokens the ids equal those of the joined text, as plain text. */
    assert_int_equal(tokenizer_encode(t, text + 8, 13, 0, &plain, NULL), 0);
    assert_int_equal(tokens.n, plain.n + 3);
    assert_memory_equal(tokens.ids + 1, plain.ids, (size_t)plain.n * sizeof *plain.ids);
    assert_int_equal(tokenizer_encode_segments(t, text, half, 6, 0, &inside, NULL), 0);
    assert_int_equal(count(&inside, 2047), 0);         /* a special token formed by halves of both sides is plain text, too */
    inside.n = 0;
    assert_int_equal(tokenizer_encode_segments(t, text, half, 6, TOKENIZER_PARSE_SPECIAL, &inside, NULL), 0);
    assert_int_equal(count(&inside, 2047), 2);
    tokens_free(&tokens);
    tokens_free(&plain);
    tokens_free(&inside);
    tokenizer_free(&t);
}

static void long_words_and_runs_take_seconds_at_most(void **state)
{
    struct tokenizer *t = load_pocket();
    static const char *const unit[] = { "a", " ", "\n", "\xCC\x81\xCC\xA3", "'", "1" };
    struct tokens tokens = {0};
    size_t bytes = 400000;
    char *text = malloc(bytes);
    (void)state;
    for (size_t k = 0; k < sizeof unit / sizeof *unit; k++) {
        clock_t begin = clock();
        for (size_t i = 0; i < bytes; i++)
            text[i] = unit[k][i % strlen(unit[k])];
        tokens.n = 0;
        assert_int_equal(tokenizer_encode(t, text, bytes, 0, &tokens, NULL), 0);
        assert_true(tokens.n > 1000);
        assert_true(clock() - begin < 20 * CLOCKS_PER_SEC);
    }
    free(text);
    tokens_free(&tokens);
    tokenizer_free(&t);
}

static void ten_megabytes_of_anything_take_seconds(void **state)
{
    static const char *const names[] = { "llama3.json", "chain.json", "first.json", "sp-bpe.model", "sp-unigram.model" };
    static const char *const unit[] = { "a", " ", "\xF0\x9F\x98\x80" };
    const size_t bytes = 10000000;
    struct tokens tokens = {0};
    (void)state;
    if (!getenv("MOE_LONG") || getenv("MOE_SANITIZED"))
        skip();
    char *text = malloc(bytes);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        char path[1200];
        snprintf(path, sizeof path, "%s/../golden/tokenizer/%s", unit_models(), names[n]);
        struct tokenizer *t = load(path);
        for (size_t k = 0; k < sizeof unit / sizeof *unit; k++) {
            clock_t begin = clock();
            for (size_t i = 0; i < bytes; i++)
                text[i] = i + 4 < bytes ? unit[k][i % strlen(unit[k])] : '1';
            tokens.n = 0;
            assert_int_equal(tokenizer_encode(t, text, bytes, 0, &tokens, NULL), 0);
            assert_true(clock() - begin < 30 * CLOCKS_PER_SEC);
        }
        tokenizer_free(&t);
    }
    free(text);
    tokens_free(&tokens);
}

static void invalid_utf8_is_refused_with_its_position(void **state)
{
    struct tokenizer *t = load_pocket();
    static const char *const texts[] = { "ab\xFF", "ab\xC0\x80", "ab\xED\xA0\x80", "ab\xF4\x90\x80\x80", "ab\xE6\xBC" };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct err err = {0};
        struct tokens tokens = {0};
        assert_int_equal(tokenizer_encode(t, texts[i], strlen(texts[i]), 0, &tokens, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        assert_non_null(strstr(err.text, "byte 2"));
        assert_null(tokens.ids);
    }
    tokenizer_free(&t);
}

#define PRE "{\"added_tokens\":["
#define MID "],\"normalizer\":null,\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":"
#define LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define MODEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}"
#define DECODERS(list) PRE "],\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" list "]}"
#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"}"
#define STRIP(stop) "{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":" stop "}"
#define SPLIT(regex) "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\"}"

static void what_is_not_supported_is_named(void **state)
{
    static const struct { const char *json, *named; } cases[] = {
        { "", "JSON" },
        { "[]", "tokenizer.json" },
        { "{\"model\":{\"type\":\"Unigram\"}}", "Unigram" },
        { PRE MID "{\"type\":\"Whitespacey\"}" MODEL, "Whitespacey" },
        { PRE MID LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", "two ids" },
        { PRE MID LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "is used twice" },
        { PRE MID LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2000000000},\"merges\":[]}}", "out of range" },
        { PRE MID LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "out of range" },
        { PRE MID LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", "integer" },
        { PRE MID LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "not in the vocabulary" },
        { PRE MID LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", "two tokens" },
        { PRE MID LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", "dropout" },
        { PRE "{\"id\":1,\"content\":\"a\"}" MID LEVEL MODEL, "added_tokens[0]" },
        { PRE "{\"id\":7,\"content\":\"\"}" MID LEVEL MODEL, "0 bytes" },
        { PRE MID SPLIT("a{1,3}+") MODEL, "after an interval" },
        { PRE MID SPLIT("[&&b]") MODEL, "intersection" },
        { PRE MID SPLIT("[a&&]") MODEL, "intersection" },
        { PRE MID SPLIT("[a[b]") MODEL, "a character class without its end" },
        { PRE MID SPLIT("[a[:alpha:]]") MODEL, "named class" },
        { PRE MID SPLIT("[[[[[[[[[[a]]]]]]]]]]") MODEL, "nested deeper than 8" },
        { PRE MID SPLIT("\\\\K") MODEL, "escape" },
        { PRE MID SPLIT("(?<x>a)") MODEL, "group" },
        { PRE MID SPLIT("(a") MODEL, "pattern" },
        { PRE "],\"normalizer\":{\"type\":\"Nmt\"}" MODEL, "Nmt" },
        { PRE "],\"decoder\":{\"type\":\"WordPiece\"}" MODEL, "WordPiece" },
        { PRE "],\"decoder\":null" MODEL, "the decoder is missing" },
        { DECODERS("{\"type\":\"Fuse\"}," REPLACE) MODEL, "Replace: not supported after" },
        { DECODERS("{\"type\":\"ByteFallback\"}," STRIP("1")) MODEL, "Strip: not supported after" },
        { DECODERS("{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}") MODEL, "ByteFallback: not supported after" },
        { DECODERS("{\"type\":\"Fuse\"}," STRIP("1")) MODEL, "stop" },
        { DECODERS(REPLACE ",{\"type\":\"Metaspace\"}") MODEL, "Metaspace: not supported after" },
        { DECODERS("{\"type\":\"Metaspace\"}," REPLACE) MODEL, "Replace: not supported after" },
        { PRE MID "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}" MODEL, "one character" },
        { PRE MID "{\"type\":\"Metaspace\",\"prepend_scheme\":\"often\"}" MODEL, "prepend_scheme" },
        { PRE "],\"normalizer\":{\"type\":\"Prepend\",\"prepend\":1}" MODEL, "prepend" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct tokenizer *t = NULL;
        assert_int_equal(tokenizer_new(&t, cases[i].json, strlen(cases[i].json), &err), -1);
        assert_null(t);
        if (!strstr(err.text, cases[i].named))
            fail_msg("\"%s\" does not name %s", err.text, cases[i].named);
    }
}

#define PIECE(length, fields) "\x0A" length fields
#define UNK PIECE("\x09", "\x0A\x05<unk>\x18\x02")

static void models_that_are_none_are_refused_by_name(void **state)
{
    static const struct { const char *data; size_t bytes; const char *named; } cases[] = {
#define CASE(text, named) { text, sizeof text - 1, named }
        CASE("\n", "is invalid"),
        CASE("\n\x09\x0A\x05<un", "is invalid"),
        CASE("\n\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "is invalid"),
        CASE(PIECE("\x03", "\x0A\x01" "a"), "UNKNOWN"),
        CASE(UNK UNK, "two ids"),
        CASE(UNK PIECE("\x05", "\x0A\x01" "a\x18\x02"), "both have type UNKNOWN, but only one may"),
        CASE(UNK PIECE("\x02", "\x0A\x00"), "piece 1 must be"),
        CASE(UNK PIECE("\x03", "\x0A\x01\xFF"), "piece 1 must be"),
        CASE(UNK PIECE("\x08", "\x0A\x01" "a\x15\x00\x00\xC0\x7F"), "score"),
        CASE(UNK PIECE("\x05", "\x0A\x01" "a\x18\x07"), "type"),
        CASE(UNK PIECE("\x05", "\x0A\x01" "a\x18\x06"), "BYTE"),
        CASE(UNK "\x12\x03\x98\x02\x01", "0 pieces have type BYTE"),
        CASE(UNK "\x12\x02\x18\x03", "WORD"),
        CASE(UNK "\x12\x02\x18\x04", "CHAR"),
        CASE(UNK "\x12\x03\xC0\x01\x01", "treat_whitespace_as_suffix"),
        CASE(UNK "\x1A\x02\x28\x00", "escape_whitespaces"),
        CASE(UNK "\x1A\x05\x12\x03" "abc", "precompiled_charsmap"),
        CASE(UNK "\x2A\x03\x12\x01" "a", "denormalizer_spec"),
#undef CASE
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct tokenizer *t = NULL;
        char *data = malloc(cases[i].bytes);           /* so that a read beyond the end is detected */
        memcpy(data, cases[i].data, cases[i].bytes);
        assert_int_equal(tokenizer_new(&t, data, cases[i].bytes, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        if (!strstr(err.text, cases[i].named))
            fail_msg("\"%s\" does not name %s", err.text, cases[i].named);
        free(data);
    }
}

static void patterns_that_explode_end_in_an_error(void **state)
{
    static const char json[] = PRE MID "{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("(a+)+$") "," LEVEL "]}" MODEL;
    static const char text[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    struct err err = {0};
    struct tokenizer *t = NULL;
    struct tokens tokens = {0};
    (void)state;
    assert_int_equal(tokenizer_new(&t, json, strlen(json), &err), 0);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, &tokens, &err), -1);
    assert_non_null(strstr(err.text, "limit"));
    tokenizer_free(&t);
}

static void the_hash_sees_what_matters_alone(void **state)
{
    static const char *const same[] = {
        PRE MID LEVEL MODEL,
        PRE MID LEVEL ",\"model\":{\"type\":\"BPE\", \"merges\":[[\"a\",\"b\"]],\n\"vocab\":{\"b\":1,\"a\":0,\"ab\":2}}}",
    };
    static const char *const other[] = {
        PRE MID LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":0,\"ab\":2},\"merges\":[\"a b\"]}}",
        PRE MID LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[]}}",
        PRE "{\"id\":3,\"content\":\"x\",\"special\":true}" MID LEVEL MODEL,
        PRE "{\"id\":3,\"content\":\"x\",\"special\":false}" MID LEVEL MODEL,
        PRE MID "null" MODEL,
    };
    static const int32_t first_other[] = {0, -1, 3, 3, -1};     /* merges and decoders are not members of a token */
    struct tokenizer *reference = NULL;
    struct sha256 seen[8];
    size_t n = 0;
    (void)state;
    assert_int_equal(tokenizer_new(&reference, same[0], strlen(same[0]), NULL), 0);
    for (size_t i = 0; i < 2; i++) {
        struct tokenizer *t = NULL;
        assert_int_equal(tokenizer_new(&t, same[i], strlen(same[i]), NULL), 0);
        tokenizer_hash(t, &seen[n++]);
        assert_int_equal(tokenizer_compare(reference, t), -1);
        tokenizer_free(&t);
    }
    assert_memory_equal(&seen[0], &seen[1], sizeof *seen);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        struct tokenizer *t = NULL;
        assert_int_equal(tokenizer_new(&t, other[i], strlen(other[i]), NULL), 0);
        tokenizer_hash(t, &seen[n]);
        assert_int_equal(tokenizer_compare(reference, t), first_other[i]);
        assert_int_equal(tokenizer_compare(t, reference), first_other[i]);
        tokenizer_free(&t);
        for (size_t k = 0; k < n; k++)
            assert_memory_not_equal(&seen[k], &seen[n], sizeof *seen);
        n++;
    }
    tokenizer_free(&reference);
}

static void made_words_take_any_text_and_name_every_id(void **state)
{
    enum { VOCAB = 256 + 70 + 4900 + 3 };
    const struct { int32_t id; const char *word; } words[] = {
        {'A', "A"}, {256, " ba"}, {256 + 69, " tu"}, {256 + 70, " baba"}, {256 + 70 + 4900, " bababa"}, {VOCAB - 1, " bababi"}};
    struct tokenizer *t = NULL, *longer = NULL;
    struct text json = {0}, again = {0};
    size_t bytes;
    (void)state;
    assert_int_equal(tokenizer_made(&json, 255, NULL), 0);
    assert_null(json.data);
    assert_int_equal(tokenizer_made(&json, VOCAB, NULL), 0);
    assert_int_equal(tokenizer_made(&again, VOCAB + 9, NULL), 0);
    assert_int_equal(tokenizer_new(&t, json.data, json.length, NULL), 0);
    assert_int_equal(tokenizer_new(&longer, again.data, again.length, NULL), 0);
    assert_int_equal(tokenizer_vocab_size(t), VOCAB);
    assert_int_equal(tokenizer_compare(t, longer), VOCAB);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const uint8_t *word = tokenizer_token_bytes(t, words[i].id, &bytes);
        assert_int_equal(bytes, strlen(words[i].word));
        assert_memory_equal(word, words[i].word, bytes);
    }
    for (int32_t id = 0; id < VOCAB; id++)
        assert_non_null(tokenizer_token_bytes(t, id, &bytes));
    for (uint32_t code = 0; code < 0x3000; code++) {                /* a byte is a token */
        char text[4];
        struct tokens tokens = {0};
        const int length = utf8_put(text, code);
        assert_int_equal(tokenizer_encode(t, text, (size_t)length, 0, &tokens, NULL), 0);
        assert_int_equal(tokens.n, length);
        for (int i = 0; i < length; i++)
            assert_int_equal(*tokenizer_token_bytes(t, tokens.ids[i], &bytes), (uint8_t)text[i]);
        tokens_free(&tokens);
    }
    text_free(&json);
    text_free(&again);
    tokenizer_free(&t);
    tokenizer_free(&longer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pocket_ids_are_those_of_the_package),
        cmocka_unit_test(every_kind_of_element_gives_the_ids_of_the_package),
        cmocka_unit_test(patterns_of_families_split_as_those_of_the_package),
        cmocka_unit_test(vocabularies_of_tiktoken_give_its_ids),
        cmocka_unit_test(damaged_vocabularies_of_tiktoken_are_refused),
        cmocka_unit_test(marked_spaces_give_ids_and_texts_of_the_package),
        cmocka_unit_test(models_of_sentencepiece_give_its_ids_and_texts),
        cmocka_unit_test(long_runs_of_byte_tokens_come_out_in_part),
        cmocka_unit_test(decoding_gives_the_normalised_text_back),
        cmocka_unit_test(a_stream_never_splits_a_character),
        cmocka_unit_test(special_tokens_show_when_asked),
        cmocka_unit_test(content_cannot_make_special_tokens),
        cmocka_unit_test(long_words_and_runs_take_seconds_at_most),
        cmocka_unit_test(ten_megabytes_of_anything_take_seconds),
        cmocka_unit_test(invalid_utf8_is_refused_with_its_position),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(models_that_are_none_are_refused_by_name),
        cmocka_unit_test(patterns_that_explode_end_in_an_error),
        cmocka_unit_test(the_hash_sees_what_matters_alone),
        cmocka_unit_test(made_words_take_any_text_and_name_every_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
