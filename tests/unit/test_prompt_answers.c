/* Texts with answers: which tokens belong to an answer, written with brackets, and rejected input. */
#include "tests/unit/prompting.h"

enum { END = 2047 };                        /* <|end|> of the pocket model */

static const int ends[] = {END};

static int setup(void **state)
{
    if (prompting_setup(state))
        return -1;
    struct fixture *f = *state;
    f->options.answers = PROMPTS_ANSWERED;
    f->options.ends = ends;
    f->options.n_ends = 1;
    f->options.vocab = 2048;
    return 0;
}

/* Writes the text token by token, with brackets around each run of tokens that the mask selects. */
static void put_marked(const struct fixture *f, const struct prompt *prompt, struct text *out)
{
    for (int i = 0; i < prompt->tokens.n; i++) {
        bool is = prompt->mask && prompt->mask[i], was = i && prompt->mask && prompt->mask[i - 1];
        text_puts(out, is && !was ? "[" : was && !is ? "]" : "", NULL);
        tokenizer_decode(f->tokenizer, &prompt->tokens.ids[i], 1, TOKENIZER_SHOW_SPECIAL, out, NULL);
    }
    if (prompt->mask && prompt->mask[prompt->tokens.n - 1])
        text_putc(out, ']', NULL);
}

/* Returns the marked text of one line, or the error. */
static char *marked(struct fixture *f, const char *line)
{
    struct text out = {0};
    struct err err = {0};
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    const char *path = unit_path(f->folder, "p.jsonl");
    unit_write(path, line, strlen(line));
    if (prompts_open(&p, &f->options, &path, 1, f->tokenizer, &err) || prompts_next(p, &prompt, &err) < 0)
        text_printf(&out, NULL, "error: %s", err.text);
    else
        put_marked(f, &prompt, &out);
    prompt_free(&prompt);
    prompts_close(&p);
    return out.data;
}

static void gives(struct fixture *f, const char *line, const char *want)
{
    char *seen = marked(f, line);
    assert_string_equal(seen, want);
    free(seen);
}

static void fails(struct fixture *f, const char *line, const char *word)
{
    char *seen = marked(f, line);
    if (strncmp(seen, "error: ", 7) || !strstr(seen, "p.jsonl:1: ") || !strstr(seen, word))
        fail_msg("%s\n gives \"%s\", which lacks \"%s\"", line, seen, word);
    free(seen);
}

#define USER(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ASSISTANT(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define MESSAGES(list) "{\"messages\": [" list "]}"

static void answers_of_each_form_are_found(void **state)
{
    struct fixture *f = *state;
    gives(f, "{\"prompt\": \"One two\", \"answer\": \" three\"}", "One two[ three<|end|>]");
    gives(f, "{\"tokens\": [5, 6], \"answer_tokens\": [7, 8, 2047]}", "&'[()<|end|>]");
    gives(f, "{\"tokens\": [5, 6], \"answer_tokens\": [7]}", "&'[(]");
    gives(f, MESSAGES(USER("hi") ", " ASSISTANT("yes")), "<|user|>\nhi<|assistant|>\n[yes<|end|>]\n");
    gives(f, "{\"messages\": [" USER("hi") "], \"answer\": \"so it is\"}", "<|user|>\nhi<|assistant|>\n[so it is<|end|>]\n");
    gives(f, "{\"turns\": [\"hi\"], \"answer\": 42}", "<|user|>\nhi<|assistant|>\n[42<|end|>]\n");
    f->options.chat = true;
    gives(f, "{\"prompt\": \"hi\", \"answer\": \"yes\"}", "<|user|>\nhi<|assistant|>\n[yes<|end|>]\n");
    f->options.n_ends = 0;                  /* without end tokens all that the template writes for it counts */
    gives(f, MESSAGES(USER("hi") ", " ASSISTANT("yes")), "<|user|>\nhi<|assistant|>\n[yes<|end|>\n]");
    f->options.chat = false;
    gives(f, "{\"prompt\": \"One two\", \"answer\": \" three\"}", "One two[ three]");
}

