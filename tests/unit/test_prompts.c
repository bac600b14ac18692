/* Prompt files: every form, the pocket model's ids, line numbers in errors, bounded lines, several turns. */
#include "tests/unit/prompting.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

static const char *const hi[] = { "hi" };

static const char *file(struct fixture *f, const char *name, const char *text)
{
    const char *path = unit_path(f->folder, name);
    unit_write(path, text, strlen(text));
    return path;
}

/* Reads all prompts of one file and returns "id:text" of each followed by |, or the error's text (malloc'ed). */
static char *read_all(struct fixture *f, const char *path, const struct tokenizer *tokenizer)
{
    struct err err = {0};
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    struct text out = {0};
    int rc = prompts_open(&p, &f->options, &path, path != NULL, tokenizer, &err) ? -1 : 1;
    while (rc > 0 && (rc = prompts_next(p, &prompt, &err)) > 0) {
        text_printf(&out, NULL, "%s:%s|", prompt.id, prompt.text ? prompt.text : "ids");
        assert_true(prompt.tokens.n > 0);
        prompt_free(&prompt);
    }
    if (rc < 0) {
        assert_int_equal(err.code, ERR_INPUT);
        text_printf(&out, NULL, "error: %s", err.text);
    }
    prompts_close(&p);
    return out.data ? out.data : strdup("");
}

static void expect(struct fixture *f, const char *path, const char *expected)
{
    char *seen = read_all(f, path, f->tokenizer);
    assert_string_equal(seen, expected);
    free(seen);
}

static void expect_error(struct fixture *f, const char *text, const char *where, const char *named)
{
    char *seen = read_all(f, file(f, "e.jsonl", text), f->tokenizer);
    if (!strstr(seen, "error: ") || !strstr(seen, where) || !strstr(seen, named))
        fail_msg("%s\n gives \"%s\", which lacks \"%s\" or \"%s\"", text, seen, where, named);
    free(seen);
}

/* The 240 held-out prompts have the ids that transformers computed. */
static void pocket_prompts_give_the_golden_ids(void **state)
{
    struct fixture *f = *state;
    struct text golden = {0};
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    struct err err = {0};
    int count = 0;
    char *rest = NULL, prompt_path[1200];
    snprintf(prompt_path, sizeof prompt_path, "%s/pocket/heldout.jsonl", unit_models());
    const char *files[] = { prompt_path };
    assert_int_equal(file_read(&golden, unit_path(unit_models(), "pocket/golden.jsonl"), 1 << 26, NULL), 0);
    char *line = strtok_r(golden.data, "\n", &rest);
    assert_int_equal(prompts_open(&p, &f->options, files, 1, f->tokenizer, &err), 0);
    for (; prompts_next(p, &prompt, &err) > 0; count++, line = strtok_r(NULL, "\n", &rest)) {
        json_t *item = json_loads(line, 0, NULL), *ids = json_object_get(item, "prompt_tokens");
        assert_string_equal(prompt.id, json_string_value(json_object_get(item, "id")));
        assert_string_equal(prompt.task, json_string_value(json_object_get(item, "task")));
        assert_non_null(prompt.answer);
        assert_int_equal(prompt.ordinal, count);
        assert_int_equal(prompt.tokens.n, json_array_size(ids));
        for (int i = 0; i < prompt.tokens.n; i++)
            assert_int_equal(prompt.tokens.ids[i], json_integer_value(json_array_get(ids, (size_t)i)));
        json_decref(item);
        prompt_free(&prompt);
    }
    assert_int_equal(count, 240);
    assert_int_equal(err.code, ERR_NONE);
    prompts_close(&p);
    text_free(&golden);
}

