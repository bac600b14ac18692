#include "common/prompts/prompts.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/cli/nearest.h"
#include "common/prompts/internal.h"

enum { TEMPLATE_BYTES = 4 << 20 };
static const size_t default_line_limit = (size_t)64 << 20;

/* ---- opening ---- */

static int parse_arg(json_t *args, const char *arg, struct err *err)
{
    const char *equals = strchr(arg, '=');
    struct text name = {0};
    int rc = -1;
    if (!equals || equals == arg)
        return err_set(err, ERR_INPUT, "template argument \"%.100s\": expected name=value", arg);
    if (text_put(&name, arg, (size_t)(equals - arg), err))
        return -1;
    json_error_t fault;
    json_t *value = json_read(equals + 1, strlen(equals + 1), JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &fault);
    if (!value && !json_no_memory(&fault))
        value = json_string(equals + 1);
    if (!value && json_no_memory(&fault))
        err_memory(err);
    else if (!value || utf8_fault(name.data, name.length) < name.length)
        err_set(err, ERR_INPUT, "template argument \"%.100s\" is not valid UTF-8", arg);
    else if (json_object_set(args, name.data, value))
        err_memory(err);
    else
        rc = 0;
    json_decref(value);
    text_free(&name);
    return rc;
}

/* Returns whether a missing file is more likely a word of an unquoted prompt: it has no folder and no ending. */
static bool is_word(const char *name)
{
    const char *point = strchr(name, '.');
    return !strchr(name, '/') && (!point || !point[1]);
}

static int refuse_words(const struct prompts_options *options, const char *const *files, size_t n_files, struct err *err)
{
    struct text words = {0};
    int rc = -1;
    if (options->n_texts && text_printf(&words, err, "%s ", options->texts[options->n_texts - 1]))
        goto done;
    for (size_t i = 0; i < n_files; i++)
        if (text_printf(&words, err, "%s%s", files[i], i + 1 < n_files ? " " : ""))
            goto done;
    err_set(err, ERR_INPUT, "%s: no such file; if this is the prompt's text, give it with -p and quotes: -p \"%.200s\"",
            files[0], words.data);
done:
    text_free(&words);
    return rc;
}

/* Reports missing files before the first prompt is answered. */
static int check_files(const struct prompts_options *options, const char *const *files, size_t n_files, struct err *err)
{
    struct stat status;
    if (options->words && n_files && strcmp(files[0], "-") && access(files[0], F_OK) && is_word(files[0]))
        return refuse_words(options, files, n_files, err);
    for (size_t i = 0; i < n_files; i++) {
        if (!strcmp(files[i], "-"))
            continue;
        if (access(files[i], R_OK) || stat(files[i], &status))
            return err_errno(err, "%s: cannot be opened", files[i]);
        if (S_ISDIR(status.st_mode))
            return err_set(err, ERR_INPUT, "%s: is a folder; name files of prompts", files[i]);
    }
    return 0;
}

/* Sets the time for templates that print the date, the same for all prompts; a template argument may override it. */
static int put_date(json_t *args)
{
    time_t seconds = time(NULL);
    struct tm now = {0};
    char text[64];
    localtime_r(&seconds, &now);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &now);
    return json_object_set_new(args, "now", json_string(text));
}

static int read_template(struct prompts *p, const char *path, struct err *err)
{
    struct text source = {0};
    if (file_read(&source, path, TEMPLATE_BYTES, err))
        return -1;
    int rc = template_new(&p->own, source.data ? source.data : "", source.length, err);
    text_free(&source);
    p->options.chat_template = p->own;
    return rc ? err_at(err, "%s", path) : 0;
}