static void every_turn_counts(void **state)
{
    struct fixture *f = *state;
    gives(f, MESSAGES(USER("a") ", " ASSISTANT("b c") ", " USER("d") ", " ASSISTANT("e")),
          "<|user|>\na<|assistant|>\n[b c<|end|>]\n<|user|>\nd<|assistant|>\n[e<|end|>]\n");
    /* an end token spelled in a message is plain text, and ends nothing */
    gives(f, MESSAGES(USER("a") ", " ASSISTANT("b<|end|>c")), "<|user|>\na<|assistant|>\n[b<|end|>c<|end|>]\n");
    gives(f, "{\"messages\": [" USER("a") ", " ASSISTANT("b") ", " USER("c") "], \"answer\": \"d\"}",
          "<|user|>\na<|assistant|>\n[b<|end|>]\n<|user|>\nc<|assistant|>\n[d<|end|>]\n");
}

static void what_has_no_answer_is_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const lines[] = {
        "{\"prompt\": \"hi\"}", "{\"prompt\": \"hi\", \"answer\": \"\"}", "{\"tokens\": [1]}", MESSAGES(USER("a")),
        MESSAGES(USER("a") ", " ASSISTANT("b") ", " USER("c")), "{\"turns\": [\"a\"]}"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        fails(f, lines[i], "the prompt has no answer");
    fails(f, "{\"turns\": [\"a\", \"b\"], \"answer\": \"c\"}", "questions without answers");
    fails(f, "{\"tokens\": [1], \"answer\": \"c\"}", "answer_tokens");
    fails(f, "{\"tokens\": [1], \"answer_tokens\": [2048]}", "\"answer_tokens\": item 0 must be an id from 0 to 2047");
    fails(f, MESSAGES(ASSISTANT("b")), "message 0: no message before this answer");
    f->options.unanswered = true;
    gives(f, "{\"prompt\": \"hi\"}", "hi");
    gives(f, MESSAGES(USER("a") ", " ASSISTANT("b") ", " USER("c")),
          "<|user|>\na<|assistant|>\n[b<|end|>]\n<|user|>\nc");
}

/* An answer is learnt after exactly the prompt's own tokens. */
static void answers_that_join_are_refused(void **state)
{
    struct fixture *f = *state;
    fails(f, "{\"prompt\": \"the answ\", \"answer\": \"er\"}", "one token contains both the prompt");
    fails(f, "{\"prompt\": \"One two \", \"answer\": \"three\"}", "one token contains both the prompt");
    fails(f, MESSAGES(USER("a") ", " ASSISTANT("\\n\\nb")), "message 1: the chat template does not write this answer directly "
          "after");
}

static void use_template(struct fixture *f, const char *source)
{
    template_free(&f->chat);
    assert_int_equal(template_new(&f->chat, source, strlen(source), NULL), 0);
    f->options.chat_template = f->chat;
}

static void templates_that_change_their_mind_are_refused(void **state)
{
    struct fixture *f = *state;
    /* some families do so with thoughts: only the last answer has them */
    use_template(f, "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{% if m['role'] == 'assistant' and loop.last %}"
                    "{{ 'Hm. ' }}{% endif %}{{ m['content'] }}{% endfor %}"
                    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}");
    gives(f, MESSAGES(USER("a") ", " ASSISTANT("b")), "<|user|>a<|assistant|>[Hm. b]");
    fails(f, MESSAGES(USER("a") ", " ASSISTANT("b") ", " USER("c") ", " ASSISTANT("d")),
          "message 1: the chat template renders this answer differently if more messages follow");
    use_template(f, "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}"
                    "{% if add_generation_prompt %}{{ 'Now speak: ' }}{% endif %}");
    fails(f, MESSAGES(USER("a") ", " ASSISTANT("b")), "message 1: the chat template does not write this answer directly after");
}