static void every_form_is_read(void **state)
{
    struct fixture *f = *state;
    const char *path = file(f, "a.jsonl", "\xEF\xBB\xBF{\"prompt\":\"one\",\"id\":\"x\"}\r\n\n  \n{\"tokens\":[1,2],\"id\":7}\n"
                            "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"other\":{}}\n{\"turns\":[\"a\",\"b\"]}");
    expect(f, path, "x:one|7:ids|2:<|user|>\nhi<|assistant|>\n|3:<|user|>\na<|assistant|>\n|");
    path = file(f, "b.txt", "one\n\ntwo {\r\n");
    expect(f, path, "0:one|1:two {|");
    f->options.whole = true;
    expect(f, path, "0:one\n\ntwo {\r\n|");
    f->options.chat = true;
    static const char *const texts[] = { "hello", "bye" };
    f->options.texts = texts;
    f->options.n_texts = 1;
    expect(f, NULL, "error: --whole: applies to prompts in files, but only --prompt is given; leave it out");
    f->options.whole = false;
    expect(f, NULL, "0:<|user|>\nhello<|assistant|>\n|");
    f->options.chat = false;
    f->options.n_texts = 2;
    expect(f, NULL, "0:hello|1:bye|");
    f->options.whole = true;
    expect(f, path, "0:hello|1:bye|2:one\n\ntwo {\r\n|");
    f->options.chat = true;
    f->options.field = "question";
    f->options.texts = NULL;
    f->options.n_texts = 0;
    expect(f, file(f, "c.jsonl", "{\"question\":\"q\",\"prompt\":5,\"turns\":\"x\",\"answer\":4}\n"),
      "0:<|user|>\nq<|assistant|>\n|");
}

/* Reads these bytes as standard input twice, from a file and through a pipe, and compares the prompts with `expected`. */
static void expect_input(struct fixture *f, const char *bytes, const char *expected)
{
    for (int piped = 0; piped < 2; piped++) {
        int pair[2], kept = dup(STDIN_FILENO), input;
        if (piped) {
            assert_int_equal(pipe(pair), 0);
            assert_int_equal(write(pair[1], bytes, strlen(bytes)), strlen(bytes));
            close(pair[1]);
            input = pair[0];
        } else {
            input = open(file(f, "input", bytes), O_RDONLY);
        }
        assert_true(input >= 0 && kept >= 0);
        dup2(input, STDIN_FILENO);
        char *seen = read_all(f, NULL, f->tokenizer);
        dup2(kept, STDIN_FILENO);
        close(kept);
        close(input);
        if (strcmp(seen, expected) && !(strstr(seen, "error: ") && *expected && strstr(seen, expected)))
            fail_msg("%s\n gives \"%s\", not \"%s\"", bytes, seen, expected);
        free(seen);
    }
}

/* The rule of prompts/lines.h, case by case. */
static void what_cannot_be_json_is_one_text(void **state)
{
    struct fixture *f = *state;
    expect_input(f, "Tell me.\n", "0:Tell me.|");
    expect_input(f, "Tell me.", "0:Tell me.|");
    expect_input(f, "\xEF\xBB\xBFTell\n\nme {\n\n", "0:Tell\n\nme {\n|");
    expect_input(f, " \n\tindented\r\n", "0: \n\tindented|");
    expect_input(f, "[1] is a reference\n", "0:[1] is a reference|");
    expect_input(f, "\"Yes\", she said", "0:\"Yes\", she said|");
    expect_input(f, "", "has no prompts");
    expect_input(f, " \n\n", "has no prompts");
    expect_input(f, "\n  {\"prompt\":\"a\"}\n\n{\"prompt\":\"b\"}", "0:a|1:b|");
    expect_input(f, "\n\n{\"prompt\":\"a\"}\n{x", "error: standard input:4: column 2: not valid JSON");
    expect_input(f, "{x", "(--whole takes standard input as text)");
    expect_input(f, "{x}", "error: standard input:1: ");
    expect_input(f, "[{\"prompt\":\"a\"}]", "0:a|");
    expect_input(f, "[\n{\"prompt\":\"a\"}\n]", "0:a|");
    expect_input(f, "[ \"a\" ]", "0:a|");
    expect_input(f, "[ ] to do", "0:[ ] to do|");
    f->options.whole = true;
    expect_input(f, "{x\n", "0:{x\n|");
    expect_input(f, "Tell me.\n", "0:Tell me.\n|");
    f->options.whole = false;
    expect(f, file(f, "a.TXT", "one\ntwo\n"), "0:one|1:two|");
    expect(f, file(f, "a.md", "# one\n\ntwo\n"), "0:# one\n\ntwo|");
    expect(f, file(f, "a.MD", "{\"prompt\":\"a\"}"), "0:{\"prompt\":\"a\"}|");
    expect_error(f, "plain\n", "e.jsonl:1", "(a text is a file .txt or .md, or comes through standard input or -p)");
}

