#include "common/bench/identity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/bench/ready.h"
#include "kernels/plain/philox.h"

/* The answer to one prompt. */
struct answer {
    int32_t *token;
    double *margin;                     /* [tokens] margin of each token */
    int tokens;
    char *text;
    size_t text_bytes;
};

/* A session: settings with the same model, device and threads share it. */
struct machine {
    int model, threads;
    const char *device, *isa;
    struct bench_model opened;
};

struct run {
    const struct identity_setup *setup;
    struct identity *identity;
    struct machine *machines;
    size_t machine_count, machine_room;
    int *machine_of;                    /* [settings] */
    struct answer **kept;               /* [settings] for references: [prompts] answers; NULL: not a reference, or not yet
                                         * run */
    int *walk;                          /* [prompts] order of prompts in the current setting */
    size_t prompts;
    struct progress bar;
};

/* A prompt that is being decoded; a setting has one for each concurrent text. */
struct text_run {
    struct decoder *decoder;
    const struct prompt *prompt;        /* NULL: the decoder is free */
    int number;                         /* of the prompt */
    struct decode_prompt asked;
    double *margin;                     /* of the answer */
    size_t margins, room;
};

static bool same_word(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

/* Finds or opens the session for a setting: settings with equal model, threads, device and instruction set share it. */
static int find_machine(struct run *run, int number, struct err *err)
{
    const struct suite *suite = run->setup->suite;
    const struct suite_setting *setting = &suite->settings[number];
    struct session_options options = run->setup->session;
    if (setting->device)
        options.device = setting->device;
    if (setting->isa)
        options.isa = setting->isa;
    if (setting->threads)
        options.threads = setting->threads;
    size_t i = 0;
    for (; i < run->machine_count; i++) {
        const struct machine *other = &run->machines[i];
        if (other->model == setting->model && other->threads == options.threads && same_word(other->device, options.device) &&
            same_word(other->isa, options.isa))
            break;
    }
    run->machine_of[number] = (int)i;
    if (i < run->machine_count)
        return 0;
    if (mem_grow(&run->machines, &run->machine_room, i + 1, sizeof *run->machines, err))
        return -1;
    struct machine *machine = &run->machines[i];
    *machine = (struct machine){.model = setting->model, .threads = options.threads, .device = options.device,
                                .isa = options.isa};
    run->machine_count++;
    if (bench_model_open(&machine->opened, suite, setting->model, &options, run->setup->console, err))
        return err_at(err, "setting '%s'", setting->name);
    return 0;
}

/* Returns whether two settings have the same settings of sampling and of stopping, so that they should give the same text. */
static bool samples_alike(const struct decode_settings *a, const struct decode_settings *b)
{
    const bool greedy = a->filter.temperature == 0 && b->filter.temperature == 0;
    return !decode_settings_differ(a, b, greedy ? SETTING_LIMIT | SETTING_ENDING : SETTING_TEXT);
}

static int find_reference(const struct run *run, const struct ready_setting *ready, int number, struct err *err)
{
    const struct suite *suite = run->setup->suite;
    const struct suite_setting *setting = &suite->settings[number];
    for (int i = 0; i < suite->setting_count; i++) {
        const struct suite_setting *other = &suite->settings[i];
        const struct machine *a = &run->machines[run->machine_of[number]], *b = &run->machines[run->machine_of[i]];
        bool meant = suite->reference >= 0 ? other->entry == suite->reference
                                           : suite_plain(other) && a->model == b->model && same_word(a->device, b->device) &&
                                             same_word(a->isa, b->isa);
        if (meant && samples_alike(&ready[number].settings, &ready[i].settings))
            return i;
    }
    return err_set(err, ERR_INPUT, "setting '%s': there is no reference with the same sampling settings%s; add one to the "
                   "suite",
                   setting->name, suite->reference >= 0 ? "" : ", without draft and budget, on the same model and device");
}

/* Returns in *out why the text of a setting may differ from its reference's; NULL: it must not differ. */
static int find_apart(char **out, const struct ready_setting *ready, const struct caching_options *caching, struct err *err)
{
    struct text text = {0}, why = {0};
    const char *key;
    int rc = -1;
    if (decode_lossless_label(&ready->settings, ready->budget, caching, &key, &why, err))
        goto done;
    if (key && (text_printf(&text, err, "%s: %s", key, why.data) || !(*out = mem_string(text.data, err))))
        goto done;
    rc = 0;
done:
    text_free(&text);
    text_free(&why);
    return rc;
}

/* Checks the split between devices, which is the same for all settings. */
static int check_split(const struct caching_options *caching, struct err *err)
{
    struct split_rule split;
    if (caching_split(&split, caching, err))
        return -1;
    return split_rule_is_lossless(&split) ? 0
        : err_set(err, ERR_INPUT, "--split %s: texts depend on the draft under this rule, so settings cannot be compared; "
                  "choose static", split_rule_name(&split));
}

/* Opens every model and setting once before anything is decoded, so that errors are reported at once. */
static int prepare(struct run *run, struct err *err)
{
    const struct identity_setup *setup = run->setup;
    const struct suite *suite = setup->suite;
    size_t count = (size_t)suite->setting_count;
    struct ready_setting *ready = mem_alloc(count, sizeof *ready, err);
    struct text note = {0};
    int rc = -1, compared = 0;
    if (check_split(&setup->session.caching, err))
        goto done;
    if (!ready || !(run->machine_of = mem_alloc(count, sizeof *run->machine_of, err)) ||
        !(run->kept = mem_alloc(count, sizeof *run->kept, err)))
        goto done;
    for (int i = 0; i < suite->setting_count; i++)
        if (find_machine(run, i, err) ||
            ready_setting_open(&ready[i], suite, i, &run->machines[run->machine_of[i]].opened, setup->force, false, &note, err))
            goto done;
    for (int i = 0; i < suite->setting_count; i++) {
        struct identity_row *row = &run->identity->rows[i];
        row->setting = i;
        if ((row->reference = find_reference(run, ready, i, err)) < 0 ||
            find_apart(&row->apart, &ready[i], &run->setup->session.caching, err))
            goto done;
        compared += row->reference != i && (setup->strict || !row->apart);
    }
    for (int i = 0; i < suite->setting_count; i++) {
        const struct identity_row *reference = &run->identity->rows[run->identity->rows[i].reference];
        if (reference->apart) {
            err_set(err, ERR_INPUT, "setting '%s': its reference '%s' may differ from the model's own text (%s); name another "
                    "\"reference\"",
                    suite->settings[i].name, suite->settings[reference->setting].name, reference->apart);
            goto done;
        }
    }
    console_notes(setup->console, &note);
    rc = compared ? 0 : err_set(err, ERR_INPUT, "there is nothing to compare: every setting is a reference, or its text may "
                                "differ; add a setting that drafts, or use --strict");
done:
    for (size_t i = 0; ready && i < count; i++)
        ready_setting_close(&ready[i]);
    mem_free(&ready);
    text_free(&note);
    return rc;
}

static int check_prompts(struct run *run, struct err *err)
{
    run->prompts = run->machines[0].opened.count;
    for (size_t i = 1; i < run->machine_count; i++)
        if (run->machines[i].opened.count != run->prompts)
            return err_set(err, ERR_INPUT, "model %s has %zu prompts, but model %s has %zu; give all models the same prompts",
                           run->setup->suite->models[run->machines[i].model].name, run->machines[i].opened.count,
                           run->setup->suite->models[run->machines[0].model].name, run->prompts);
    return (run->walk = mem_alloc(run->prompts, sizeof *run->walk, err)) ? 0 : -1;
}

static void set_walk(struct run *run, const struct suite_setting *setting)
{
    int count = (int)run->prompts;
    for (int i = 0; i < count; i++)
        run->walk[i] = setting->walk == SUITE_REVERSED ? count - 1 - i : i;
    for (int i = count - 1; setting->walk == SUITE_SHUFFLED && i > 0; i--) {
        struct philox random = philox((struct philox){{(uint32_t)i, 0, 0, 0}}, setting->walk_seed);
        int other = (int)((uint64_t)random.word[0] * ((uint64_t)i + 1) >> 32), kept = run->walk[i];
        run->walk[i] = run->walk[other];
        run->walk[other] = kept;
    }
}

/* Records the margin: the best logit minus the second best. */
static int put_margin(struct text_run *text, const float *logits, int vocab, struct err *err)
{
    float best = -INFINITY, second = -INFINITY;
    for (int i = 0; i < vocab; i++) {
        if (logits[i] > best) {
            second = best;
            best = logits[i];
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    if (mem_grow(&text->margin, &text->room, text->margins + 1, sizeof *text->margin, err))
        return -1;
    text->margin[text->margins++] = (double)best - (double)second;
    return 0;
}

static int on_prompt(void *context, const struct forward *piece, int position, struct err *err)
{
    struct text_run *text = context;
    if (position + piece->rows < text->asked.tokens)
        return 0;
    return put_margin(text, piece->logits + (size_t)(piece->logit_rows - 1) * (size_t)piece->vocab, piece->vocab, err);
}

/* Records the margins of emitted tokens: kept row i gave emitted token i. */
static int on_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    struct text_run *text = context;
    int given = 0;
    for (int row = 0; row < iteration->record.nodes && given < iteration->record.emitted; row++) {
        const struct forward *forward = iteration->forward;
        if (!iteration->kept[row])
            continue;
        if (put_margin(text, forward->logits + (size_t)row * (size_t)forward->vocab, forward->vocab, err))
            return -1;
        given++;
    }
    return 0;
}

static void answer_free(struct answer *answer)
{
    mem_free(&answer->token);
    mem_free(&answer->margin);
    mem_free(&answer->text);
}

/* Reads the prompt. */
static int begin(struct text_run *text, const struct prompt *prompt, int number, struct err *err)
{
    const struct decode_sink sink = {.context = text, .prompt = on_prompt, .iteration = on_iteration};
    text->prompt = prompt;
    text->number = number;
    text->asked = (struct decode_prompt){.token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                         .max_tokens = prompt->max_tokens, .task = prompt->task};
    text->margins = 0;
    decoder_forget(text->decoder);
    return decoder_begin(text->decoder, &text->asked, &sink, err) ? err_at(err, "%s", prompt->where) : 0;
}

/* Runs one iteration of all texts. */
static int step(struct text_run *texts, int count, struct err *err)
{
    struct decoder *decoder[DECODERS_MAX];
    const struct text_run *of[DECODERS_MAX];
    int running = 0, failed;
    for (int i = 0; i < count; i++)
        if (texts[i].prompt && !decoder_ends(texts[i].decoder)) {
            of[running] = &texts[i];
            decoder[running++] = texts[i].decoder;
        }
    if (!running || !decoders_step(decoder, running, &failed, err))
        return 0;
    return failed < 0 ? -1 : err_at(err, "%s", of[failed]->prompt->where);
}

/* Ends the text and copies its answer; the caller frees it. The decoder is free again. */
static int end(struct text_run *text, struct answer *out, struct err *err)
{
    struct decode_result result;
    struct answer made = {0};
    decoder_end(text->decoder, &result);
    text->prompt = NULL;
    made.tokens = result.tokens;
    if (mem_grow(&text->margin, &text->room, (size_t)result.tokens + 1, sizeof *text->margin, err) ||
        !(made.token = mem_copy(result.token, (size_t)result.tokens * sizeof *made.token, err)) ||
        !(made.margin = mem_copy(text->margin, (size_t)result.tokens * sizeof *made.margin, err)) ||
        (result.text && !(made.text = mem_copy(result.text, result.text_bytes, err)))) {
        answer_free(&made);
        return -1;
    }
    made.text_bytes = result.text ? result.text_bytes : 0;
    *out = made;
    return 0;
}

/* Formats a token's bytes as a JSON string; if they are not UTF-8, each byte as \xNN. */
static int token_text(char **out, const struct tokenizer *tokenizer, int32_t id, struct err *err)
{
    size_t bytes = 0;
    const uint8_t *data = tokenizer && id >= 0 ? tokenizer_token_bytes(tokenizer, id, &bytes) : NULL;
    struct text text = {0};
    json_t *value;
    char *written;
    if (!data)
        return 0;
    if ((value = json_stringn((const char *)data, bytes))) {
        written = json_text(value, JSON_ENCODE_ANY, err);
        json_decref(value);
        *out = written ? mem_string(written, err) : NULL;
        free(written);
        return *out ? 0 : err_memory(err);
    }
    int rc = text_putc(&text, '"', err);
    for (size_t i = 0; !rc && i < bytes; i++)
        rc = text_printf(&text, err, "\\\\x%02x", data[i]);
    rc = rc || text_putc(&text, '"', err) || !(*out = mem_string(text.data, err)) ? -1 : 0;
    text_free(&text);
    return rc;
}

static int set_token(struct identity_token *token, const struct answer *answer, int index, const struct tokenizer *tokenizer,
                     struct err *err)
{
    bool there = index < answer->tokens;
    token->id = there ? answer->token[index] : -1;
    token->margin = there ? answer->margin[index] : NAN;
    return token_text(&token->text, tokenizer, token->id, err);
}

static int compare(struct run *run, int setting, int number, const struct answer *here, struct err *err)
{
    struct identity_row *row = &run->identity->rows[setting];
    const struct answer *reference = &run->kept[row->reference][number];
    const struct bench_model *model = &run->machines[run->machine_of[setting]].opened;
    const struct prompt *prompt = &model->prompts[number];
    int index = 0, common = here->tokens < reference->tokens ? here->tokens : reference->tokens;
    while (index < common && here->token[index] == reference->token[index])
        index++;
    bool same_ids = index == here->tokens && index == reference->tokens;
    if (same_ids && here->text_bytes == reference->text_bytes &&
        (!here->text_bytes || !memcmp(here->text, reference->text, here->text_bytes)))
        return 0;
    if (mem_grow(&row->differences, &row->room, row->count + 1, sizeof *row->differences, err))
        return -1;
    struct identity_difference *difference = &row->differences[row->count++];
    *difference = (struct identity_difference){.number = number, .index = index, .position = prompt->tokens.n + index};
    return (difference->prompt = mem_string(prompt->id ? prompt->id : prompt->where, err)) &&
           !set_token(&difference->here, here, index, model->session->tokenizer, err) &&
           !set_token(&difference->reference, reference, index, model->session->tokenizer, err) ? 0 : -1;
}

static int by_number(const void *a, const void *b)
{
    const struct identity_difference *x = a, *y = b;
    return x->number - y->number;
}

/* Ends the text; keeps its answer if the setting is a reference, and compares it otherwise. */
static int end_text(struct run *run, int number, struct text_run *text, struct err *err)
{
    struct identity_row *row = &run->identity->rows[number];
    struct answer answer = {0};
    int rc = 0;
    if (end(text, &answer, err))
        return -1;
    row->prompts++;
    row->tokens += answer.tokens;
    if (row->reference == number) {
        run->kept[number][text->number] = answer;
    } else {
        rc = compare(run, number, text->number, &answer, err);
        answer_free(&answer);
    }
    progress_step(&run->bar, 1);
    return rc;
}

/* Decodes all prompts in the order of the setting, at most `count` at once. */
static int run_texts(struct run *run, int number, struct text_run *texts, int count, struct err *err)
{
    const struct bench_model *model = &run->machines[run->machine_of[number]].opened;
    size_t begun = 0, ended = 0;
    while (ended < run->prompts) {
        for (int i = 0; i < count; i++)
            if (!texts[i].prompt && begun < run->prompts) {
                const int prompt = run->walk[begun++];
                if (begin(&texts[i], &model->prompts[prompt], prompt, err))
                    return -1;
            }
        if (step(texts, count, err))
            return -1;
        for (int i = 0; i < count; i++) {
            if (!texts[i].prompt || !decoder_ends(texts[i].decoder))
                continue;
            if (end_text(run, number, &texts[i], err))
                return -1;
            ended++;
        }
    }
    return 0;
}

/* Decodes all prompts with one setting. Answers of a reference are kept; others are compared and freed. */
static int run_setting(struct run *run, int number, struct err *err)
{
    const struct suite *suite = run->setup->suite;
    const struct bench_model *model = &run->machines[run->machine_of[number]].opened;
    struct identity_row *row = &run->identity->rows[number];
    struct ready_setting ready = {0};
    struct text_run *texts = NULL;
    struct text note = {0};
    int rc = -1;
    if ((row->reference == number && !(run->kept[number] = mem_alloc(run->prompts, sizeof *run->kept[number], err))) ||
        ready_setting_open(&ready, suite, number, model, run->setup->force, false, &note, err) ||
        !(texts = mem_alloc((size_t)ready.texts, sizeof *texts, err)))
        goto done;
    for (int i = 0; i < ready.texts; i++)
        texts[i].decoder = ready.decoders[i];
    set_walk(run, &suite->settings[number]);
    if (ready_setting_check(&ready, model, run->walk, suite->settings[number].name, err))
        goto done;
    if (run_texts(run, number, texts, ready.texts, err)) {
        err_at(err, "setting '%s'", suite->settings[number].name);
        goto done;
    }
    if (row->count)
        qsort(row->differences, row->count, sizeof *row->differences, by_number);
    rc = 0;
done:
    for (int i = 0; texts && i < ready.texts; i++)
        mem_free(&texts[i].margin);
    mem_free(&texts);
    ready_setting_close(&ready);
    text_free(&note);
    return rc;
}

static int run_settings(struct run *run, struct err *err)
{
    struct identity *identity = run->identity;
    int count = run->setup->suite->setting_count;
    for (int references = 1; references >= 0; references--)
        for (int i = 0; i < count; i++)
            if ((identity->rows[i].reference == i) == (references == 1) && run_setting(run, i, err))
                return -1;
    identity->agree = true;
    for (int i = count - 1; i >= 0; i--)
        if (identity->rows[i].count && (run->setup->strict || !identity->rows[i].apart)) {
            identity->agree = false;
            identity->first = &identity->rows[i];
        }
    return 0;
}

static void run_close(struct run *run)
{
    for (int i = 0; run->kept && i < run->setup->suite->setting_count; i++) {
        for (size_t p = 0; run->kept[i] && p < run->prompts; p++)
            answer_free(&run->kept[i][p]);
        mem_free(&run->kept[i]);
    }
    for (size_t i = 0; i < run->machine_count; i++)
        bench_model_close(&run->machines[i].opened);
    mem_free(&run->kept);
    mem_free(&run->machines);
    mem_free(&run->machine_of);
    mem_free(&run->walk);
}

int identity_run(struct identity **out, const struct identity_setup *setup, struct err *err)
{
    struct identity *identity = mem_alloc(1, sizeof *identity, err);
    struct run run = {.setup = setup, .identity = identity};
    int rc = -1;
    if (!identity)
        return -1;
    identity->suite = setup->suite;
    if (!(identity->rows = mem_alloc((size_t)setup->suite->setting_count, sizeof *identity->rows, err)) ||
        prepare(&run, err) || check_prompts(&run, err))
        goto done;
    console_progress(setup->console, &run.bar, "prompts", run.prompts * (size_t)setup->suite->setting_count);
    rc = run_settings(&run, err);
    progress_end(&run.bar);
done:
    run_close(&run);
    if (rc)
        identity_free(&identity);
    else
        *out = identity;
    return rc;
}

void identity_free(struct identity **identity)
{
    struct identity *old = *identity;
    if (!old)
        return;
    for (int i = 0; old->rows && i < old->suite->setting_count; i++) {
        for (size_t d = 0; d < old->rows[i].count; d++) {
            mem_free(&old->rows[i].differences[d].prompt);
            mem_free(&old->rows[i].differences[d].here.text);
            mem_free(&old->rows[i].differences[d].reference.text);
        }
        mem_free(&old->rows[i].differences);
        mem_free(&old->rows[i].apart);
    }
    mem_free(&old->rows);
    mem_free(identity);
}
