#include "common/bench/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/bench/block.h"
#include "common/bench/ready.h"
#include "common/bench/resume.h"
#include "common/bench/roofline.h"
#include "common/stream/bench.h"
#include "common/stream/leftover.h"

enum { WARM_UP_TOKENS = 16 };

struct bench {
    const struct bench_setup *setup;
    const struct suite *suite;
    struct bench_model *models;
    struct ready_setting *ready;
    int *turn;                          /* order of settings for the current prompt */
    struct writer *writer;
    int64_t sequence;                   /* number of the next sample */
    struct progress bar;
    int64_t first;                      /* number in the suite of the part's first prompt */
    struct resume *resume;              /* NULL: no run is resumed */
    struct text plan;
};

static int open_models(struct bench *bench, struct err *err)
{
    const struct bench_setup *setup = bench->setup;
    if (setup->session.caching.hot_set && bench->suite->model_count > 1)
        return err_set(err, ERR_INPUT, "--hot-set: a hot set belongs to one model, but the suite has %d models; leave it out, "
                       "or use a suite with one model",
                       bench->suite->model_count);
    if (!(bench->models = mem_alloc((size_t)bench->suite->model_count, sizeof *bench->models, err)))
        return -1;
    for (int i = 0; i < bench->suite->model_count; i++)
        if (bench_model_open(&bench->models[i], bench->suite, i, &setup->session, setup->console, err))
            return -1;
    return 0;
}

/* Keeps the prompts of the part, which are the same for all models. */
static void take_part(struct bench *bench)
{
    for (int i = 0; i < bench->suite->model_count; i++) {
        struct bench_model *model = &bench->models[i];
        int64_t end;
        shard_range(bench->setup->shard, (int64_t)model->count, &bench->first, &end);
        bench_model_keep(model, (size_t)bench->first, (size_t)end);
    }
}

static int open_settings(struct bench *bench, struct err *err)
{
    const struct suite *suite = bench->suite;
    size_t count = (size_t)suite->setting_count;
    struct text note = {0};
    int rc = -1;
    if (!(bench->ready = mem_alloc(count, sizeof *bench->ready, err)) ||
        !(bench->turn = mem_alloc(count, sizeof *bench->turn, err)))
        return -1;
    for (int i = 0; i < suite->setting_count; i++)
        if (ready_setting_open(&bench->ready[i], suite, i, &bench->models[suite->settings[i].model], bench->setup->force, true,
                      &note, err))
            goto done;
    console_notes(bench->setup->console, &note);
    rc = 0;
done:
    text_free(&note);
    return rc;
}

/* Returns the options of a setting in JSON; the caller frees them. */
static char *describe_options(const struct suite_setting *setting, struct err *err)
{
    json_t *options = json_copy(setting->options);
    char *text = NULL;
    if (!options || (setting->parallel > 1 && json_object_set_new(options, "parallel", json_integer(setting->parallel))))
        err_memory(err);
    else
        text = json_text(options, JSON_COMPACT | JSON_SORT_KEYS, err);
    json_decref(options);
    return text;
}

static int put_settings(struct bench *bench, struct err *err)
{
    for (int i = 0; i < bench->suite->setting_count; i++) {
        const struct suite_setting *setting = &bench->suite->settings[i];
        const struct bench_model *model = &bench->models[setting->model];
        const struct model_identity *identity = model_identity(model->session->model);
        struct text label = {0}, why = {0};
        const char *key;
        char index[65];
        sha256_hex(&identity->index, index);
        char *options = describe_options(setting, err);
        struct bench_setting record = {.setting = i, .name = setting->name, .model = bench->suite->models[setting->model].path,
                                       .options = options, .moe_layers = identity->moe_layers, .experts = identity->experts,
                                       .reference = setting->reference,
                                       .loop = decoder_loop_device(bench->ready[i].decoders[0]),
                                       .index_sha256 = index, .max_tokens = bench->ready[i].settings.max_tokens,
                                       .context = engine_max_positions(model->session->engine),
                                       .draws = suite_draw_words[bench->suite->draws]};
        int rc = options ? text_puts(&label, model->label, err) : -1;
        if (!rc)
            rc = decode_lossless_label(&bench->ready[i].settings, bench->ready[i].budget, &model->session->caching, &key,
                                       &why, err);
        if (!rc && key)
            rc = text_printf(&label, err, "%s%s: %s", label.length ? "; " : "", key, why.data);
        record.label = label.length ? label.data : NULL;
        if (!rc)
            rc = writer_record(bench->writer, &bench_setting_kind, &record, err) ||
                 bench_describe_setting(&bench->plan, &record, err) ? -1 : 0;
        text_free(&label);
        text_free(&why);
        free(options);
        if (rc)
            return -1;
    }
    return 0;
}

static struct decode_machine describe_machine(const struct bench *bench, struct roofline *described)
{
    const struct session *session = bench->models[0].session;
    *described = (struct roofline){.bytes_per_second = NAN};
    roofline_describe(session->device, described);
    return (struct decode_machine){.threads = described->threads, .device = described->device,
                                   .isa = *described->isa ? described->isa : NULL,
                                   .kv_dtype = session_cache_words[engine_config(session->engine)->cache],
                                   .read_bandwidth = NAN};
}

