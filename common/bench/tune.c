#include "common/bench/tune.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/bench/ready.h"
#include "common/bench/sweep.h"
#include "common/session/drafts.h"

enum { LENGTHS = 3 };
static const int lengths[LENGTHS] = {2, 4, 8};

/* Results of one setting over all prompts, in one order. */
struct run {
    double seconds;                     /* total seconds, without reading prompts */
    int64_t tokens;                     /* tokens decoded in these seconds */
    struct draft_share share;           /* work of the setting's only drafter */
};

struct tune {
    const struct tune_setup *setup;
    struct suite *suite;                /* model and settings: without drafts, and one setting per change */
    struct bench_model model;
    struct ready_setting ready[2];      /* the current and the changed options; their addresses must not change */
    int current;                        /* index of the current options in ready */
    int current_setting;                /* setting of the current options */
    double plain, rate;                 /* tokens/s without drafts, and of the current options at their last measurement */
    json_t *cost, *drafters, *tried;
};

/* ---- changes to try */

/* Replaces the file of a drafter by its absolute path, because settings are read from any folder. */
static json_t *full_name(const char *draft, struct err *err)
{
    const char *file = strstr(draft, ":file=");
    struct text plain = {0}, text = {0};
    char *real = NULL;
    json_t *name = NULL;
    int rc = 0;
    if (!file)
        return (name = json_string(draft)) || !err_memory(err) ? name : NULL;
    for (const char *at = file + 6; !rc && *at; at++)
        rc = text_putc(&plain, *at == '\\' && at[1] ? *++at : *at, err);
    if (!rc && !(real = realpath(plain.data, NULL)))
        rc = err_errno(err, "%s", plain.data);
    rc = rc || text_put(&text, draft, (size_t)(file + 6 - draft), err);
    for (const char *at = real; !rc && *at; at++)
        rc = ((*at == ',' || *at == '\\') && text_putc(&text, '\\', err)) || text_putc(&text, *at, err);
    if (!rc && !(name = json_string(text.data)))
        err_set(err, ERR_INPUT, "%s: its name is not UTF-8; rename it", real);
    free(real);
    text_free(&plain);
    text_free(&text);
    return name;
}

static int add_setting(json_t *settings, const char *draft, int length, struct err *err)
{
    json_t *name = full_name(draft, err);
    struct text title = {0};
    if (!name)
        return -1;
    int rc = length ? text_printf(&title, err, "%s -K %d", draft, length) : text_puts(&title, draft, err);
    json_t *setting = rc ? NULL : json_pack("{s:s,s:O}", "name", title.data, "draft", name);
    if (!rc && (!setting || (length && json_object_set_new(setting, "draft-length", json_integer(length))) ||
                json_array_append(settings, setting)))
        rc = err_memory(err);
    json_decref(setting);
    json_decref(name);
    text_free(&title);
    return rc;
}

/* Lists the settings: no drafts, auto, and each drafter that auto finds. */
static int list_settings(json_t *settings, const struct tune_setup *setup, struct err *err)
{
    static const char *automatic[] = {"auto"};
    struct decode_settings all = DECODE_DEFAULTS;
    struct auto_drafts drafts = {.found = false};
    struct model *model = NULL;
    all.draft = (struct strings){automatic, 1};
    int rc = auto_drafts_attach(&all, &drafts, setup->session.model, err) ||
             auto_drafts_inputs(&drafts, claims_see, &setup->console->claims, err) ||
             model_open(&model, setup->session.model, err) || auto_drafts_expand(&all, &drafts, model, err) ||
             add_setting(settings, "none", 0, err) || add_setting(settings, "auto", 0, err) ? -1 : 0;
    for (int i = 0; !rc && i < all.draft.count; i++)
        for (int length = 0; !rc && length < LENGTHS; length++)
            rc = add_setting(settings, all.draft.items[i], lengths[length], err);
    model_close(&model);
    auto_drafts_free(&drafts);
    return rc;
}

static int make_suite(struct tune *tune, struct err *err)
{
    const struct tune_setup *setup = tune->setup;
    json_t *prompts = json_array(), *settings = json_array(), *root = NULL;
    int rc = prompts && settings ? list_settings(settings, setup, err) : err_memory(err);
    for (int i = 0; !rc && i < setup->prompts.count; i++)
        if (json_array_append_new(prompts, json_string(setup->prompts.items[i])))
            rc = err_set(err, ERR_INPUT, "%s: its name is not UTF-8; rename it", setup->prompts.items[i]);
    if (!rc && !(root = json_pack("{s:s,s:O,s:O,s:{s:i}}", "model", setup->session.model, "prompts", prompts, "settings",
                                  settings, "limits", "max-tokens", setup->max_tokens)))
        rc = err_set(err, ERR_INPUT, "%s: its name is not UTF-8; rename it", setup->session.model);
    if (!rc && setup->prompts_max && json_object_set_new(json_object_get(root, "limits"), "prompts",
                                                         json_integer(setup->prompts_max)))
        rc = err_memory(err);
    if (!rc)
        rc = suite_from_json(&tune->suite, root, err);
    json_decref(root);
    json_decref(settings);
    json_decref(prompts);
    return rc;
}