int prompts_open(struct prompts **out, const struct prompts_options *options, const char *const *files, size_t n_files,
                 const struct tokenizer *tokenizer, struct err *err)
{
    struct prompts *p = mem_alloc(1, sizeof *p, err);
    int rc = -1;
    if (!p)
        goto done;
    p->options = *options;
    if (!p->options.line_limit)
        p->options.line_limit = default_line_limit;
    if (!p->options.vocab && tokenizer)
        p->options.vocab = tokenizer_vocab_size(tokenizer);
    p->tokenizer = tokenizer;
    p->end = INT64_MAX;
    p->args = json_object();
    p->noted = json_object();
    p->seen = mem_alloc(1, sizeof *p->seen, err);
    if (!p->seen || !p->noted || !p->args || put_date(p->args)) {
        err_memory(err);
        goto done;
    }
    for (size_t i = 0; i < options->n_template_args; i++)
        if (parse_arg(p->args, options->template_args[i], err))
            goto done;
    if (options->n_texts && !n_files && (options->field || options->whole)) {
        err_set(err, ERR_INPUT, "--%s: applies to prompts in files, but only --prompt is given; leave it out",
                options->field ? "field" : "whole");
        goto done;
    }
    if (check_files(options, files, n_files, err) ||
        prompt_lines_open(&p->lines, files, n_files, !n_files && !options->n_texts, options->whole, p->options.line_limit,
                          options->stop, n_files + options->n_texts > 1 ? &p->options.notes : NULL, err) ||
        (options->template_file && read_template(p, options->template_file, err)) ||
        (options->shard.parts && prompts_find_part(p, err)))
        goto done;
    *out = p;
    p = NULL;
    rc = 0;
done:
    prompts_close(&p);
    return rc;
}

void prompts_close(struct prompts **prompts)
{
    if (!*prompts)
        return;
    prompt_lines_close(&(*prompts)->lines);
    template_free(&(*prompts)->own);
    json_decref((*prompts)->args);
    json_decref((*prompts)->noted);
    mem_free(&(*prompts)->seen);
    mem_free(&(*prompts)->fault.id);
    mem_free(&(*prompts)->fault.where);
    mem_free(prompts);
}

void prompt_free(struct prompt *prompt)
{
    mem_free(&prompt->id);
    mem_free(&prompt->task);
    mem_free(&prompt->answer);
    mem_free(&prompt->policy);
    mem_free(&prompt->text);
    mem_free(&prompt->where);
    mem_free(&prompt->mask);
    tokens_free(&prompt->tokens);
    json_decref(prompt->messages);
    json_decref(prompt->rest);
    *prompt = (struct prompt){0};
}

/* ---- prompts ---- */

int prompts_set_text(struct prompt *prompt, const char *text, size_t bytes, struct err *err)
{
    char *copy = mem_copy(text, bytes, err);
    if (!copy)
        return -1;
    mem_free(&prompt->text);
    prompt->text = copy;
    prompt->text_bytes = bytes;
    return 0;
}

int prompts_need_tokenizer(const struct prompts *p, struct err *err)
{
    if (p->tokenizer)
        return 0;
    return err_set(err, ERR_INPUT, "the model has no tokenizer, so prompts must be \"tokens\", not text");
}

int prompts_need_chat(const struct prompts *p, struct err *err)
{
    if (prompts_need_tokenizer(p, err))
        return -1;
    if (p->options.chat_template)
        return 0;
    return err_set(err, ERR_INPUT, "the model has no chat template; name a file with one with --chat-template, or give the "
                   "prompt as text in \"prompt\"");
}

static int use_raw(const struct prompts *p, struct prompt *prompt, const char *text, size_t bytes, struct err *err)
{
    unsigned flags = TOKENIZER_FRAME | (p->options.parse_special ? TOKENIZER_PARSE_SPECIAL : 0);
    if (p->options.system)
        return err_set(err, ERR_INPUT, "--system: this prompt is raw text, not a chat; add --chat");
    if (prompts_need_tokenizer(p, err) || tokenizer_encode(p->tokenizer, text, bytes, flags, &prompt->tokens, err))
        return -1;
    return prompts_set_text(prompt, text, bytes, err);
}

/* Some templates test whether tools and documents are none, not whether they are defined, because transformers always passes
 * them. */