static int plan_machine(struct bench *bench, struct err *err)
{
    struct roofline described;
    const struct decode_machine record = describe_machine(bench, &described);
    return bench_describe_machine(&bench->plan, &record, err);
}

static int put_machine(struct bench *bench, struct err *err)
{
    struct roofline described;
    struct decode_machine record = describe_machine(bench, &described);
    if (bench->suite->measure_seconds > 0 &&
        roofline_measure(bench->models[0].session->device, ROOFLINE_BYTES, bench->suite->measure_seconds,
                         &record.read_bandwidth, err))
        return -1;
    return writer_record(bench->writer, &decode_machine_kind, &record, err);
}

static bool in_place(const struct bench *bench)
{
    return bench->setup->resume && !strcmp(bench->setup->resume, bench->setup->output);
}

/* Runs prompts under one setting. */
static int run_block(struct bench *bench, size_t first, size_t count, int setting, int repeat, struct err *err)
{
    const struct bench_model *model = &bench->models[bench->suite->settings[setting].model];
    const struct block block = {.suite = bench->suite, .setting = setting, .repeat = repeat, .ready = &bench->ready[setting],
                                .prompts = model->prompts + first, .count = count, .resume = bench->resume,
                                .in_place = in_place(bench), .writer = bench->writer, .bar = &bench->bar,
                                .sequence = bench->sequence};
    bench->sequence += (int64_t)count;
    return block_run(&block, err);
}

/* Decodes a few tokens of the first prompts without recording, so that pages are mapped and processor clocks are up. */
static int warm_up(struct bench *bench, struct err *err)
{
    const struct decode_sink sink = {0};
    struct decode_result result;
    for (int s = 0; s < bench->suite->setting_count; s++) {
        const struct bench_model *model = &bench->models[bench->suite->settings[s].model];
        for (size_t i = 0; i < (size_t)bench->suite->warm_up && i < model->count; i++) {
            const struct prompt *from = &model->prompts[i];
            const struct decode_prompt prompt = {.token = from->tokens.ids, .tokens = from->tokens.n,
                                                 .max_tokens = WARM_UP_TOKENS, .task = from->task};
            if (decoder_run(bench->ready[s].decoders[0], &prompt, &sink, &result, err))
                return err_at(err, "%s: setting '%s'", from->where, bench->suite->settings[s].name);
        }
    }
    return 0;
}

static int run_samples(struct bench *bench, struct err *err)
{
    const struct suite *suite = bench->suite;
    size_t prompts = bench->models[0].count;
    bool blocked = suite->order == SUITE_BLOCKED;
    for (int repeat = 0; repeat < suite->repetitions; repeat++)
        for (size_t outer = 0; outer < (blocked ? (size_t)suite->setting_count : prompts); outer++) {
            if (blocked && run_block(bench, 0, prompts, (int)outer, repeat, err))
                return -1;
            suite_turn(suite, (int)outer + (int)bench->first, repeat, bench->turn);
            for (int inner = 0; !blocked && inner < suite->setting_count; inner++)
                if (run_block(bench, outer, 1, bench->turn[inner], repeat, err))
                    return -1;
        }
    return 0;
}

/* Checks the prompts of all settings before the first run, which may take hours. */
static int check_prompts(const struct bench *bench, struct err *err)
{
    for (int i = 0; i < bench->suite->setting_count; i++) {
        const struct suite_setting *setting = &bench->suite->settings[i];
        if (ready_setting_check(&bench->ready[i], &bench->models[setting->model], NULL, setting->name, err))
            return -1;
    }
    for (int i = 1; i < bench->suite->model_count; i++)
        if (bench->models[i].count != bench->models[0].count)
            return err_set(err, ERR_INPUT, "model %s has %zu prompts, model %s %zu; all must have the same",
                           bench->suite->models[i].name, bench->models[i].count, bench->suite->models[0].name,
                           bench->models[0].count);
    return 0;
}

static void bench_close(struct bench *bench)
{
    for (int i = 0; bench->ready && i < bench->suite->setting_count; i++)
        ready_setting_close(&bench->ready[i]);
    for (int i = 0; bench->models && i < bench->suite->model_count; i++)
        bench_model_close(&bench->models[i]);
    mem_free(&bench->ready);
    mem_free(&bench->models);
    mem_free(&bench->turn);
}

/* Rejects settings that differ in what only moe-bench identity may vary: speeds must come from one machine configuration. */
static int check_settings(const struct suite *suite, struct err *err)
{
    for (int i = 0; i < suite->setting_count; i++) {
        const struct suite_setting *setting = &suite->settings[i];
        if (setting->threads || setting->device || setting->isa || setting->walk != SUITE_GIVEN)
            return err_set(err, ERR_INPUT, "setting '%s': threads, device, isa and order apply to all settings of a run; move "
                           "them to the suite or the command line", setting->name);
        if (setting->parallel > 1 && suite->order != SUITE_BLOCKED)
            return err_set(err, ERR_INPUT, "setting '%s': \"parallel\": needs several prompts in a row, but the suite "
                           "alternates settings prompt by prompt; add \"order\": \"blocked\" to the suite", setting->name);
    }
    return 0;
}

