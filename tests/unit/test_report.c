/* Reports from hand-made streams: every figure compared with one calculated by hand. */
#include "tests/unit/stream.h"

#include "common/report/bench_figure.h"
#include "common/report/best.h"
#include "common/report/measurements.h"
#include "common/report/report.h"
#include "common/report/summary.h"
#include "common/report/table.h"
#include "common/stream/bench.h"
#include "tests/unit/folder.h"

static void put(struct writer *out, const struct record_kind *kind, const void *body)
{
    struct err err = {0};
    if (writer_record(out, kind, body, &err))
        fail_msg("%s", err.text);
}

/* One prompt under one setting: `steps` iterations of `emitted` tokens each, of which all but one are drafted and accepted. */
struct sample {
    int64_t sequence;
    int setting, repeat;
    const char *id, *task;
    int steps, emitted;
    double us;                      /* of an iteration */
    int experts;
    int64_t bytes;
    int32_t first;                  /* token id that makes outputs differ */
    int correct;                    /* -1: not graded */
    float bound;                    /* of the first drafted token, if not 0; the second is unknown */
};

static void put_sample(struct writer *out, const struct sample *s, bool bench)
{
    int32_t tokens[8] = {s->first, 1, 2, 3, 4, 5, 6, 7};
    const struct bench_sample sample = {s->sequence, s->setting, s->repeat};
    const struct decode_begin begin = {.sequence = s->sequence, .id = s->id, .task = s->task, .prompt_tokens = 3,
                                       .prefill_us = 1000.0 * (double)(s->sequence + 1)};
    if (bench)
        put(out, &bench_sample_kind, &sample);
    put(out, &decode_begin_kind, &begin);
    const float overlap[2] = {NAN, s->bound};
    for (int i = 0; i < s->steps; i++) {
        const struct decode_iter iter = {
            .overlap = s->bound > 0 && s->emitted == 2 ? overlap : NULL,
            .sequence = s->sequence, .K = s->emitted - 1, .nodes = s->emitted, .drafted = s->emitted - 1,
            .accepted = s->emitted - 1, .emitted = s->emitted, .draft_us = 0.25 * s->us, .verify_us = 0.5 * s->us,
            .accept_us = 0.125 * s->us, .other_us = 0.125 * s->us, .experts_wanted = s->experts + 1,
            .experts_loaded = s->experts, .bytes = s->bytes};
        put(out, &decode_iter_kind, &iter);
    }
    const struct decode_done done = {.sequence = s->sequence, .id = s->id, .n = 1 + s->steps * s->emitted, .tokens = tokens,
                                     .text = "x", .finish_reason = FINISH_STOP};
    put(out, &decode_done_kind, &done);
    const struct bench_grade grade = {s->sequence, s->correct == 1, "number", "5", "5"};
    if (s->correct >= 0)
        put(out, &bench_grade_kind, &grade);
}

static void put_machine(struct writer *out, double bandwidth)
{
    const struct decode_machine machine = {.threads = 2, .device = "host", .isa = "avx2", .read_bandwidth = bandwidth};
    put(out, &decode_machine_kind, &machine);
}

static const struct sample samples[] = {
    /* seq set rep  id    task   steps emitted us    experts bytes first correct */
    {0, 0, 0, "a", "math", 4, 1, 100, 8, 1000, 9, 1},      {1, 1, 0, "a", "math", 2, 2, 120, 12, 1600, 9, 1, 0.5f},
    {2, 1, 0, "b", "math", 2, 2, 110, 14, 1800, 9, 0, 0.75f},     {3, 0, 0, "b", "math", 4, 1, 100, 8, 1000, 9, 1},
    {4, 0, 0, "a", "code", 4, 1, 100, 8, 1000, 9, -1},     {5, 1, 0, "a", "code", 2, 2, 400, 12, 1600, 8, -1},
    {6, 0, 1, "a", "math", 4, 1, 300, 8, 1000, 9, 0},      {7, 1, 1, "a", "math", 2, 2, 140, 12, 1600, 9, 0},
};