int prompts_render(const struct prompts *p, json_t *messages, bool ask, struct tokens *out, struct text *text, struct err *err)
{
    struct template_output rendered = {0};
    struct tokens tokens = {0};
    int rc = -1;
    json_t *values = json_object();
    p->seen->chat = true;
    if (!values || json_object_set(values, "messages", messages) ||
        json_object_set_new(values, "add_generation_prompt", json_boolean(ask)) ||
        json_object_set_new(values, "tools", json_null()) ||
        json_object_set_new(values, "documents", json_null()) || json_object_update(values, p->args)) {
        err_memory(err);
        goto done;
    }
    if (prompts_need_chat(p, err) || template_render(p->options.chat_template, values, p->options.trusted, &rendered, err) ||
        tokenizer_encode_segments(p->tokenizer, rendered.text.data, rendered.segments, rendered.n_segments,
                                  p->options.parse_special ? TOKENIZER_PARSE_SPECIAL : 0, &tokens, err) ||
        (text && text_put(text, rendered.text.data, rendered.text.length, err)))
        goto done;
    *out = tokens;
    tokens = (struct tokens){0};
    rc = 0;
done:
    json_decref(values);
    template_output_free(&rendered);
    tokens_free(&tokens);
    return rc;
}

int prompts_use_chat(const struct prompts *p, struct prompt *prompt, struct err *err)
{
    struct text text = {0};
    struct tokens tokens = {0};
    int rc = prompts_render(p, prompt->messages, true, &tokens, &text, err) ||
             prompts_set_text(prompt, text.data ? text.data : "", text.length, err) ? -1 : 0;
    if (!rc) {
        tokens_free(&prompt->tokens);
        prompt->tokens = tokens;
        tokens = (struct tokens){0};
    }
    tokens_free(&tokens);
    text_free(&text);
    return rc;
}

static int use_text(const struct prompts *p, struct prompt *prompt, const char *text, size_t bytes, struct err *err)
{
    p->seen->text = true;
    if (p->options.answers == PROMPTS_ANSWERED)
        return prompt_answered(p, prompt, &(struct prompt_given){.text = text, .bytes = bytes}, err);
    if (!p->options.chat)
        return use_raw(p, prompt, text, bytes, err);
    if (!(prompt->messages = prompts_new_chat(p, err)))
        return -1;
    return prompts_add_message(prompt->messages, "user", text, bytes, err) || prompts_use_chat(p, prompt, err) ? -1 : 0;
}

/* Makes a conversation without its recorded answers: the messages before each answer are sent in turn. */
static int use_questions(const struct prompts *p, struct prompt *prompt, json_t *messages, struct err *err)
{
    size_t next, count = json_array_size(messages);
    prompt->rest = json_incref(messages);
    if (!(prompt->messages = json_array()))
        return err_memory(err);
    if (prompts_take_question(prompt->messages, messages, 0, &next, err))
        return -1;
    if (!next)
        return err_set(err, ERR_INPUT, "\"messages\": message 0 is the assistant's, but no message before it could be "
                       "answered; begin with a user's message");
    for (size_t i = next + 1; i < count; i++)           /* each question after an answer is a further turn */
        prompt->turns += !prompts_is_answer(json_array_get(messages, i)) &&
                         prompts_is_answer(json_array_get(messages, i - 1));
    return prompts_use_chat(p, prompt, err);
}

static int use_messages(const struct prompts *p, struct prompt *prompt, json_t *messages, struct err *err)
{
    if (p->options.answers == PROMPTS_ASK_AGAIN)
        return use_questions(p, prompt, messages, err);
    prompt->messages = json_incref(messages);
    return prompts_use_chat(p, prompt, err);
}

static int use_turns(const struct prompts *p, struct prompt *prompt, json_t *turns, struct err *err)
{
    json_t *turn, *first = json_array_get(turns, 0);
    size_t i;
    json_array_foreach(turns, i, turn)
        if (!json_is_string(turn))
            return err_set(err, ERR_INPUT, "\"turns\": turn %zu must be a string", i);
    if (!first || json_array_size(turns) > 10000)
        return err_set(err, ERR_INPUT, "\"turns\" must be a list of 1 to 10000 strings");
    prompt->turns = (int)json_array_size(turns);
    prompt->rest = json_incref(turns);
    if (!(prompt->messages = prompts_new_chat(p, err)))
        return -1;
    return prompts_add_message(prompt->messages, "user", json_string_value(first), json_string_length(first), err) ||
           prompts_use_chat(p, prompt, err) ? -1 : 0;
}