/* Opens the stream to resume. If it is also the output, it need not exist, so that the same command line starts and resumes
 * a run. */
static int open_resume(struct bench *bench, struct err *err)
{
    const char *path = bench->setup->resume;
    struct text found = {0};
    if (!path)
        return 0;
    int rc = leftover_find(&found, path, err);
    if (!rc && (found.length || !in_place(bench)))
        rc = resume_open(&bench->resume, found.length ? found.data : path, err);
    text_free(&found);
    return rc;
}

/* Prints notes once the output and the resumed stream have passed all checks. */
static void note_left(const struct bench *bench)
{
    const char *output = bench->setup->output, *path = bench->setup->resume;
    if (bench->resume)
        console_note(bench->setup->console, "%s: reuses the %d samples that the earlier run finished", path,
                     resume_samples(bench->resume));
    else if (path)
        console_note(bench->setup->console, "%s: contains no finished sample of an earlier run, so all samples are run", path);
    else if (writer_left(bench->writer))
        console_note(bench->setup->console, "%s: contains samples of an interrupted run, but this run starts from the "
                     "beginning; to reuse them, stop and start with --resume %s", output, output);
}

/* Ends a run whose samples are all in the stream already: compares them with the suite, but runs and writes nothing. */
static int pass_finished(struct bench *bench, struct err *err)
{
    const struct bench_setup *setup = bench->setup;
    if (run_samples(bench, err))
        return -1;
    if (resume_samples(bench->resume))
        return err_set(err, ERR_INPUT, "%s: is complete, and contains %d samples that this suite does not need; write to "
                       "another file with -o", resume_path(bench->resume), resume_samples(bench->resume));
    console_note(setup->console, "%s: is already complete, so nothing is run", setup->output);
    writer_abort(&bench->writer, err);
    return 0;
}

/* Reports whether the samples so far survive a failure. */
static void report_kept(const struct bench *bench)
{
    if (bench->setup->kept && bench->writer)
        *bench->setup->kept = writer_is_kept(bench->writer);
}

/* Runs everything after the header of the stream is written. */
static int run_all(struct bench *bench, struct err *err)
{
    const size_t total = bench->models[0].count * (size_t)(bench->suite->setting_count * bench->suite->repetitions);
    if (!total)
        console_note(bench->setup->console, "--shard %d/%d: this part is empty, because the suite has fewer prompts than parts",
                     bench->setup->shard.part, bench->setup->shard.parts);
    console_progress(bench->setup->console, &bench->bar, "runs", total);
    int rc = resume_plan_part(&bench->plan, bench->setup->shard.part, bench->setup->shard.parts, err) ||
             put_settings(bench, err) || plan_machine(bench, err) ||
             (bench->resume && resume_check(bench->resume, &bench->plan, err)) ? -1 : 0;
    if (!rc)
        note_left(bench);
    if (!rc && bench->setup->note)
        console_note(bench->setup->console, "%s", bench->setup->note);
    bool finished = !rc && in_place(bench) && resume_whole(bench->resume) && (size_t)resume_samples(bench->resume) >= total &&
                    !strcmp(resume_path(bench->resume), bench->setup->output);
    if (!rc && finished)
        rc = pass_finished(bench, err);
    else if (!rc)
        rc = put_machine(bench, err) || warm_up(bench, err) || run_samples(bench, err) || put_machine(bench, err) ? -1 : 0;
    progress_end(&bench->bar);
    if (rc || !bench->writer)
        return rc;
    report_kept(bench);
    return writer_close(&bench->writer, err);
}

int bench_run(const struct bench_setup *setup, struct err *err)
{
    struct bench bench = {.setup = setup, .suite = setup->suite};
    struct header header = {0};
    int rc = -1;
    if (check_settings(bench.suite, err) || open_models(&bench, err) || open_settings(&bench, err) ||
        check_prompts(&bench, err) ||
        session_header(bench.models[0].session, STREAM_BENCH, setup->console, bench.ready[0].settings.seed, &header, err))
        goto done;
    header.part = setup->shard.part;
    header.parts = setup->shard.parts;
    take_part(&bench);
    if (open_resume(&bench, err) ||
        (setup->keep ? writer_open_kept : writer_open)(&bench.writer, setup->output, &header, err))
        goto done;
    if (setup->signal_text)
        writer_set_signal_text(bench.writer, setup->signal_text);
    rc = run_all(&bench, err) || session_keep_hot_set(bench.models[0].session, err) ? -1 : 0;
done:
    report_kept(&bench);
    writer_abort(&bench.writer, err);
    resume_close(&bench.resume);
    text_free(&bench.plan);
    header_free(&header);
    bench_close(&bench);
    return rc;
}