static const char *bench_stream(void)
{
    struct err err = {0};
    struct header header = {0};
    struct writer *out = NULL;
    const char *path = unit_path(folder, "bench.moes");
    small_header(&header, STREAM_BENCH);
    assert_int_equal(writer_open(&out, path, &header, &err), 0);
    const struct bench_setting none = {0, "none", "m.moe", "{}", NULL, 2, 4, 0, NULL},
                               k = {1, "K1", "m.moe", "{\"draft-length\":1}", "inflated: 64 to 2048", 2, 4, 0, NULL};
    put(out, &bench_setting_kind, &none);
    put(out, &bench_setting_kind, &k);
    put_machine(out, 4e7);
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        put_sample(out, &samples[i], true);
    put_machine(out, 2e7);
    if (writer_close(&out, &err))
        fail_msg("%s", err.text);
    header_free(&header);
    return path;
}

static void gather(struct measurements *all, const char *path)
{
    struct err err = {0};
    struct reader *in = NULL;
    if (reader_open(&in, path, STREAM_ANY, NULL, &err) || measurements_read(all, in, &err))
        fail_msg("%s", err.text);
    reader_close(&in);
}

static const struct summary_row *row_of(const struct summary *summary, int task, int setting)
{
    for (size_t i = 0; i < summary->count; i++)
        if (summary->rows[i].task == task && summary->rows[i].setting == setting)
            return &summary->rows[i];
    fail_msg("no row for task %d, setting %d", task, setting);
    return NULL;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

static double value(const struct summary_row *row, const char *key)
{
    for (const struct summary_column *column = summary_columns; column->key; column++)
        if (!strcmp(column->key, key))
            return summary_value(row, column);
    fail_msg("no column '%s'", key);
    return NAN;
}

static void static_settings_are_told(void **state)
{
    (void)state;
    static const char *const yes[] = { "", "{}", "{\"draft\":\"ngram\",\"draft-length\":4}",
                                       "{\"policy\":\"static\",\"accept\":\"coupled\"}",
                                       "moe-decode --draft ngram -K 4", "-K4 --accept=rejection", "--tree chain p.jsonl",
                                       "{\"policy\":\"static:K=2\"}", "{\"tree\":\"static:file=t\"}" };
    static const char *const no[] = { "{\"policy\":\"cascade\"}", "{\"draft-length\":\"auto\"}", "{\"budget\":4}",
                                      "--policy cascade",
                                      "--policy=tiers -K 4", "-K auto", "-Kauto", "--draft-length auto", "--accept typical",
                                      "--budget 8", "--budget=8", "--tree dynamic:total=9", "{\"tree\":\"dynamic:total=9\"}",
                                      "{\"accept\":\"typical\"}", "{\"accept\":\"typical:epsilon=0.2\"}",
                                      "--accept typical:delta=0.4", "-B 8", "-B8", "-d ngram --force-accept rec.moes",
                                      "{\"force-accept\":\"rec.moes\",\"draft-length\":4}" };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!options_are_static(yes[i]))
            fail_msg("%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (options_are_static(no[i]))
            fail_msg("%s", no[i]);
}

static void figures_are_those_worked_out(void **state)
{
    (void)state;
    struct err err = {0};
    struct measurements all = {0};
    struct summary summary = {0};
    gather(&all, bench_stream());
    assert_int_equal(measurements_arrange(&all, &err), 0);
    assert_int_equal(all.prompts, 3);
    assert_int_equal(summary_make(&summary, &all, &err), 0);
    assert_int_equal(summary.count, 6);
    assert_string_equal(all.tasks[0], "math");
    const struct summary_row *none = row_of(&summary, 0, 0), *k = row_of(&summary, 0, 1);
    /* none: prompt a takes 100 or 300 us per token, so 200; b takes 100. 4 tokens each. */
    near(none->tokens_per_s, 8 / (4 * 200e-6 + 4 * 100e-6));
    /* K1: a takes 60 or 70, so 65; b 55. */
    near(k->tokens_per_s, 8 / (4 * 65e-6 + 4 * 55e-6));
    near(k->ratio, (200.0 + 100) / (65 + 55));
    near(k->ratio_median, (200.0 / 65 + 100.0 / 55) / 2);
    assert_true(k->ratio_low <= k->ratio && k->ratio <= k->ratio_high && k->ratio_low < k->ratio_high);
    near(none->ratio, 1);
    near(k->prompts, 2);
    near(k->samples, 3);
    near(k->tokens, 12);
    near(k->steps, 6);
    near(k->acceptance_length, 2);
    near(value(k, "acceptance_rate"), 1);
    near(k->tokens_per_step, 2);
    assert_true(isnan(none->acceptance_length) && isnan(value(none, "acceptance_rate")));
    near(none->tokens_per_step, 1);
    near(value(k, "experts_loaded_per_step"), (2 * 12 + 2 * 14 + 2 * 12) / 6.0);
    near(value(k, "experts_wanted_per_step"), value(k, "experts_loaded_per_step") + 1);
    near(k->experts_per_layer, value(k, "experts_loaded_per_step") / 2);
    near(k->bytes_per_step, (2 * 1600 + 2 * 1800 + 2 * 1600) / 6.0);
    near(value(k, "bytes_per_token"), k->bytes_per_step / 2);
    near(k->ceiling, 1000 / value(k, "bytes_per_token"));
    assert_true(none->best_static == 1 && k->best_static == 1);
    near(k->best_ratio, 1);
    near(none->best_ratio, 1 / k->ratio);
    near(none->best_ratio_low, 1 / k->ratio_high);
    near(k->bandwidth, (4 * 1600 + 2 * 1800) / (2 * 120e-6 + 2 * 110e-6 + 2 * 140e-6));
    near(k->bandwidth_share, k->bandwidth / 4e7);
    near(k->ttft_ms_mean, (2 + 3 + 8) / 3.0);
    near(k->ttft_ms_median, 3);
    near(k->tpot_ms_median, 0.060);
    near(k->itl_ms_mean, (2 * 0.120 + 2 * 0.110 + 2 * 0.140) / 6);
    near(k->identical, 3);
    near(k->compared, 3);
    near(k->correct, 1);
    near(none->correct, 2);
    near(k->graded, 2);
    assert_int_equal(k->positions, 1);
    near(k->accepted_per_pos[0], 1);
    near(k->trials, 4);
    near(k->trials_kept, 1);
    near(k->bound, (2 * 0.5 + 2 * 0.75) / 4);
    near(k->bound_common_noise, (2 * 0.5 / 1.5 + 2 * 0.75 / 1.25) / 4);
    near(k->trials_per_pos[0], 4);
    near(k->kept_per_pos[0], 1);
    near(k->bound_per_pos[0], k->bound);
    assert_true(none->trials == 0 && isnan(none->bound) && isnan(none->trials_kept));
    const struct summary_row *code = row_of(&summary, 1, 1), *both = row_of(&summary, -1, 1);
    near(code->ratio, 0.5);
    assert_true(isnan(code->ratio_low));
    near(code->identical, 0);
    near(code->graded, 0);
    near(both->identical, 3);
    near(both->compared, 4);
    near(both->tokens_per_s, 12 / (4 * 65e-6 + 4 * 55e-6 + 4 * 200e-6));
    summary_free(&summary);
    measurements_free(&all);
}

static void put_report(struct text *out, enum report_form form)
{
    struct err err = {0};
    struct measurements all = {0};
    struct summary summary = {0};
    gather(&all, bench_stream());
    assert_int_equal(measurements_arrange(&all, &err), 0);
    assert_int_equal(summary_make(&summary, &all, &err), 0);
    assert_int_equal(report_write(&all, &summary, form, 0, out, &err), 0);
    summary_free(&summary);
    measurements_free(&all);
}

static int lines_of(const struct text *text)
{
    int lines = 0;
    for (size_t i = 0; i < text->length; i++)
        lines += text->data[i] == '\n';
    return lines;
}

static void forms_hold_the_same_rows(void **state)
{
    (void)state;
    struct text text = {0}, markdown = {0}, csv = {0}, json = {0};
    put_report(&text, REPORT_TEXT);
    put_report(&markdown, REPORT_MARKDOWN);
    put_report(&csv, REPORT_CSV);
    put_report(&json, REPORT_JSON);
    assert_non_null(strstr(text.data, "reads 0.0 GB/s (0.0 at the beginning, 0.0 at the end)"));
    assert_non_null(strstr(text.data, "K1: m.moe, {\"draft-length\":1} [inflated: 64 to 2048]\n"));
    assert_non_null(strstr(text.data, "math  K1       16666.7   2.50  "));
    assert_non_null(strstr(text.data, "  1/2  number\n"));
    assert_non_null(strstr(markdown.data, "| math | K1      |"));
    assert_int_equal(lines_of(&csv), 7);
    assert_memory_equal(csv.data, "task,setting,prompts,", 21);
    assert_int_equal(lines_of(&json), 1 + 2 + 6);
    assert_non_null(strstr(json.data, "{\"type\":\"row\",\"setting\":\"none\",\"task\":\"math\",\"prompts\":2.0,"));
    assert_non_null(strstr(json.data, "\"acceptance_length\":null"));
    assert_non_null(strstr(json.data, "\"task\":null"));
    text_free(&text);
    text_free(&markdown);
    text_free(&csv);
    text_free(&json);
}

/* A decode stream of two prompts. option: the last word of its command line; index: a digit of its model's digest. */
static const char *decode_stream_of(const char *name, double us, int emitted, const char *option, char index, int threads)
{
    struct err err = {0};
    struct header header = {0};
    struct writer *out = NULL;
    const char *path = unit_path(folder, name);
    const struct decode_machine machine = {.threads = threads, .device = "host", .isa = "avx2", .read_bandwidth = NAN};
    small_header(&header, STREAM_DECODE);
    memset(header.model.index_sha256, index, 64);
    mem_free(&header.argv[2]);
    assert_non_null(header.argv[2] = mem_string(option, &err));
    assert_int_equal(writer_open(&out, path, &header, &err), 0);
    put(out, &decode_machine_kind, &machine);
    /* Two prompts with the same id: the first of one run matches the first of the other. */
    struct sample first = {0, 0, 0, "p", NULL, 6 / emitted, emitted, us, 8, 1000, 9, -1}, second = first;
    second.sequence = 1;
    second.first = 10;
    put_sample(out, &first, false);
    put_sample(out, &second, false);
    if (writer_close(&out, &err))
        fail_msg("%s", err.text);
    header_free(&header);
    return path;
}

static const char *decode_stream(const char *name, double us, int emitted)
{
    return decode_stream_of(name, us, emitted, "a b", 'a', 2);
}

/* Each is a stream of its own, and together they form the reference of an adaptive one, if model and machine agree. */
static void decode_streams_share_the_best_static_one(void **state)
{
    (void)state;
    struct err err = {0};
    struct measurements all = {0};
    struct summary summary = {0};
    gather(&all, decode_stream("base.moes", 100, 1));
    gather(&all, decode_stream("k2.moes", 100, 2));
    gather(&all, decode_stream_of("cascade.moes", 80, 2, "--policy=cascade", 'a', 2));
    gather(&all, decode_stream_of("model.moes", 50, 2, "a b", 'd', 2));
    gather(&all, decode_stream_of("machine.moes", 60, 2, "a b", 'a', 4));
    assert_int_equal(measurements_arrange(&all, &err), 0);
    assert_int_equal(summary_make(&summary, &all, &err), 0);
    assert_int_equal(summary.count, 5);
    static const int best[] = {1, 1, 1, 3, 4};
    static const double ratio[] = {0.5, 1, 100.0 / 80, 1, 1};
    for (int s = 0; s < 5; s++) {
        assert_int_equal(row_of(&summary, 0, s)->best_static, best[s]);
        near(row_of(&summary, 0, s)->best_ratio, ratio[s]);
    }
    summary_free(&summary);
    measurements_free(&all);
}

static void decode_streams_are_compared_with_the_first(void **state)
{
    (void)state;
    struct err err = {0};
    struct measurements all = {0};
    struct summary summary = {0};
    struct text text = {0};
    gather(&all, decode_stream("base.moes", 100, 1));
    gather(&all, decode_stream("k.2.moes", 100, 2));
    assert_int_equal(measurements_arrange(&all, &err), 0);
    assert_int_equal(all.prompts, 2);
    assert_int_equal(summary_make(&summary, &all, &err), 0);
    assert_int_equal(summary.count, 2);
    const struct summary_row *k = row_of(&summary, 0, 1);
    near(k->ratio, 2);
    near(k->identical, 2);
    near(k->compared, 2);
    assert_true(isnan(k->bandwidth_share));
    assert_int_equal(report_write(&all, &summary, REPORT_TEXT, 0, &text, &err), 0);
    assert_non_null(strstr(text.data, "k.2: tiny, -o a b [inflated: 64 to 2048]\n"));
    assert_non_null(strstr(text.data, "ratio: tok/s over that of base on"));
    text_free(&text);
    summary_free(&summary);
    measurements_free(&all);
}

static void one_setting_alone_has_no_ratio(void **state)
{
    (void)state;
    struct err err = {0};
    struct measurements all = {0};
    struct summary summary = {0};
    struct text text = {0};
    gather(&all, decode_stream("base.moes", 100, 1));
    assert_int_equal(measurements_arrange(&all, &err), 0);
    assert_int_equal(summary_make(&summary, &all, &err), 0);
    assert_int_equal(summary.count, 1);
    near(summary.rows[0].tokens_per_s, 1e4);
    assert_true(isnan(summary.rows[0].ratio) && isnan(summary.rows[0].ceiling));
    near(summary.rows[0].compared, 0);
    assert_int_equal(report_write(&all, &summary, REPORT_TEXT, 0, &text, &err), 0);
    assert_null(strstr(text.data, "ratio:"));
    text_free(&text);
    summary_free(&summary);
    measurements_free(&all);
}

/* Writes a bench stream with records in the order that `faulty` selects, and returns the reader's error. */
static void check_fault(void (*faulty)(struct writer *), const char *says)
{
    struct err err = {0};
    struct header header = {0};
    struct writer *out = NULL;
    struct reader *in = NULL;
    struct measurements all = {0};
    const char *path = unit_path(folder, "bad.moes");
    small_header(&header, STREAM_BENCH);
    assert_int_equal(writer_open(&out, path, &header, &err), 0);
    faulty(out);
    if (writer_close(&out, &err))
        fail_msg("%s", err.text);
    assert_int_equal(reader_open(&in, path, STREAM_ANY, NULL, &err), 0);
    int rc = measurements_read(&all, in, &err) || measurements_arrange(&all, &err) ? -1 : 0;
    assert_int_equal(rc, -1);
    if (!strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", err.text, says);
    reader_close(&in);
    measurements_free(&all);
    header_free(&header);
}

static const struct bench_setting lonely = {0, "none", "m.moe", "{}", NULL, 2, 4, -1, NULL};

static void no_setting(struct writer *out) { put_sample(out, &samples[0], true); }
static void no_sample(struct writer *out) { put_sample(out, &samples[0], false); }
static void nothing(struct writer *out) { put(out, &bench_setting_kind, &lonely); }
static void out_of_turn(struct writer *out)
{
    struct bench_setting late = lonely;
    late.setting = 1;
    put(out, &bench_setting_kind, &late);
}
static void lost_reference(struct writer *out)
{
    struct bench_setting pointing = lonely;
    pointing.reference = 7;
    put(out, &bench_setting_kind, &pointing);
    put_sample(out, &samples[0], true);
}
static void twice(struct writer *out)
{
    put(out, &bench_setting_kind, &lonely);
    put_sample(out, &samples[0], true);
    put_sample(out, &samples[0], false);
}

/* One setting and prompts of two tasks, twice each: math correct, then wrong; two summaries with scores. */
static const char *scored_stream(const double scores[4])
{
    static const struct sample runs[] = {
        {0, 0, 0, "m", "math", 2, 1, 100, 8, 1000, 9, 1}, {1, 0, 1, "m", "math", 2, 1, 100, 8, 1000, 9, 0},
        {2, 0, 0, "s", "summ", 2, 1, 100, 8, 1000, 9, -1}, {3, 0, 0, "t", "summ", 2, 1, 100, 8, 1000, 9, -1},
        {4, 0, 1, "s", "summ", 2, 1, 100, 8, 1000, 9, -1}, {5, 0, 1, "t", "summ", 2, 1, 100, 8, 1000, 9, -1},
    };
    const struct bench_setting setting = {0, "one", "m.moe", "{}", NULL, 2, 4, 0, NULL};
    struct err err = {0};
    struct header header = {0};
    struct writer *out = NULL;
    const char *path = unit_path(folder, "scored.moes");
    small_header(&header, STREAM_BENCH);
    assert_int_equal(writer_open(&out, path, &header, &err), 0);
    put(out, &bench_setting_kind, &setting);
    put_machine(out, NAN);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const struct bench_grade grade = {.sequence = runs[i].sequence, .rule = "rouge", .expected = "x",
                                          .score = i < 2 ? 0 : scores[i - 2]};
        put_sample(out, &runs[i], true);
        if (i >= 2)
            put(out, &bench_grade_kind, &grade);
    }
    if (writer_close(&out, &err))
        fail_msg("%s", err.text);
    header_free(&header);
    return path;
}

static void summaries_have_a_mean_score(void **state)
{
    (void)state;
    struct err err = {0};
    struct measurements all = {0};
    struct summary summary = {0};
    struct text text = {0}, figure = {0};
    gather(&all, scored_stream((const double[]){0.25, 0.5, 0.5, 1}));
    assert_int_equal(measurements_arrange(&all, &err), 0);
    assert_int_equal(summary_make(&summary, &all, &err), 0);
    const struct summary_row *math = row_of(&summary, 0, 0), *summ = row_of(&summary, 1, 0), *both = row_of(&summary, -1, 0);
    assert_true(summ->graded == 0 && summ->correct == 0 && isnan(summ->correct_share));
    near(summ->scored, 2);
    near(summ->score, (0.375 + 0.75) / 2);
    near(summ->score_deviation, 0.375 / sqrt(2));
    assert_true(math->graded == 1 && math->correct == 1 && math->scored == 0 && isnan(math->score));
    near(math->correct_share, 0.5);
    assert_true(both->graded == 1 && both->correct == 1 && both->scored == 2);
    near(both->score, summ->score);
    near(both->correct_deviation, sqrt(0.5));
    assert_int_equal(report_write(&all, &summary, REPORT_TEXT, 0, &text, &err), 0);
    assert_non_null(strstr(text.data, "\nmath  one      10000.0     1.00      1.00      4.0      0.0      1/1  number\n"
                                      "summ  one      10000.0     1.00      1.00      4.0      0.0    0.562  rouge\n"
                                      "all   one      10000.0     1.00      1.00      4.0      0.0      1/1  number rouge\n"));
    assert_non_null(strstr(text.data, "mean ROUGE-L F1"));
    assert_int_equal(bench_figure(&figure, &all, &summary, &err), 0);
    assert_non_null(strstr(figure.data, ">0.562<"));
    assert_non_null(strstr(figure.data, ">1/1<"));
    text_free(&text);
    text_free(&figure);
    summary_free(&summary);
    measurements_free(&all);

    static const double bad[] = {NAN, -0.5, 1.5};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct reader *in = NULL;
        err_clear(&err);
        assert_int_equal(reader_open(&in, scored_stream((const double[]){0, 0, 0, bad[i]}), STREAM_ANY, NULL, &err), 0);
        assert_int_equal(measurements_read(&all, in, &err), -1);
        assert_non_null(strstr(err.text, "score"));
        reader_close(&in);
        measurements_free(&all);
    }
}