int prompts_ids(const struct prompts *p, const char *key, const json_t *list, struct tokens *out, struct err *err)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list) || !n || n > (size_t)(INT32_MAX - out->n))
        return err_set(err, ERR_INPUT, "\"%s\" must be a list of at least one id", key);
    if (mem_grow(&out->ids, &out->room, (size_t)out->n + n, sizeof *out->ids, err))
        return -1;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_integer_value(id);
        int limit = p->options.vocab ? p->options.vocab : INT32_MAX;
        if (!json_is_integer(id) || value < 0 || value >= limit)
            return err_set(err, ERR_INPUT, "\"%s\": item %zu must be an id from 0 to %d", key, i, limit - 1);
        out->ids[out->n++] = (int32_t)value;
    }
    return 0;
}

/* ---- one JSON object ---- */

/* Alternative key names: those of MT-bench, which Spec-Bench uses, too. */
static const struct { const char *key, *other; } synonyms[] = {{"id", "question_id"}, {"task", "category"}, {NULL, NULL}};

int prompt_label(const json_t *object, const char *key, char **out, struct err *err)
{
    const json_t *value = json_object_get(object, key);
    char number[64];
    *out = NULL;
    for (int i = 0; !value && synonyms[i].key; i++)
        if (!strcmp(key, synonyms[i].key) && (value = json_object_get(object, synonyms[i].other)))
            key = synonyms[i].other;
    if (!value || json_is_null(value))
        return 0;
    if (json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value))
        return (*out = mem_string(json_string_value(value), err)) ? 0 : -1;
    if (!json_is_number(value))
        return err_set(err, ERR_INPUT, "\"%s\" must be a string or a number", key);
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    return (*out = mem_string(number, err)) ? 0 : -1;
}

static int get_policy(const struct prompts *p, const json_t *object, char **out, struct err *err)
{
    const json_t *value = p->options.policies ? json_object_get(object, "policy") : NULL;
    if (!value || json_is_null(value))
        return 0;
    const char *text = json_string_value(value);
    if (!text || !*text || strlen(text) != json_string_length(value))
        return err_set(err, ERR_INPUT, "\"policy\" must be a text such as the value of --policy");
    return (*out = mem_string(text, err)) ? 0 : -1;
}

static int get_max_tokens(const json_t *object, int *out, struct err *err)
{
    const json_t *value = json_object_get(object, "max_tokens");
    if (!value || json_is_null(value))
        return 0;
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 1 || number > INT32_MAX)
        return err_set(err, ERR_INPUT, "\"max_tokens\" must be an integer of at least 1");
    *out = (int)number;
    return 0;
}

/* Notes unknown keys: most likely mistyped, or from a data set with another meaning. */
static void note_keys(const struct prompts *p, const struct prompt *prompt, json_t *object)
{
    static const char *const known[] = {"prompt", "messages", "conversations", "turns", "tokens", "id", "task", "answer",
                                        "answer_tokens", "max_tokens", "question_id", "category", NULL};
    struct text text = {0};
    const char *key;
    json_t *value;
    if (p->options.field || !p->options.notes.put)
        return;                                             /* a user who names a field knows the other keys */
    json_object_foreach(object, key, value) {
        struct nearest nearest = {.word = key};
        bool found = false;
        found = p->options.policies && !strcmp(key, "policy");
        for (int i = 0; known[i] && !found; i++) {
            found = !strcmp(key, known[i]);
            nearest_offer(&nearest, known[i]);
        }
        text_clear(&text);
        if (!found && !text_printf(&text, NULL, "%s: the key \"%.60s\" is not read%s%s%s", prompt->where, key,
                                   nearest.best ? "; did you mean \"" : "", nearest.best ? nearest.best : "",
                                   nearest.best ? "\"?" : ""))
            prompts_note_once(p, "key", key, text.data);
    }
    text_free(&text);
}

/* Finds the kind of prompt that an object has, and its key. */
struct form {
    const char *key;
    json_t *text, *messages, *turns, *tokens;
};