/* ---- measurements */

static int on_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    struct draft_share *share = context;
    (void)err;
    for (int i = 0; i < iteration->drafters; i++) {
        share->steps += iteration->share[i].steps;
        share->levels += iteration->share[i].levels;
        share->proposed += iteration->share[i].proposed;
        share->verified += iteration->share[i].verified;
        share->accepted += iteration->share[i].accepted;
        share->seconds += iteration->share[i].seconds;
    }
    return 0;
}

static int decode_one(struct tune *tune, int which, const struct prompt *from, struct run *run, struct decode_result *result,
                      struct err *err)
{
    const struct decode_sink sink = {.context = &run->share, .iteration = on_iteration};
    const struct decode_prompt prompt = {.token = from->tokens.ids, .tokens = from->tokens.n, .max_tokens = from->max_tokens,
                                         .task = from->task};
    decoder_forget(tune->ready[which].decoders[0]);
    if (decoder_run(tune->ready[which].decoders[0], &prompt, &sink, result, err))
        return err_at(err, "%s", from->where);
    run->seconds += result->total_s - result->prefill_s;
    run->tokens += result->tokens > 1 ? result->tokens - 1 : 0;
    return 0;
}

/* Decodes each prompt with both options; `ahead` is the index of the one that runs first. *same: all tokens are equal. */
static int measure(struct tune *tune, int ahead, struct run *run, bool *same, struct err *err)
{
    struct decode_result result[2];
    int rc = 0;
    run[0] = run[1] = (struct run){0};
    for (size_t i = 0; !rc && i < tune->model.count; i++) {
        const int other = !ahead;
        rc = decode_one(tune, ahead, &tune->model.prompts[i], &run[ahead], &result[ahead], err) ||
             decode_one(tune, other, &tune->model.prompts[i], &run[other], &result[other], err) ? -1 : 0;
        *same &= !rc && result[0].tokens == result[1].tokens &&
                 !memcmp(result[0].token, result[1].token, (size_t)result[0].tokens * sizeof *result[0].token);
    }
    return rc;
}

static double rate(const struct run *run) { return run->seconds > 0 ? (double)run->tokens / run->seconds : 0; }

static int open_setting(struct tune *tune, int which, int setting, struct err *err)
{
    struct text note = {0};
    int rc = ready_setting_open(&tune->ready[which], tune->suite, setting, &tune->model, false, true, &note, err);
    console_notes(tune->setup->console, &note);
    text_free(&note);
    return rc;
}

/* Records a drafter's cost, measured with the drafter alone at the first draft length tried. */
static int note_drafter(struct tune *tune, const struct suite_setting *setting, const struct draft_share *share,
                        struct err *err)
{
    const json_t *length = json_object_get(setting->options, "draft-length");
    if (!length || json_integer_value(length) != lengths[0])
        return 0;
    json_t *item = json_pack("{s:O,s:o,s:o,s:i,s:i}", "draft", json_object_get(setting->options, "draft"),
                             "seconds_per_draft", json_finite(share->seconds / share->steps),
                             "seconds_per_level", json_finite(share->seconds / share->levels),
                             "verified", share->verified, "accepted", share->accepted);
    return json_array_append_new(tune->drafters, item) ? err_memory(err) : 0;
}

static int note_change(struct tune *tune, const char *name, const double *ratio, int orders, bool same, bool kept,
                       struct err *err)
{
    const char *against = tune->suite->settings[tune->current_setting].name;
    struct text line = {0};
    json_t *item = json_pack("{s:s,s:s,s:[f],s:b,s:b}", "change", name, "against", against, "ratio", ratio[0], "same", same,
                             "kept", kept);
    int rc = !item || (orders > 1 && json_array_append_new(json_object_get(item, "ratio"), json_real(ratio[1]))) ||
             json_array_append(tune->tried, item) ? err_memory(err) : 0;
    json_decref(item);
    rc = rc || text_printf(&line, err, "%s: %.3f", name, ratio[0]) ||
         (orders > 1 && text_printf(&line, err, " and %.3f", ratio[1])) ||
         text_printf(&line, err, " times the tokens/s of %s: %s", against,
                     kept ? "kept" : same ? "not kept" : "other tokens; not kept") ? -1 : 0;
    if (!rc)
        console_note(tune->setup->console, "%s", line.data);
    text_free(&line);
    return rc;
}