static void damaged_streams_are_refused(void **state)
{
    (void)state;
    check_fault(no_setting, "setting 0 has no setting record");
    check_fault(no_sample, "has no sample record, or one too far back");
    check_fault(nothing, "the streams contain no finished sample");
    check_fault(out_of_turn, "out of order");
    check_fault(lost_reference, "refers to a setting that does not exist");
    check_fault(twice, "begins twice");
    struct err err = {0};
    struct reader *in = NULL;
    struct text route = {0};
    struct measurements all = {0};
    small_stream(&route);
    unit_write(unit_path(folder, "r.moes"), route.data, route.length);
    assert_int_equal(reader_open(&in, unit_path(folder, "r.moes"), STREAM_ANY, NULL, &err), 0);
    assert_int_equal(measurements_read(&all, in, &err), -1);
    assert_non_null(strstr(err.text, "is a route stream"));
    reader_close(&in);
    measurements_free(&all);
    text_free(&route);
}

static void tables_are_aligned_and_quoted(void **state)
{
    (void)state;
    static const char *const titles[] = {"name", "n"};
    struct err err = {0};
    struct table table;
    struct text out = {0};
    table_start(&table, titles, "lr");
    const char *const cells[] = {"\xc3\xa4", "10", "b,\"c\"", "", "x\x1b\xc2\x9b" "2", "3"};
    for (int i = 0; i < 6; i++)
        assert_int_equal(table_cell(&table, &err, "%s", cells[i]), 0);
    assert_int_equal(table_write(&table, TABLE_TEXT, &out, &err), 0);
    assert_string_equal(out.data, "name    n\n\xc3\xa4      10\nb,\"c\"   -\nx???2   3\n");
    text_clear(&out);
    assert_int_equal(table_write(&table, TABLE_CSV, &out, &err), 0);
    assert_string_equal(out.data, "name,n\n\xc3\xa4,10\n\"b,\"\"c\"\"\",\nx???2,3\n");
    text_clear(&out);
    mem_free(&table.cells[1]);
    mem_free(&table.cells[5]);
    table.cells[1] = mem_string("", &err);
    table.cells[5] = mem_string("", &err);
    assert_int_equal(table_write(&table, TABLE_TEXT, &out, &err), 0);
    assert_string_equal(out.data, "name\n\xc3\xa4\nb,\"c\"\nx???2\n");
    table_free(&table);
    table_start(&table, titles, "lr");
    for (int i = 0; i < 6; i++)
        assert_int_equal(table_cell(&table, &err, "%s", cells[i]), 0);
    text_clear(&out);
    assert_int_equal(table_write(&table, TABLE_MARKDOWN, &out, &err), 0);
    assert_string_equal(out.data, "| name  |  n |\n|-------|---:|\n| \xc3\xa4     | 10 |\n| b,\"c\" |  - |\n| x???2 |  3 |\n");
    table_free(&table);
    table_start(&table, titles, "lr");
    assert_int_equal(table_cell(&table, &err, "a|<b>") | table_cell(&table, &err, "1"), 0);
    text_clear(&out);
    assert_int_equal(table_write(&table, TABLE_MARKDOWN, &out, &err), 0);
    assert_string_equal(out.data, "| name    | n |\n|---------|--:|\n| a\\|\\<b> | 1 |\n");
    table_free(&table);
    text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(static_settings_are_told),
        cmocka_unit_test(figures_are_those_worked_out),
        cmocka_unit_test(forms_hold_the_same_rows),
        cmocka_unit_test(decode_streams_share_the_best_static_one),
        cmocka_unit_test(decode_streams_are_compared_with_the_first),
        cmocka_unit_test(one_setting_alone_has_no_ratio),
        cmocka_unit_test(summaries_have_a_mean_score),
        cmocka_unit_test(damaged_streams_are_refused),
        cmocka_unit_test(tables_are_aligned_and_quoted),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
