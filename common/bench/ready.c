#include "common/bench/ready.h"

#include <string.h>

#include "common/base/mem.h"

static bool wanted(const struct suite *suite, const struct bench_model *model, const struct prompt *prompt)
{
    bool listed = !suite->task_count;
    int same = 0;
    const char *task = prompt->task ? prompt->task : "";
    for (int i = 0; i < suite->task_count; i++)
        listed |= !strcmp(suite->tasks[i], task);
    for (size_t i = 0; i < model->count && suite->limit_task_prompts; i++)
        same += !strcmp(model->prompts[i].task ? model->prompts[i].task : "", task);
    return listed && (!suite->limit_task_prompts || same < suite->limit_task_prompts);
}

static bool full(const struct suite *suite, const struct bench_model *model)
{
    return suite->limit_prompts && model->count >= (size_t)suite->limit_prompts;
}

static int read_prompts(const struct suite *suite, struct bench_model *model, const struct console *console, struct err *err)
{
    const struct session_prompts options = {.field = suite->field, .chat = suite->chat, .chat_template = suite->chat_template,
                                            .suite = true};
    const struct strings files = {(const char **)suite->prompts, suite->prompt_count};
    struct prompts *prompts = NULL;
    struct prompt prompt;
    int more = 0, rc = -1;
    if (session_open_prompts(&prompts, model->session, &options, &files, NULL, console, err))
        return -1;
    while (!full(suite, model) && (more = prompts_next(prompts, &prompt, err)) > 0) {
        if (!wanted(suite, model, &prompt)) {
            prompt_free(&prompt);
            continue;
        }
        if (mem_grow(&model->prompts, &model->room, model->count + 1, sizeof *model->prompts, err)) {
            prompt_free(&prompt);
            goto done;
        }
        model->prompts[model->count++] = prompt;
    }
    if (more < 0)
        goto done;
    if (!model->count) {
        err_set(err, ERR_INPUT, "no prompt of the suite's files is selected; check \"prompts\", \"tasks\" and \"limits\"");
        goto done;
    }
    rc = 0;
done:
    prompts_close(&prompts);
    return rc;
}

/* Returns a remark on the model that a report must show: that it is synthetic or inflated. */
static char *model_label(const struct session *session, const struct console *console, struct err *err)
{
    struct header header = {0};
    struct text text = {0};
    char *label = NULL;
    if (session_header(session, STREAM_BENCH, console, 0, &header, err))
        return NULL;
    for (int i = 0; i < header.label_count; i++)
        if (text_printf(&text, err, "%s%s: %s", i ? "; " : "", header.labels[i].key, header.labels[i].value))
            goto done;
    label = mem_string(text.data ? text.data : "", err);
done:
    header_free(&header);
    text_free(&text);
    return label;
}

/* Computes the maximum rows per forward that the settings of a model need. */
static int model_rows(const struct suite *suite, int number, int *rows, struct err *err)
{
    *rows = 0;
    for (int i = 0; i < suite->setting_count; i++) {
        int mine = 0;
        if (suite->settings[i].model != number)
            continue;
        if (decode_rows(&suite->settings[i].settings, false, &mine, err))
            return err_at(err, "setting '%s'", suite->settings[i].name);
        mine = decode_rows_of_texts(mine, suite->settings[i].parallel);
        *rows = mine > *rows ? mine : *rows;
    }
    return 0;
}

/* Notes that later turns of chats are not used: a prompt is one sample, so the turns after its first answer are ignored. */
static void note_turns(const struct bench_model *model, const struct console *console)
{
    size_t several = 0;
    for (size_t i = 0; i < model->count; i++)
        several += model->prompts[i].turns > 1;
    if (several)
        console_note(console, "%zu of %zu prompts have several turns, and only the first is decoded; moe-decode decodes all "
                     "turns",
                     several, model->count);
}