/* Notes a line without the requested field, once. */
static void note_field(const struct prompts *p, const struct prompt *prompt, const char *taken)
{
    struct text text = {0};
    if (p->options.notes.put && !text_printf(&text, NULL, "%s: --field: there is no key \"%.60s\"; its \"%s\" is read",
                                             prompt->where, p->options.field, taken))
        prompts_note_once(p, "field", p->options.field, text.data);
    text_free(&text);
}

static int find_form(const struct prompts *p, const struct prompt *prompt, json_t *object, struct form *out, struct err *err)
{
    const char *field = p->options.field ? p->options.field : "prompt";
    struct form form = {.key = field, .text = json_object_get(object, field)};
    int given = form.text != NULL;
    if (!form.text || !p->options.field) {                     /* a requested field has precedence */
        static const char *const lists[] = {"messages", "conversations"};
        for (int i = 0; i < 2; i++)
            if (json_object_get(object, lists[i])) {
                form.messages = json_object_get(object, lists[i]);
                form.key = lists[i];
                given++;
            }
        form.turns = json_object_get(object, "turns");
        form.tokens = json_object_get(object, "tokens");
        given += (form.turns != NULL) + (form.tokens != NULL);
    }
    if (given != 1)
        return err_set(err, ERR_INPUT, "expected %s of the keys \"%.60s\", \"messages\", \"conversations\", \"turns\" and "
                       "\"tokens\"%s",
                       given ? "only one" : "one", field, given ? "" : "; if the text has another key, name it with --field");
    if (p->options.field && !form.text)
        note_field(p, prompt, form.messages ? form.key : form.turns ? "turns" : "tokens");
    if (json_is_object(json_array_get(form.text, 0))) {        /* data sets that call a chat a prompt */
        form.messages = form.text;
        form.text = NULL;
    }
    *out = form;
    return form.text && !json_is_string(form.text) ? err_set(err, ERR_INPUT, "\"%.60s\" must be a string", field) : 0;
}

static int use_form(const struct prompts *p, struct prompt *prompt, const json_t *object, const struct form *form,
                    struct err *err)
{
    const json_t *text = form->text;
    p->seen->text |= text != NULL;
    if (p->options.answers == PROMPTS_ANSWERED)
        return prompt_answered(p, prompt, &(struct prompt_given){
            json_string_value(text), json_string_length(text), form->messages, form->turns, form->tokens,
            json_object_get(object, "answer_tokens")}, err);
    if (form->messages)
        return use_messages(p, prompt, form->messages, err);
    if (form->turns)
        return use_turns(p, prompt, form->turns, err);
    if (form->tokens)
        return prompts_ids(p, "tokens", form->tokens, &prompt->tokens, err);
    return use_text(p, prompt, json_string_value(text), json_string_length(text), err);
}

static int use_object(const struct prompts *p, struct prompt *prompt, json_t *object, struct err *err)
{
    struct form form = {0};
    p->seen->object = true;
    note_keys(p, prompt, object);
    if (find_form(p, prompt, object, &form, err) ||
        prompt_label(object, "id", &prompt->id, err) || prompt_label(object, "task", &prompt->task, err) ||
        prompt_label(object, "answer", &prompt->answer, err) || get_max_tokens(object, &prompt->max_tokens, err) ||
        get_policy(p, object, &prompt->policy, err))
        return -1;
    json_t *messages = form.messages ? prompts_read_messages(p, prompt, form.key, form.messages, err) : NULL;
    if (form.messages && !messages)
        return -1;
    form.messages = messages;
    /* Recorded conversations end with the answer; the messages before it form the prompt. */
    bool recorded = messages && p->options.answers == PROMPTS_ASK && !strcmp(form.key, "conversations");
    int rc = (recorded && prompts_put_last_answers_aside(messages, prompt, err)) ||
             use_form(p, prompt, object, &form, err) ? -1 : 0;
    json_decref(messages);
    return rc;
}

/* Returns the remedy for a text that is read as JSON lines. */
static const char *remedy_of(const struct prompts *p)
{
    return p->line.standard ? "--whole takes standard input as text"
                            : "a text is a file .txt or .md, or comes through standard input or -p";
}