/* With `each`, the conversation up to each answer is a text, rendered as for decoding. */
static void each_answer_can_end_a_text(void **state)
{
    struct fixture *f = *state;
    static const char line[] = MESSAGES(USER("a") ", " ASSISTANT("b") ", " USER("c") ", " USER("d") ", " ASSISTANT("e"));
    static const char *const want[] = {"<|user|>a<|assistant|>[Hm. b]",
                                       "<|user|>a<|assistant|>b<|user|>c<|user|>d<|assistant|>[Hm. e]"};
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    struct text seen = {0};
    struct err err = {0};
    const char *path = unit_path(f->folder, "q.jsonl");
    use_template(f, "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{% if m['role'] == 'assistant' and loop.last %}"
                    "{{ 'Hm. ' }}{% endif %}{{ m['content'] }}{% endfor %}"
                    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}");
    f->options.each = true;
    unit_write(path, line, strlen(line));
    assert_int_equal(prompts_open(&p, &f->options, &path, 1, f->tokenizer, &err), 0);
    assert_int_equal(prompts_next(p, &prompt, &err), 1);
    for (int i = 0; i < 2; i++) {
        text_clear(&seen);
        put_marked(f, &prompt, &seen);
        assert_string_equal(seen.data, want[i]);
        assert_int_equal(prompt_next_turn(p, &prompt, NULL, 0, &err), i == 0);
    }
    prompt_free(&prompt);
    assert_int_equal(prompts_next(p, &prompt, &err), 0);
    prompts_close(&p);
    text_free(&seen);
    f->options.unanswered = true;
    gives(f, MESSAGES(USER("a")), "<|user|>a");
}

/* Answers are removed, and the questions asked one after the other. */
static void questions_are_asked_again(void **state)
{
    struct fixture *f = *state;
    static const char line[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, " USER("a") ", " ASSISTANT("b") ", "
                               USER("c") ", " USER("d") ", " ASSISTANT("e") "]}\n" MESSAGES(USER("f")) "\n"
                               MESSAGES(ASSISTANT("g"));
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    struct text seen = {0};
    struct err err = {0};
    const char *path = unit_path(f->folder, "q.jsonl");
    f->options.answers = PROMPTS_ASK_AGAIN;
    unit_write(path, line, strlen(line));
    assert_int_equal(prompts_open(&p, &f->options, &path, 1, f->tokenizer, &err), 0);
    assert_int_equal(prompts_next(p, &prompt, &err), 1);
    assert_int_equal(prompt.turns, 2);
    assert_null(prompt.mask);
    put_marked(f, &prompt, &seen);
    assert_string_equal(seen.data, "<|system|>\ns<|user|>\na<|assistant|>\n");
    text_clear(&seen);
    assert_int_equal(prompt_next_turn(p, &prompt, "B", 1, &err), 1);
    put_marked(f, &prompt, &seen);
    assert_string_equal(seen.data, "<|system|>\ns<|user|>\na<|assistant|>\nB<|end|>\n<|user|>\nc<|user|>\nd<|assistant|>\n");
    assert_int_equal(prompt_next_turn(p, &prompt, "E", 1, &err), 0);
    prompt_free(&prompt);
    assert_int_equal(prompts_next(p, &prompt, &err), 1);
    assert_int_equal(prompt.turns, 1);
    prompt_free(&prompt);
    assert_int_equal(prompts_next(p, &prompt, &err), -1);
    assert_non_null(strstr(err.text, "q.jsonl:3: \"messages\": message 0 is the assistant's"));
    prompts_close(&p);
    text_free(&seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers_of_each_form_are_found, setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(every_turn_counts, setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(what_has_no_answer_is_refused, setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(answers_that_join_are_refused, setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(templates_that_change_their_mind_are_refused, setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(each_answer_can_end_a_text, setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(questions_are_asked_again, setup, prompting_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
