/* Figures from hand-made measurements, whose points were worked out by hand; and what cannot be had. tests/bench/refigure.py
 * computes those of real streams once more. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/report/figure.h"

enum { SETTINGS = 3, SAMPLES = 5, STEPS = 11 };

/* Prompt 0 under "none", "K2" and "K2, budget 4"; prompt 1 under "K2" alone, and another of prompt 1 without any iteration. */
struct made {
    struct measured_stream stream;
    struct measured_setting settings[SETTINGS];
    struct measured_sample samples[SAMPLES];
    struct measured_step steps[STEPS];
    char *tasks[1];
    struct measurements all;
    struct summary summary;
};

static void make(struct made *out)
{
    static char none[] = "none", two[] = "K2", budget[] = "K2, budget 4", model[] = "m", empty[] = "", task[] = "t", id[] = "a",
                other[] = "b", plain[] = "{}", drafts[] = "{\"draft-length\":2}",
                budgets[] = "{\"draft-length\":2,\"budget\":4,\"rank\":\"path\"}";
    static const double us[STEPS] = {100, 100, 200, 200, 100, 400, 100, 300, 300, 300, 300};
    static const int emitted[STEPS] = {1, 1, 1, 2, 3, 1, 2, 3, 3, 1, 1};
    struct err err = {0};
    *out = (struct made){.tasks = {task}};
    char *const names[] = {none, two, budget}, *const options[] = {plain, drafts, budgets};
    for (int s = 0; s < SETTINGS; s++)
        out->settings[s] = (struct measured_setting){.name = names[s], .model = model, .options = options[s], .label = empty,
                                                     .index_sha256 = empty, .moe_layers = 1, .experts = 8};
    static const int prompts[SAMPLES] = {0, 0, 0, 1, 1}, settings[SAMPLES] = {0, 1, 2, 1, 2}, steps[SAMPLES] = {3, 4, 2, 2, 0};
    size_t first = 0;
    for (int i = 0; i < SAMPLES; i++) {
        out->samples[i] = (struct measured_sample){.sequence = i, .setting = settings[i], .id = prompts[i] ? other : id,
                                                   .prompt = prompts[i], .first_step = first, .steps = (size_t)steps[i],
                                                   .done = true, .graded = true, .correct = i != 2, .score = NAN};
        first += (size_t)steps[i];
    }
    assert_int_equal(first, STEPS);
    for (int i = 0; i < STEPS; i++)
        out->steps[i] = (struct measured_step){.us = us[i], .draft_us = 0.1 * us[i], .verify_us = 0.6 * us[i],
                                               .accept_us = 0.2 * us[i], .bytes = (int64_t)us[i] / 100, .nodes = emitted[i],
                                               .accepted = emitted[i] - 1, .emitted = emitted[i], .experts_loaded = emitted[i]};
    out->stream.read_bandwidth[0] = out->stream.read_bandwidth[1] = NAN;
    out->all = (struct measurements){.streams = &out->stream, .settings = out->settings, .samples = out->samples,
                                     .steps = out->steps, .tasks = out->tasks, .stream_count = 1, .setting_count = SETTINGS,
                                     .sample_count = SAMPLES, .step_count = STEPS, .task_count = 1, .prompts = 2};
    if (summary_make(&out->summary, &out->all, &err))
        fail_msg("%s", err.text);
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

static void figure_of(struct figure *out, const struct made *made, enum figure_kind kind, bool bytes, int window)
{
    struct err err = {0};
    struct text drawn = {0};
    const struct figure_setup setup = {kind, bytes, window};
    if (figure_make(out, &setup, &made->all, &made->summary, &err) || figure_svg(out, &drawn, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(drawn.data, "<svg ", 5);
    assert_null(strstr(drawn.data, "nan"));
    assert_null(strstr(drawn.data, "inf"));
    const char *first = strstr(drawn.data, "translate(0 ");     /* a panel, on white: below the title and the note */
    if (first)
        assert_in_range(atoi(first + strlen("translate(0 ")), 50, 60);
    text_free(&drawn);
}

static void utility_is_that_of_windows(void **state)
{
    struct made made;
    struct figure figure = {0};
    (void)state;
    make(&made);
    figure_of(&figure, &made, FIGURE_UTILITY, false, 2);
    /* The reference's iterations of prompt 0 take 400 / 3 us; prompt 1 has no reference. K2 has 200, 100, 400, 100 us and emits
     * 2, 3, 1, 2: windows end at iteration 2, 3 and 4. The budget has one. */
    const struct figure_table *windows = &figure.table[0];
    assert_int_equal(windows->count, 4);
    static const double tokens[] = {2.5, 2, 1.5, 3}, us[] = {150, 250, 250, 300}, ends[] = {2, 3, 4, 2};
    double inverse = 0;
    for (size_t i = 0; i < 4; i++) {
        const double *value = windows->rows[i].value;
        near(value[2], ends[i]);
        near(value[4], tokens[i]);
        near(value[5], us[i] / (400.0 / 3));
        near(value[6], tokens[i] / us[i] * (400.0 / 3));
        inverse += i < 3 ? 1 / value[6] : 0;
    }
    const double *all = figure.table[2].rows[0].value;
    near(all[0], 1);
    near(all[1], 3);
    near(all[4], 3 / inverse);
    near(all[10], 1.0 / 3);                 /* below 1: 1.5 tokens at 1.875 */
    figure_free(&figure);
    figure_of(&figure, &made, FIGURE_UTILITY, true, 4);
    assert_int_equal(figure.table[0].count, 1);
    near(figure.table[0].rows[0].value[6], 2 / ((2 + 1 + 4 + 1) / 4.0 / (4.0 / 3)));
    figure_free(&figure);
    summary_free(&made.summary);
}

static void prediction_and_times(void **state)
{
    struct made made;
    struct figure figure = {0};
    (void)state;
    make(&made);
    figure_of(&figure, &made, FIGURE_PREDICTION, false, 1);
    assert_int_equal(figure.table[0].count, 1);         /* a budget is not lossless, the reference no point */
    near(figure.table[0].rows[0].value[0], 1);          /* prompt 1 has no reference */
    near(figure.table[0].rows[0].value[1], 2);
    near(figure.table[0].rows[0].value[2], 200 / (400.0 / 3));
    near(figure.table[0].rows[0].value[3], 2 / 1.5);
    near(figure.table[0].rows[0].value[4], (8 / 800.0) / (3 / 400.0));
    assert_true(isnan(figure.table[1].rows[0].value[1]));
    figure_free(&figure);
    figure_of(&figure, &made, FIGURE_TIMES, false, 1);
    near(figure.table[0].rows[1].value[0], 6);
    near(figure.table[0].rows[1].value[5], 1e-3 * 1400 / 6);
    near(figure.table[0].rows[1].value[6], 1400 / 6.0 / (400.0 / 3));
    near(figure.table[0].rows[1].value[8], 0.6 * figure.table[0].rows[1].value[6]);
    near(figure.table[0].rows[1].value[10], 0.1 * figure.table[0].rows[1].value[6]);
    figure_free(&figure);
    summary_free(&made.summary);
}

static void quality_and_nodes(void **state)
{
    struct made made;
    struct figure figure = {0};
    (void)state;
    make(&made);
    figure_of(&figure, &made, FIGURE_QUALITY, true, 1);
    assert_int_equal(figure.table[0].count, 3);
    const struct figure_row *budget = &figure.table[0].rows[2];
    assert_string_equal(budget->text[2], "K2");
    near(budget->value[0], 4);
    near(budget->value[1], 0.5);            /* wrong on prompt 0, right on prompt 1 */
    near(budget->value[3], 0.5);
    near(figure.table[0].rows[0].value[5], 1);
    near(budget->value[5], (4 / 3.0) / (6 / 6.0));
    assert_true(isnan(budget->value[2]) && isnan(budget->value[7]) && isnan(budget->value[8]));         /* one repetition */
    near(figure.table[1].rows[2].value[2], 0.5);
    figure_free(&figure);
    figure_of(&figure, &made, FIGURE_NODES, false, 1);
    assert_int_equal(figure.table[0].count, 3);
    near(figure.table[0].rows[1].value[0], 1 + (1 + 2 + 0 + 1 + 0 + 0) / 6.0);
    near(figure.table[0].rows[1].value[1], (2 + 3 + 1 + 2 + 1 + 1) / 6.0);
    figure_free(&figure);
    summary_free(&made.summary);
}

static void what_is_not_there_is_said(void **state)
{
    struct made made;
    struct figure figure = {0};
    struct err err = {0};
    (void)state;
    make(&made);
    struct figure_setup setup = {FIGURE_UTILITY, false, 5};
    assert_int_equal(figure_make(&figure, &setup, &made.all, &made.summary, &err), -1);
    assert_non_null(strstr(err.text, "figure 'utility'"));
    setup = (struct figure_setup){FIGURE_TIMES, true, 5};
    assert_int_equal(figure_make(&figure, &setup, &made.all, &made.summary, &err), -1);
    summary_free(&made.summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utility_is_that_of_windows), cmocka_unit_test(prediction_and_times),
        cmocka_unit_test(quality_and_nodes), cmocka_unit_test(what_is_not_there_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