static int use_line(const struct prompts *p, struct prompt *prompt, struct err *err)
{
    const struct text *line = p->line.text;
    const char *bytes = line->data ? line->data : "";
    json_error_t where;
    int rc = -1;
    size_t fault = utf8_fault(bytes, line->length);
    if (fault < line->length)
        return err_set(err, ERR_INPUT, "byte %zu of the line (0x%02x) is not valid UTF-8; convert the file to UTF-8", fault,
                       (unsigned)(unsigned char)bytes[fault]);
    p->seen->plain |= p->line.plain;
    if (p->line.plain)
        return use_text(p, prompt, bytes, line->length, err);
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | (p->line.item ? JSON_DECODE_ANY : 0);
    json_t *object = json_read(bytes, line->length, flags, &where);
    if (!object && json_no_memory(&where))
        err_memory(err);
    else if (!object && p->line.item)
        err_set(err, ERR_INPUT, "this item of the list is not valid JSON: line %d of it, column %d: %s", where.line,
                where.column, where.text);
    else if (!object)
        err_set(err, ERR_INPUT, "column %d: not valid JSON: %s; expected one object a line (%s)", where.column, where.text,
                remedy_of(p));
    else if (p->line.item && json_is_string(object))
        rc = use_text(p, prompt, json_string_value(object), json_string_length(object), err);
    else if (p->line.item && !json_is_object(object))
        err_set(err, ERR_INPUT, "an item of the list must be an object or a text");
    else if (!json_is_object(object))
        err_set(err, ERR_INPUT, "expected one JSON object a line (%s)", remedy_of(p));
    else
        rc = use_object(p, prompt, object, err);
    json_decref(object);
    return rc;
}

/* Sets the members common to all prompts; frees `made` on failure. */
static int finish(struct prompts *p, struct prompt *made, struct prompt *out, struct err *err)
{
    char ordinal[32];
    snprintf(ordinal, sizeof ordinal, "%lld", (long long)p->ordinal);
    if (!made->tokens.n)
        return err_set(err, ERR_INPUT, "the prompt is empty");
    if (!made->id && !(made->id = mem_string(ordinal, err)))
        return -1;
    made->ordinal = p->ordinal;
    *out = *made;
    *made = (struct prompt){0};
    return 0;
}

/* Records the invalid prompt for prompts_fault. */
static int note_fault(struct prompts *p, struct prompt *made, const char *where, struct err *err)
{
    char ordinal[32];
    snprintf(ordinal, sizeof ordinal, "%lld", (long long)p->ordinal);
    mem_free(&p->fault.id);
    mem_free(&p->fault.where);
    p->fault.ordinal = p->ordinal;
    p->fault.id = made->id;
    made->id = NULL;
    if (!p->fault.id)
        p->fault.id = mem_string(ordinal, NULL);
    p->fault.where = mem_string(where, NULL);
    return err_at(err, "%s", where);
}

/* Makes one prompt by `use`; it is counted even if it is invalid. */
static int next_made(struct prompts *p, int (*use)(const struct prompts *, struct prompt *, struct err *), const char *where,
                     struct prompt *out, struct err *err)
{
    struct prompt made = { .turns = 1 };
    int rc = (made.where = mem_string(where, err)) && !use(p, &made, err) && !finish(p, &made, out, err)
                 ? 1 : note_fault(p, &made, where, err);
    p->ordinal++;
    prompt_free(&made);
    return rc;
}

static int use_given(const struct prompts *p, struct prompt *prompt, struct err *err)
{
    const char *text = p->options.texts[p->next_text - 1];
    return use_text(p, prompt, text, strlen(text), err);
}

static int next_given(struct prompts *p, struct prompt *out, struct err *err)
{
    char where[32] = "-p";
    p->next_text++;
    if (p->options.n_texts > 1)
        snprintf(where, sizeof where, "-p:%zu", p->next_text);
    return next_made(p, use_given, where, out, err);
}

static int too_long(const struct prompts *p, struct prompt *prompt, struct err *err)
{
    (void)p, (void)prompt, (void)err;
    return -1;
}

/* Ends the prompts. A run without any prompt is an error, reported once: the next call returns 0. */
static int end(struct prompts *p, struct err *err)
{
    if (p->ordinal && !p->checks_some)
        prompts_note_unused(p);
    if (p->ordinal || p->checks_some || p->has_none)
        return 0;
    p->has_none = true;
    return err_set(err, ERR_INPUT, "%s: has no prompts; give a text or a JSON object with \"prompt\" on each line",
                   p->line.name ? p->line.name : "prompts");
}