int bench_model_open(struct bench_model *model, const struct suite *suite, int number, const struct session_options *options,
                     const struct console *console, struct err *err)
{
    struct session_options session = *options;
    int rows;
    session.model = suite->models[number].path;
    for (int i = 0; i < suite->setting_count; i++)
        if (suite->settings[i].model == number && suite->settings[i].parallel > session.texts)
            session.texts = suite->settings[i].parallel;
    if (model_rows(suite, number, &rows, err))
        return -1;
    if (session_open(&model->session, &session, 0, rows, err) || !(model->label = model_label(model->session, console, err)) ||
        read_prompts(suite, model, console, err))
        return err_at(err, "model %s", suite->models[number].name);
    if (!number)
        note_turns(model, console);
    session_print(model->session, console);
    return 0;
}

void bench_model_keep(struct bench_model *model, size_t first, size_t end)
{
    size_t kept = 0;
    for (size_t i = 0; i < model->count; i++)
        if (i < first || i >= end)
            prompt_free(&model->prompts[i]);
        else
            model->prompts[kept++] = model->prompts[i];
    model->count = kept;
}

void bench_model_close(struct bench_model *model)
{
    for (size_t i = 0; i < model->count; i++)
        prompt_free(&model->prompts[i]);
    mem_free(&model->prompts);
    mem_free(&model->label);
    session_close(&model->session);
    *model = (struct bench_model){0};
}

static int open_parts(struct ready_setting *ready, const struct suite *suite, int setting, const struct session *session,
                      bool force, bool on_device, struct text *note, struct err *err)
{
    struct stream_model model;
    int limit = suite->limit_tokens;
    session_stream_model(session, &model);
    ready->settings = suite->settings[setting].settings;
    if (decode_settings_note(&ready->settings, suite->settings[setting].name, note, err) ||
        auto_drafts_attach(&ready->settings, &ready->drafts, model_path(session->model), err) ||
        auto_drafts_expand(&ready->settings, &ready->drafts, session->model, err))
        return -1;
    if (limit && (ready->settings.max_tokens < 0 || ready->settings.max_tokens > limit))
        ready->settings.max_tokens = limit;
    if (budget_open(&ready->budget, &ready->settings, force, &model, note, err))
        return -1;
    const int texts = suite->settings[setting].parallel;
    struct decoder_setup decoder = {.engine = session->engine, .tokenizer = session->tokenizer,
                                          .settings = &ready->settings, .budget = ready->budget,
                                          .caching = &session->caching, .on_device = on_device, .shares_forwards = texts > 1};
    const char *why = texts > 1 ? decoder_alone(&decoder) : NULL;
    if (why)
        return err_set(err, ERR_INPUT, "\"parallel\": %s", why);
    if (!(ready->decoders = mem_alloc((size_t)texts, sizeof *ready->decoders, err)))
        return -1;
    for (; ready->texts < texts; ready->texts++) {
        if (decoder_open(&ready->decoders[ready->texts], &decoder, err))
            return -1;
        decoder.like = ready->decoders[0];
    }
    return 0;
}

int ready_setting_open(struct ready_setting *ready, const struct suite *suite, int setting, const struct bench_model *model,
                       bool force, bool on_device, struct text *note, struct err *err)
{
    if (open_parts(ready, suite, setting, model->session, force, on_device, note, err))
        return err_at(err, "setting '%s'", suite->settings[setting].name);
    return 0;
}

int ready_setting_check(const struct ready_setting *ready, const struct bench_model *model, const int *order,
                        const char *name, struct err *err)
{
    int longest = 0;
    for (size_t i = 0; i < model->count; i++) {
        const struct prompt *from = &model->prompts[order ? (size_t)order[i] : i];
        const struct decode_prompt prompt = {.token = from->tokens.ids, .tokens = from->tokens.n,
                                             .max_tokens = from->max_tokens};
        if (decoder_check(ready->decoders[0], &prompt, err))
            return err_at(err, "%s: setting '%s'", from->where, name);
        const int room = decoder_room(ready->decoders[0], &prompt);
        longest = room > longest ? room : longest;
    }
    return session_check_texts(model->session, ready->texts, longest, budget_caches(ready->budget), err)
        ? err_at(err, "setting '%s': \"parallel\"", name) : 0;
}

void ready_setting_close(struct ready_setting *ready)
{
    while (ready->texts)
        decoder_close(&ready->decoders[--ready->texts]);
    mem_free(&ready->decoders);
    budget_close(&ready->budget);
    auto_drafts_free(&ready->drafts);
    *ready = (struct ready_setting){0};
}