/* Tries the second order only if the change gained in the first. `plain` is updated as long as no change was kept. */
static int try_change(struct tune *tune, int setting, struct err *err)
{
    const int now = tune->current, changed = !now;
    double ratio[2] = {0};
    bool same = true, kept = true;
    int orders = 0;
    struct run run[2];
    ready_setting_close(&tune->ready[changed]);
    if (open_setting(tune, changed, setting, err))
        return -1;
    for (; orders < 2 && kept; orders++) {
        if (measure(tune, orders ? changed : now, run, &same, err) ||
            (!orders && note_drafter(tune, &tune->suite->settings[setting], &run[changed].share, err)))
            return -1;
        ratio[orders] = rate(&run[now]) > 0 ? rate(&run[changed]) / rate(&run[now]) : 0;
        kept = same && ratio[orders] >= TUNE_GAIN;
        tune->plain = tune->current_setting ? tune->plain : rate(&run[now]);
        tune->rate = rate(&run[kept ? changed : now]);
    }
    if (note_change(tune, tune->suite->settings[setting].name, ratio, orders, same, kept, err))
        return -1;
    if (kept) {
        tune->current = changed;
        tune->current_setting = setting;
    }
    return 0;
}

static int measure_cost(struct tune *tune, struct err *err)
{
    enum { PREFIX = 64, ROUNDS_MIN = 5 };
    static const int rows[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    const struct session *session = tune->model.session;
    const int positions = engine_max_positions(session->engine), prefix = positions > 2 * PREFIX ? PREFIX : 0;
    struct sweep_setup setup = {.rows = rows, .points = sizeof rows / sizeof *rows, .prefix = prefix, .rounds_min = ROUNDS_MIN,
                                .seconds = tune->setup->seconds};
    struct sweep sweep;
    struct text text = {0};
    while (prefix + rows[setup.points - 1] > positions)
        setup.points--;
    if (sweep_run(&sweep, session, &setup, err) || sweep_json(&text, &sweep, NULL, err)) {
        text_free(&text);
        return -1;
    }
    tune->cost = json_loads(text.data, 0, NULL);
    text_free(&text);
    return tune->cost ? 0 : err_memory(err);
}

/* ---- the file */

static int put_file(const struct tune *tune, struct text *out, struct err *err)
{
    const struct model_identity *identity = model_identity(tune->model.session->model);
    char index[65], source[65];
    sha256_hex(&identity->index, index);
    sha256_hex(&identity->source, source);
    json_t *map = json_pack(
        "{s:i,s:{s:s,s:s,s:s},s:{s:O,s:O,s:O,s:O},s:O,s:{s:f,s:f},s:O,s:O,s:O}", "settings", TUNED_VERSION, "model", "name",
        identity->name, "index", index, "source", source, "machine", "device", json_object_get(tune->cost, "device"), "isa",
        json_object_get(tune->cost, "isa"), "threads", json_object_get(tune->cost, "threads"), "read_bandwidth",
        json_object_get(tune->cost, "read_bandwidth"), "options", tune->suite->settings[tune->current_setting].options,
        "tokens_per_second", "none", tune->plain, "kept", tune->rate, "cost", json_object_get(tune->cost, "cost"), "drafters",
        tune->drafters, "tried", tune->tried);
    char *body = map ? json_text(map, JSON_INDENT(2), err) : NULL;
    int rc = body ? text_printf(out, err, "%s\n", body) : map ? -1 : err_memory(err);
    mem_free(&body);
    json_decref(map);
    return rc;
}

/* Runs once without measuring, so that pages are mapped and processor clocks are up. */
static int warm_up(struct tune *tune, struct err *err)
{
    struct run run = {0};
    struct decode_result result;
    return decode_one(tune, tune->current, &tune->model.prompts[0], &run, &result, err);
}

int tune_run(const struct tune_setup *setup, struct text *out, struct err *err)
{
    struct tune tune = {.setup = setup, .drafters = json_array(), .tried = json_array()};
    int rc = tune.drafters && tune.tried ? make_suite(&tune, err) : err_memory(err);
    if (!rc)
        rc = bench_model_open(&tune.model, tune.suite, 0, &setup->session, setup->console, err) || measure_cost(&tune, err) ||
             open_setting(&tune, tune.current, 0, err) || warm_up(&tune, err) ? -1 : 0;
    for (int setting = 1; !rc && setting < tune.suite->setting_count; setting++)
        rc = try_change(&tune, setting, err);
    if (!rc)
        rc = put_file(&tune, out, err);
    ready_setting_close(&tune.ready[0]);
    ready_setting_close(&tune.ready[1]);
    bench_model_close(&tune.model);
    suite_free(&tune.suite);
    json_decref(tune.cost);
    json_decref(tune.drafters);
    json_decref(tune.tried);
    return rc;
}