/* More white space, and a longer text, than one read returns. */
static void long_input_is_one_text(void **state)
{
    struct fixture *f = *state;
    const size_t bytes = 200000;
    char *text = malloc(bytes + 100), *expected = malloc(bytes + 100);
    const char *path;
    for (int ends = 0; ends < 3; ends++) {
        memset(text, ' ', bytes);
        text[bytes] = '\0';
        text[ends ? 65536 - ends : 131072] = ends == 1 ? '[' : 'x';
        sprintf(expected, "0:%s|", text);
        path = file(f, "long", text);
        int input = open(path, O_RDONLY), kept = dup(STDIN_FILENO);
        dup2(input, STDIN_FILENO);
        char *seen = read_all(f, NULL, f->tokenizer);
        dup2(kept, STDIN_FILENO);
        close(input);
        close(kept);
        assert_string_equal(seen, expected);
        free(seen);
    }
    free(text);
    free(expected);
}

static void prompts_go_on_behind_one_that_is_no_good(void **state)
{
    struct fixture *f = *state;
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    struct text seen = {0};
    const char *files[] = { file(f, "a.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\n{\"prompt\":\"b\"}\n"
                                  "{\"prompt\":\"\",\"id\":\"c\"}\n"
                                  "{\"prompt\":\"ddddddddddddddddddddddddddddddd\"}\n{\"prompt\":\"e\"}\n") };
    int rc;
    f->options.line_limit = 30;
    f->options.texts = hi;
    f->options.n_texts = 1;
    assert_int_equal(prompts_open(&p, &f->options, files, 1, f->tokenizer, NULL), 0);
    do {
        struct err err = {0};
        rc = prompts_next(p, &prompt, &err);
        if (rc > 0)
            text_printf(&seen, NULL, "%s:%s|", prompt.id, prompt.text);
        else if (rc < 0)
            text_printf(&seen, NULL, "%s at %s|", prompts_fault(p)->id, strrchr(prompts_fault(p)->where, '/') + 1);
        if (rc > 0)
            prompt_free(&prompt);
    } while (rc);
    assert_string_equal(seen.data, "0:hi|1:a|2 at a.jsonl:2|3:b|c at a.jsonl:4|5 at a.jsonl:5|6:e|");
    prompts_close(&p);
    text_free(&seen);
}

static int judge(void *context, const struct prompt *prompt, struct err *err)
{
    int *left = context;
    assert_true(prompt->tokens.n > 0);
    return --*left ? 0 : err_set(err, ERR_INPUT, "no good");
}

/* Prompts are checked before the first one is used if the input can be read twice; then all are read. */
static void prompts_are_checked_before_the_first(void **state)
{
    struct fixture *f = *state;
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    struct err err = {0};
    char *fifo = strdup(unit_path(f->folder, "fifo"));
    char *name = strdup(file(f, "a.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n"));
    const char *files[] = { name, fifo };
    int left = 3, count = 0;
    bool all;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    f->options.texts = hi;
    f->options.n_texts = 1;
    assert_int_equal(prompts_open(&p, &f->options, files, 1, f->tokenizer, NULL), 0);
    assert_int_equal(prompts_check(p, judge, &left, &all, &err), -1);
    assert_non_null(strstr(err.text, "a.jsonl:2: no good"));
    prompts_close(&p);
    err_clear(&err);
    left = 100;
    assert_int_equal(prompts_open(&p, &f->options, files, 2, f->tokenizer, NULL), 0);
    assert_int_equal(prompts_check(p, judge, &left, &all, &err), 0);        /* the pipe is not read to its end */
    assert_false(all);
    assert_int_equal(left, 97);
    prompts_close(&p);
    assert_int_equal(prompts_open(&p, &f->options, files, 1, f->tokenizer, NULL), 0);
    assert_int_equal(prompts_check(p, judge, &left, &all, &err), 0);
    assert_true(all);
    for (; prompts_next(p, &prompt, &err) > 0; count++) {
        assert_int_equal(prompt.ordinal, count);
        prompt_free(&prompt);
    }
    assert_int_equal(count, 3);
    prompts_close(&p);
    free(fifo);
    free(name);
}

