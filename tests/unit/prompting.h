/* Set-up for tests of prompts: the pocket model's tokenizer and chat template, and a folder for files of prompts. */
#ifndef MOE_TESTS_UNIT_PROMPTING_H
#define MOE_TESTS_UNIT_PROMPTING_H

#include "common/base/file.h"
#include "common/prompts/prompts.h"
#include "common/tokenizer/config.h"
#include "tests/unit/unit.h"

struct fixture {
    char *folder;
    struct tokenizer *tokenizer;
    struct tokenizer_config config;
    struct template *chat;
    struct prompts_options options;     /* the template, and its trusted tokens */
};

static inline int prompting_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct text json = {0};
    f->folder = unit_folder();
    assert_int_equal(file_read(&json, unit_path(unit_models(), "pocket/model/tokenizer.json"), 1 << 26, NULL), 0);
    assert_int_equal(tokenizer_new(&f->tokenizer, json.data, json.length, NULL), 0);
    text_clear(&json);
    assert_int_equal(file_read(&json, unit_path(unit_models(), "pocket/model/tokenizer_config.json"), 1 << 20, NULL), 0);
    assert_int_equal(tokenizer_config_read(&f->config, json.data, json.length, NULL), 0);
    assert_int_equal(template_new(&f->chat, f->config.chat_template, strlen(f->config.chat_template), NULL), 0);
    text_free(&json);
    f->options.chat_template = f->chat;
    f->options.trusted = f->config.tokens;
    *state = f;
    return 0;
}

static inline int prompting_teardown(void **state)
{
    struct fixture *f = *state;
    unit_remove(f->folder);
    tokenizer_free(&f->tokenizer);
    tokenizer_config_free(&f->config);
    template_free(&f->chat);
    free(f);
    return 0;
}

#endif