int prompts_next(struct prompts *p, struct prompt *out, struct err *err)
{
    struct text where = {0};
    const int before = prompts_skip_before(p, err);
    if (before <= 0 || p->ordinal >= p->end)
        return before < 0 ? -1 : 0;
    if (p->next_text < p->options.n_texts)
        return next_given(p, out, err);
    int rc = prompt_lines_next(p->lines, &p->line, err);
    if (!rc)
        return end(p, err);
    if (rc < 0 && (!err || err->code != ERR_INPUT))
        return rc;
    if (text_printf(&where, err, "%s:%lld", p->line.name, (long long)p->line.number))
        return -1;
    rc = next_made(p, rc > 0 ? use_line : too_long, where.data, out, err);
    text_free(&where);
    return rc;
}

const struct prompts_fault *prompts_fault(const struct prompts *p) { return p->has_none ? NULL : &p->fault; }

int prompts_check(struct prompts *p, prompts_judge *judge, void *context, bool *all, struct err *err)
{
    struct prompt prompt = {0};
    int more;
    *all = prompts_rewind(p, true);
    p->checks_some = !*all;
    while ((more = prompts_next(p, &prompt, err)) > 0) {
        int rc = judge(context, &prompt, err) ? err_at(err, "%s", prompt.where) : 0;
        prompt_free(&prompt);
        if (rc)
            return -1;
    }
    prompts_rewind(p, false);
    p->checks_some = false;
    return more;
}

int prompts_each(struct prompts *p, const struct stop *stop, prompts_job *job, void *context, bool *ended, struct err *err)
{
    struct prompt prompt = {0};
    int more, rc = 0;
    *ended = false;
    while (!rc && !*ended && (more = prompts_next(p, &prompt, err)) != 0) {
        if (more > 0 && !stop_asked(stop))
            rc = job(context, p, &prompt, ended, err);
        else if (more < 0)
            rc = -1;
        else
            *ended = true;
        *ended |= rc && err->code == ERR_SIGNAL;
        if (more > 0)
            prompt_free(&prompt);
    }
    return *ended ? 0 : rc;
}

/* Appends the next user turn, or the messages of a conversation up to the next answer. */
static int add_next_turn(const struct prompt *prompt, json_t *messages, struct err *err)
{
    const json_t *next = json_array_get(prompt->rest, (size_t)prompt->turn + 1);
    if (json_is_string(json_array_get(prompt->rest, 0)))
        return prompts_add_message(messages, "user", json_string_value(next), json_string_length(next), err);
    size_t at = 0, count = json_array_size(prompt->rest);
    for (int turn = 0; turn <= prompt->turn; turn++) {
        while (at < count && !prompts_is_answer(json_array_get(prompt->rest, at)))
            at++;
        while (at < count && prompts_is_answer(json_array_get(prompt->rest, at)))
            at++;
    }
    return prompts_take_question(messages, prompt->rest, at, &at, err);
}

int prompt_next_turn(struct prompts *p, struct prompt *prompt, const char *answer, size_t bytes, struct err *err)
{
    if (p->options.answers == PROMPTS_ANSWERED) {
        int more = prompt_next_answer(p, prompt, err);
        return more < 0 ? err_at(err, "%s", prompt->where) : more;
    }
    if (prompt->turn + 1 >= prompt->turns)
        return 0;
    json_t *before = prompt->messages, *messages = json_copy(before);
    int rc = -1;
    if (!messages) {
        err_memory(err);
        goto done;
    }
    if (prompts_add_message(messages, "assistant", answer, bytes, err) ||
        add_next_turn(prompt, messages, err))
        goto done;
    prompt->messages = messages;
    if (prompts_use_chat(p, prompt, err)) {
        prompt->messages = before;
        goto done;
    }
    messages = before;
    prompt->turn++;
    rc = 1;
done:
    json_decref(messages);
    if (rc < 0)
        err_at(err, "%s: turn %d", prompt->where, prompt->turn + 2);
    return rc;
}