/* Any number of prompts in any number of parts: consecutive ranges whose lengths differ by 1 at most. */
static void parts_are_ranges_that_cover_all(void **state)
{
    (void)state;
    for (int64_t count = 0; count < 20; count++)
        for (int parts = 1; parts < 9; parts++) {
            int64_t next = 0, longest = (count + parts - 1) / parts;
            for (int part = 1; part <= parts; part++) {
                int64_t first, end;
                shard_range((struct shard){part, parts}, count, &first, &end);
                assert_int_equal(first, next);
                assert_true(end - first == longest || end - first == count / parts);
                longest = end - first;                          /* longer parts come first */
                next = end;
            }
            assert_int_equal(next, count);
        }
    static const char *const bad[] = {"", "x", "0/4", "5/4", "1/", "/4", "1/0", "-1/4", "1/4x", " 1/4", "1/1048577",
                                      "1/4294967297"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct shard shard = {7, 8};
        struct err err = {0};
        assert_int_equal(shard_parse(&shard, bad[i], &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        assert_int_equal(shard.part, 7);
    }
    struct shard shard = {7, 8};
    assert_int_equal(shard_parse(&shard, "1048576/1048576", NULL), 0);
    assert_int_equal(shard.part, 1 << 20);
    assert_int_equal(shard_parse(&shard, NULL, NULL), 0);
    assert_int_equal(shard.parts, 0);
}

static int note_prompt(void *context, const struct prompt *prompt, struct err *err)
{
    return text_printf(context, err, "(%s)", prompt->id);
}

/* Parts of -p and two files, with a bad line and a long one: ids, errors, and the prompts before the part. */
static void a_part_is_read_alone(void **state)
{
    struct fixture *f = *state;
    char *one = strdup(file(f, "a.jsonl", "{\"prompt\":\"a\"}\n\n{\"prompt\":7}\n"));
    char *two = strdup(file(f, "b.jsonl",
                            "[\"b\", {\"prompt\": \"c\", \"id\": \"x\"}, \"a text that is too long here\", \"d\"]"));
    const char *files[] = {one, two};
    static const char *const expected[] = {"0:hi 1:a bad2 ", "(0)(1)3:b x:c ", "(0)(1)(3)(x)bad5 6:d "};
    f->options.texts = hi;
    f->options.n_texts = 1;
    f->options.line_limit = 26;
    for (int part = 1; part <= 3; part++) {
        struct prompts *p = NULL;
        struct text seen = {0};
        struct prompt prompt = {0};
        f->options.shard = (struct shard){part, 3};
        assert_int_equal(prompts_open(&p, &f->options, files, 2, f->tokenizer, NULL), 0);
        assert_int_equal(prompts_before(p, note_prompt, &seen, NULL), 0);
        for (int rc = 1; rc; ) {
            struct err err = {0};
            if ((rc = prompts_next(p, &prompt, &err)) > 0)
                text_printf(&seen, NULL, "%s:%s ", prompt.id, prompt.text);
            else if (rc < 0)
                text_printf(&seen, NULL, "bad%lld ", (long long)prompts_fault(p)->ordinal);
            prompt_free(&prompt);
        }
        assert_string_equal(seen.data, expected[part - 1]);
        text_free(&seen);
        prompts_close(&p);
    }
    free(one);
    free(two);
}

static void a_list_is_read_item_by_item(void **state)
{
    struct fixture *f = *state;
    struct text long_list = {0}, expected = {0};
    expect(f, file(f, "l.json",
                   "\xEF\xBB\xBF\n [ {\"prompt\":\"a]},\\\"[{\", \"id\": 5} ,\n"
                   "\"two\\\\\" ,\n{\n \"prompt\":\n\"c\"\n}\n]\n\n"),
           "5:a]},\"[{|1:two\\|2:c|");
    expect_error(f, " [ ] \n", "e.jsonl: ", "has no prompts; give a text");
    expect_error(f, "", "e.jsonl: ", "has no prompts; give a text");
    static const struct { const char *text, *place, *named; } faults[] = {
        {"[\n{\"prompt\":\"a\"}\n\n{\"prompt\":\"b\"}]", "e.jsonl:4", "a comma is missing"},
        {"[{\"prompt\":\"a\"},\n]", "e.jsonl:2", "an item of the list is missing"},
        {"[,]", "e.jsonl:1", "an item of the list is missing"},
        {"[{\"prompt\":\"a\"}", "e.jsonl:1", "\"]\" is missing"},
        {"[\n{\"prompt\":\"a\"", "e.jsonl:2", "ends within this item"},
        {"[{\"prompt\":\"a\"}]\n{\"prompt\":\"b\"}", "e.jsonl:2", "there is text after the list"},
        {"[{\"prompt\" \"a\"}]", "e.jsonl:1", "this item of the list is not valid JSON: line 1 of it, column 13"},
        {"[}]", "e.jsonl:1", "not valid JSON"}, {"[[\"a\"]]", "e.jsonl:1", "must be an object or a text"},
        {"[{\"prompt\":\"a\"},\n\n5]", "e.jsonl:3", "must be an object or a text"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        expect_error(f, faults[i].text, faults[i].place, faults[i].named);
    /* Longer than one read, with items beyond the limit, which are skipped. */
    text_puts(&long_list, "[", NULL);
    for (int i = 0; i < 3000; i++) {
        text_printf(&long_list, NULL, "%s{\"prompt\": \"%d%*s\\\"]\", \"id\": %d}", i ? ", \n" : "", i, i % 7 * 30, "x", i);
        if (i % 7 < 6)
            text_printf(&expected, NULL, "%d:%d%*s\"]|", i, i, i % 7 * 30, "x");
        else
            text_printf(&expected, NULL, "%d no good|", i);
    }
    text_puts(&long_list, "]", NULL);
    const char *path = file(f, "long.json", long_list.data);
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    struct text seen = {0};
    int rc;
    f->options.line_limit = 200;
    assert_int_equal(prompts_open(&p, &f->options, &path, 1, f->tokenizer, NULL), 0);
    do {
        struct err err = {0};
        rc = prompts_next(p, &prompt, &err);
        if (rc > 0)
            text_printf(&seen, NULL, "%s:%s|", prompt.id, prompt.text);
        else if (rc < 0)
            text_printf(&seen, NULL, "%s no good|", prompts_fault(p)->id);
        prompt_free(&prompt);
    } while (rc);
    assert_string_equal(seen.data, expected.data);
    prompts_close(&p);
    text_free(&seen);
    text_free(&long_list);
    text_free(&expected);
}

static void put_note(void *context, const char *text) { text_printf(context, NULL, "%s\n", strrchr(text, '/') + 1); }

/* Parts, ShareGPT, chats under the key "prompts", a system's message; a note on unusual input appears once, however often it
 * is read. */
static void chats_are_read_as_people_have_them(void **state)
{
    struct fixture *f = *state;
    struct text notes = {0};
    f->options.notes = (struct prompt_notes){put_note, &notes};
    expect(f, file(f, "c.json", "[{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                           "{\"type\":\"input_text\",\"text\":\"b\"},\"c\"]}]}]"), "0:<|user|>\na\nb\nc<|assistant|>\n|");
    expect(f, file(f, "c.jsonl", "{\"conversations\":[{\"from\":\"system\",\"value\":\"s\"},"
                            "{\"from\":\"human\",\"value\":\"a\"},"
                            "{\"from\":\"gpt\",\"value\":\"b\"},{\"from\":\"human\",\"value\":\"c\"},"
                            "{\"from\":\"gpt\",\"value\":\"d\"}]}\n{\"prompt\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n"),
           "0:<|system|>\ns<|user|>\na<|assistant|>\nb<|end|>\n<|user|>\nc<|assistant|>\n|"
           "1:<|user|>\nhi<|assistant|>\n|");
    assert_null(notes.data);
    f->options.system = "S";
    expect(f, file(f, "c.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n{\"turns\":[\"a\"]}\n"
                            "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a\"}]}\n"),
           "0:<|system|>\nS<|user|>\nhi<|assistant|>\n|1:<|system|>\nS<|user|>\na<|assistant|>\n|"
           "2:<|system|>\ns<|user|>\na<|assistant|>\n|");
    expect_error(f, "{\"prompt\":\"a\"}", "e.jsonl:1", "--system: this prompt is raw text, not a chat");
    f->options.system = NULL;
    expect_error(f, "{\"messages\":[{\"role\":\"user\"}]}", "e.jsonl:1", "\"messages\": message 0: \"content\" is missing");
    expect_error(f, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "e.jsonl:1", "must be a text, or a list of parts");
    expect_error(f, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":\"x\"}]}]}",
                 "e.jsonl:1", "part 0 (image_url) is not text");
    expect_error(f, "{\"conversations\":[{\"from\":\"gpt\",\"value\":\"a\"}]}", "e.jsonl:1", "there is no question, because "
                 "all");
    expect_error(f, "{\"conversations\":[{\"from\":\"human\"}]}", "e.jsonl:1", "message 0: \"value\" is missing");
    assert_null(notes.data);
    const char *path = file(f, "n.jsonl", "{\"prompt\":\"a\",\"max_token\":3,\"source\":1}\n"
                                 "{\"prompt\":\"b\",\"source\":2}\n"
                                 "{\"messages\":[{\"role\":\"usr\",\"content\":\"a\"},"
                                 "{\"role\":\"usr\",\"content\":\"a\"}]}\n");
    const char *files[] = {path, file(f, "empty.jsonl", "\n\n"), file(f, "empty.txt", "")};
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    bool all;
    int left = 100;
    assert_int_equal(prompts_open(&p, &f->options, files, 3, f->tokenizer, NULL), 0);
    assert_int_equal(prompts_check(p, judge, &left, &all, NULL), 0);
    while (prompts_next(p, &prompt, NULL) > 0)
        prompt_free(&prompt);
    prompts_close(&p);
    assert_string_equal(notes.data, "n.jsonl:1: the key \"max_token\" is not read; did you mean \"max_tokens\"?\n"
                        "n.jsonl:1: the key \"source\" is not read\n"
                        "n.jsonl:3: the role \"usr\" is not one that chats usually have; did you mean \"user\"?\n"
                        "empty.jsonl: has no prompts\nempty.txt: has no prompts\n");
    text_free(&notes);
}

static void arguments_reach_the_template(void **state)
{
    struct fixture *f = *state;
    static const char source[] = "{{ messages[0].content }}{{ n + 1 }}{{ name }}{{ deep.a }}{{ eos_token }}";
    static const char *const args[] = { "n=4", "name=x=y", "deep={\"a\":true}" }, *const faulty[] = { "novalue" };
    struct template *t = NULL;
    struct prompts *p = NULL;
    struct err err = {0};
    assert_int_equal(template_new(&t, source, strlen(source), NULL), 0);
    f->options = (struct prompts_options){ .chat = true, .texts = hi, .n_texts = 1, .chat_template = t,
                                           .trusted = f->config.tokens,
                                           .template_args = args, .n_template_args = 3 };
    expect(f, NULL, "0:hi5x=yTrue<|end|>|");
    f->options.template_args = faulty;
    f->options.n_template_args = 1;
    assert_int_equal(prompts_open(&p, &f->options, NULL, 0, f->tokenizer, &err), -1);
    assert_non_null(strstr(err.text, "name=value"));
    template_free(&t);
}

/* A template from a file replaces the model's; tools and documents are undefined unless arguments define them. */
static void a_template_may_come_from_a_file(void **state)
{
    struct fixture *f = *state;
    static const char *const args[] = { "tools=[1]" };
    struct prompts *p = NULL;
    struct err err = {0};
    f->options.chat = true;
    f->options.texts = hi;
    f->options.n_texts = 1;
    f->options.template_file = strdup(file(f, "chat.jinja",
                                           "{{ messages[0].content }}{% if tools is not none %} with {{ tools }}"
                                           "{% endif %}{% if documents is none %}!{% endif %}"));
    expect(f, NULL, "0:hi!|");
    f->options.template_args = args;
    f->options.n_template_args = 1;
    expect(f, NULL, "0:hi with [1]!|");
    f->options.chat_template = NULL;
    expect(f, NULL, "0:hi with [1]!|");
    file(f, "chat.jinja", "{% if %}");
    assert_int_equal(prompts_open(&p, &f->options, NULL, 0, f->tokenizer, &err), -1);
    assert_non_null(strstr(err.text, "chat.jinja: "));
    free((char *)(uintptr_t)f->options.template_file);
    f->options.template_file = "/nowhere/chat.jinja";
    err_clear(&err);
    assert_int_equal(prompts_open(&p, &f->options, NULL, 0, f->tokenizer, &err), -1);
    assert_non_null(strstr(err.text, "/nowhere/chat.jinja"));
}

static void the_day_is_today_or_an_argument(void **state)
{
    struct fixture *f = *state;
    static const char *const args[] = { "now=2025-08-05" };
    char before[32], after[32], *got;
    struct template *t = NULL;
    time_t now = time(NULL);
    assert_int_equal(template_new(&t, "{{ strftime_now('%d %b %Y') }}", 30, NULL), 0);
    f->options = (struct prompts_options){ .chat = true, .texts = hi, .n_texts = 1, .chat_template = t };
    strftime(before, sizeof before, "0:%d %b %Y|", localtime(&now));
    got = read_all(f, NULL, f->tokenizer);
    now = time(NULL);
    strftime(after, sizeof after, "0:%d %b %Y|", localtime(&now));
    assert_true(!strcmp(got, before) || !strcmp(got, after));           /* the date may change in between */
    free(got);
    f->options.template_args = args;
    f->options.n_template_args = 1;
    expect(f, NULL, "0:05 Aug 2025|");
    template_free(&t);
}

static void special_tokens_in_content_are_text_unless_asked(void **state)
{
    struct fixture *f = *state;
    static const char *const lines[] = { "{\"prompt\":\"<|end|>\"}\n",
                                         "{\"messages\":[{\"role\":\"user\",\"content\":\"<|end|>\"}]}\n" };
    for (int k = 0; k < 4; k++) {
        const char *path = file(f, "s.jsonl", lines[k / 2]);
        struct prompts *p = NULL;
        struct prompt prompt = {0};
        int ends = 0;
        f->options.parse_special = k % 2;
        assert_int_equal(prompts_open(&p, &f->options, &path, 1, f->tokenizer, NULL), 0);
        assert_int_equal(prompts_next(p, &prompt, NULL), 1);
        for (int i = 0; i < prompt.tokens.n; i++)
            ends += prompt.tokens.ids[i] == 2047;
        assert_int_equal(ends, k % 2);
        if (k / 2)
            assert_int_equal(prompt.tokens.ids[0], 2045);
        prompt_free(&prompt);
        prompts_close(&p);
    }
}

static void turns_go_on_with_the_answer(void **state)
{
    struct fixture *f = *state;
    const char *path = file(f, "t.jsonl", "{\"turns\":[\"a\",\"b\",\"c\"]}\n");
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    struct err err = {0};
    struct tokens whole = {0};
    assert_int_equal(prompts_open(&p, &f->options, &path, 1, f->tokenizer, NULL), 0);
    assert_int_equal(prompts_next(p, &prompt, NULL), 1);
    assert_int_equal(prompt.turns, 3);
    assert_int_equal(prompt_next_turn(p, &prompt, "\xFF", 1, &err), -1);       /* nothing has changed */
    assert_non_null(strstr(err.text, "UTF-8"));
    assert_string_equal(prompt.text, "<|user|>\na<|assistant|>\n");
    assert_int_equal(prompt_next_turn(p, &prompt, "yes", 3, NULL), 1);
    assert_int_equal(prompt_next_turn(p, &prompt, "no", 2, NULL), 1);
    assert_int_equal(prompt.turn, 2);
    assert_string_equal(prompt.text, "<|user|>\na<|assistant|>\nyes<|end|>\n<|user|>\nb<|assistant|>\nno<|end|>\n<|user|>\nc"
                        "<|assistant|>\n");
    assert_int_equal(tokenizer_encode(f->tokenizer, prompt.text, prompt.text_bytes, TOKENIZER_PARSE_SPECIAL, &whole, NULL), 0);
    assert_int_equal(whole.n, prompt.tokens.n);
    assert_memory_equal(whole.ids, prompt.tokens.ids, (size_t)whole.n * sizeof *whole.ids);
    assert_int_equal(prompt_next_turn(p, &prompt, "x", 1, NULL), 0);
    tokens_free(&whole);
    prompt_free(&prompt);
    prompts_close(&p);
}

static void a_turn_that_the_template_refuses_changes_nothing(void **state)
{
    struct fixture *f = *state;
    static const char source[] =
        "{{ messages[0].content }}{% if messages[1] is defined %}{{ raise_exception('no more') }}{% endif %}";
    const char *path = file(f, "t.jsonl", "{\"turns\":[\"a\",\"b\"]}\n");
    struct template *t = NULL;
    struct prompts *p = NULL;
    struct prompt prompt = {0};
    assert_int_equal(template_new(&t, source, strlen(source), NULL), 0);
    f->options.chat_template = t;
    assert_int_equal(prompts_open(&p, &f->options, &path, 1, f->tokenizer, NULL), 0);
    assert_int_equal(prompts_next(p, &prompt, NULL), 1);
    json_t *messages = prompt.messages;
    for (int i = 0; i < 2; i++) {
        struct err err = {0};
        assert_int_equal(prompt_next_turn(p, &prompt, "x", 1, &err), -1);
        assert_non_null(strstr(err.text, "t.jsonl:1: turn 2: chat template, line 1: the template refuses: no more"));
        assert_ptr_equal(prompt.messages, messages);
        assert_int_equal(json_array_size(prompt.messages), 1);
        assert_string_equal(prompt.text, "a");
    }
    prompt_free(&prompt);
    prompts_close(&p);
    template_free(&t);
}

static void faults_are_named_with_file_and_line(void **state)
{
    struct fixture *f = *state;
    expect_error(f, "{\"prompt\":\"a\"}\n{\"prompt\":", "e.jsonl:2", "JSON");
    expect_error(f, "[1]\n", "e.jsonl:1", "an item of the list must be an object or a text");
    expect_error(f, "{\"prompt\":\"a\"}\n[1]\n", "e.jsonl:2", "one JSON object a line");
    expect_error(f, "\n\n{\"x\":1}\n", "e.jsonl:3", "--field");
    expect_error(f, "{\"prompt\":\"a\",\"tokens\":[1]}\n", "e.jsonl:1", "only one of");
    expect_error(f, "{\"prompt\":\"a\",\"prompt\":\"b\"}\n", "e.jsonl:1", "duplicate");
    expect_error(f, "{\"prompt\":5}\n", "e.jsonl:1", "\"prompt\" must be a string");
    expect_error(f, "{\"prompt\":\"\"}\n", "e.jsonl:1", "empty");
    expect_error(f, "{\"tokens\":[]}\n", "e.jsonl:1", "at least one id");
    expect_error(f, "{\"tokens\":[1,2048]}\n", "e.jsonl:1", "item 1");
    expect_error(f, "{\"tokens\":[-1]}\n", "e.jsonl:1", "item 0");
    expect_error(f, "{\"tokens\":[1.5]}\n", "e.jsonl:1", "item 0");
    expect_error(f, "{\"messages\":[]}\n", "e.jsonl:1", "at least one message");
    expect_error(f, "{\"messages\":[{\"content\":\"a\"}]}\n", "e.jsonl:1", "message 0");
    expect_error(f, "{\"messages\":[{\"role\":\"user\"}]}\n", "e.jsonl:1", "\"content\" is missing");
    expect_error(f, "{\"turns\":[\"a\",1]}\n", "e.jsonl:1", "turn 1");
    expect_error(f, "{\"prompt\":\"a\",\"max_tokens\":0}\n", "e.jsonl:1", "max_tokens");
    expect_error(f, "{\"prompt\":\"a\",\"id\":[]}\n", "e.jsonl:1", "\"id\"");
    expect_error(f, "{\"prompt\":\"a\xFF\"}\n", "e.jsonl:1", "byte 12");
    f->options.line_limit = 20;
    expect_error(f, "{\"prompt\":\"a\"}\n{\"prompt\":\"aaaaaaaaaaaaaaaaaaaaaaa\"}\n", "e.jsonl:2", "longer than 20 bytes");
}

static void a_model_without_tokenizer_takes_ids_alone(void **state)
{
    struct fixture *f = *state;
    char *seen = read_all(f, file(f, "n.jsonl", "{\"tokens\":[5,70000]}\n{\"prompt\":\"a\"}\n"), NULL);
    assert_non_null(strstr(seen, "0:ids|error: "));
    assert_non_null(strstr(seen, "n.jsonl:2: the model has no tokenizer"));
    free(seen);
    f->options.chat_template = NULL;
    expect_error(f, "{\"turns\":[\"a\"]}\n", "e.jsonl:1", "the model has no chat template");
}

static void a_missing_file_is_an_error_before_any_prompt(void **state)
{
    struct fixture *f = *state;
    struct prompts *p = NULL;
    struct err err = {0};
    const char *files[] = { file(f, "ok.jsonl", "{\"prompt\":\"a\"}"), "/nonexistent/x.jsonl" };
    assert_int_equal(prompts_open(&p, &f->options, files, 2, f->tokenizer, &err), -1);
    assert_null(p);
    assert_int_equal(err.code, ERR_IO);
    assert_non_null(strstr(err.text, "/nonexistent/x.jsonl"));
    files[1] = f->folder;
    err = (struct err){0};
    assert_int_equal(prompts_open(&p, &f->options, files, 2, f->tokenizer, &err), -1);
    assert_non_null(strstr(err.text, "is a folder"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pocket_prompts_give_the_golden_ids, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(every_form_is_read, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_json_is_one_text, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(long_input_is_one_text, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(prompts_go_on_behind_one_that_is_no_good, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(prompts_are_checked_before_the_first, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(parts_are_ranges_that_cover_all, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(a_part_is_read_alone, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(a_list_is_read_item_by_item, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(chats_are_read_as_people_have_them, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(arguments_reach_the_template, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(a_template_may_come_from_a_file, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(the_day_is_today_or_an_argument, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(special_tokens_in_content_are_text_unless_asked, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(turns_go_on_with_the_answer, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(a_turn_that_the_template_refuses_changes_nothing, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(faults_are_named_with_file_and_line, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(a_model_without_tokenizer_takes_ids_alone, prompting_setup, prompting_teardown),
        cmocka_unit_test_setup_teardown(a_missing_file_is_an_error_before_any_prompt, prompting_setup, prompting_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
