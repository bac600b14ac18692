/* Tokens that tokenizer_config.json adds around a text if tokenizer.json adds none. */
#include "common/base/mem.h"
#include "common/checkpoint/frame.h"
#include "tests/unit/unit.h"

/* Makes a vocabulary of "a", bos "<\"s>" and eos "</s>", with `post` among its members. */
static struct text tokenizer_text(const char *post)
{
    struct text json = {0};
    assert_int_equal(text_printf(&json, NULL, " {\"added_tokens\":[{\"id\":1,\"content\":\"<\\\"s>\",\"special\":true},"
                                 "{\"id\":2,\"content\":\"</s>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                                 "\"add_prefix_space\":false,\"use_regex\":true},%s\"decoder\":{\"type\":\"ByteLevel\"},"
                                 "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}} ", post), 0);
    return json;
}

/* Returns the ids of "a" with the added tokens. */
static void check_ids(const struct tokenizer *tokenizer, const char *expected)
{
    struct tokens tokens = {0};
    struct text shown = {0};
    assert_int_equal(tokenizer_encode(tokenizer, "a", 1, TOKENIZER_FRAME, &tokens, NULL), 0);
    for (int i = 0; i < tokens.n; i++)
        text_printf(&shown, NULL, "%s%d", i ? " " : "", (int)tokens.ids[i]);
    assert_string_equal(shown.data, expected);
    tokens_free(&tokens);
    text_free(&shown);
}

static void check_frame(const char *post, const char *settings, const char *expected)
{
    struct text json = tokenizer_text(post);
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_config config = {0};
    struct err err = {0};
    struct text framed = {0};
    char *frame = NULL;
    assert_int_equal(tokenizer_new(&tokenizer, json.data, json.length, &err), 0);
    assert_int_equal(tokenizer_config_read(&config, settings, strlen(settings), &err), 0);
    assert_int_equal(frame_make(&frame, tokenizer, &config, &err), 0);
    if (frame) {
        tokenizer_free(&tokenizer);
        assert_int_equal(frame_put(&framed, &json, frame, &err), 0);
        if (tokenizer_new(&tokenizer, framed.data, framed.length, &err))
            fail_msg("%s: %s", framed.data, err.text);
    }
    check_ids(tokenizer, expected);
    mem_free(&frame);
    text_free(&framed);
    tokenizer_free(&tokenizer);
    tokenizer_config_free(&config);
    text_free(&json);
}

#define NAMES "\"bos_token\":{\"content\":\"<\\\"s>\"},\"eos_token\":\"</s>\"}"

static const char levels[] = "\"post_processor\":{\"type\":\"ByteLevel\",\"trim_offsets\":false},";
static const char own[] = "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},"
                          "{\"SpecialToken\":{\"id\":\"e\"}}],\"special_tokens\":{\"e\":{\"ids\":[2]}}},";

static void tokens_that_are_asked_for_are_put(void **state)
{
    static const char bos[] = "{\"add_bos_token\":true,\"add_eos_token\":false," NAMES;
    (void)state;
    check_frame(levels, bos, "1 0");
    check_frame("", bos, "1 0");
    check_frame("\"post_processor\":null,", bos, "1 0");
    check_frame("\"post\\u005fprocessor\" : {\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}]} ,", bos, "1 0");
    check_frame(levels, "{\"add_bos_token\":true,\"add_eos_token\":true," NAMES, "1 0 2");
    check_frame("", "{\"add_eos_token\":true," NAMES, "0 2");
}

static void others_are_not(void **state)
{
    (void)state;
    check_frame(own, "{\"add_bos_token\":true," NAMES, "0 2");         /* the tokenizer defines the added tokens */
    check_frame(levels, "{\"add_bos_token\":false," NAMES, "0");
    check_frame(levels, "{" NAMES, "0");
    check_frame(levels, "{\"add_bos_token\":true,\"bos_token\":\"<b>\"}", "0");
    check_frame(levels, "{\"add_bos_token\":true,\"bos_token\":null}", "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_that_are_asked_for_are_put), cmocka_unit_test(others_are_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
