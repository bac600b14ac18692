/* Figures from hand-made measurements, whose points are calculated by hand, and figures that are not available.
 * tests/bench/refigure.py computes figures of real streams again. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/report/ewif.h"
#include "common/report/figure.h"

enum { SETTINGS = 3, SAMPLES = 5, STEPS = 11 };

/* Prompt 0 under "none", "K2" and "K2, budget 4"; prompt 1 under "K2" alone, and a repetition of prompt 1 without
 * iterations. */
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
                                               .accepted = emitted[i] - 1, .emitted = emitted[i],
                                               .sum[SUM_experts_loaded] = emitted[i]};
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
    const char *first = strstr(drawn.data, "translate(0 ");     /* a panel on white, below title and note */
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
    assert_int_equal(figure.table[0].count, 1);         /* a budget is not lossless, and the reference has no point */
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

/* Enumerates the outcomes of a draft with their probabilities: expected tokens by definition. In `reviews` rounds the bottom
 * drafts `below` tokens, and the upper drafter keeps them up to the first disagreement and adds its own token; then the
 * target does the same. */
static double tokens_of_reviews(double upper, double bottom, int reviews, int below, double chance, int drafted)
{
    double tokens = 0, kept = chance;
    if (!reviews) {                         /* the target: its own token, and the accepted ones before it */
        for (int i = 0; i <= drafted; i++)
            tokens += pow(upper, i);
        return chance * tokens;
    }
    for (int agreed = 0; agreed <= below; agreed++, kept *= bottom)
        tokens += tokens_of_reviews(upper, bottom, reviews - 1, below, agreed < below ? kept * (1 - bottom) : kept,
                                    drafted + agreed + 1);
    return tokens;
}

static void expected_improvement(void **state)
{
    const struct ewif_drafter bottom = {.4, .01}, uppers[] = {{.8, .3}, {.6, .05}, {1, .5}, {0, .1}};
    (void)state;
    near(ewif_alone(uppers[0], 3), (1 + .8 + .64 + .512) / (1 + 3 * .3));
    near(ewif_best_alone((struct ewif_drafter){.5, .9}), 1);
    for (size_t u = 0; u < sizeof uppers / sizeof *uppers; u++) {
        const struct ewif_drafter upper = uppers[u];
        double best = 0;
        for (int n = 1; n <= 4; n++)
            for (int k = 1; k <= 4; k++) {
                near(ewif_of_cascade(EWIF_VERTICAL, upper, n, bottom, k),
                     tokens_of_reviews(upper.acceptance, bottom.acceptance, n, k, 1, 0) /
                         (1 + n * upper.cost + n * k * bottom.cost));
                double tokens = 1, reached = 1;
                for (int i = 0; i < n + k; i++)
                    tokens += reached *= i < n ? upper.acceptance : bottom.acceptance;
                near(ewif_of_cascade(EWIF_HORIZONTAL, upper, n, bottom, k),
                     tokens / (1 + n * upper.cost + k * bottom.cost));
                best = fmax(best, ewif_of_cascade(EWIF_VERTICAL, upper, n, bottom, k));
            }
        assert_true(ewif_best_cascade(EWIF_VERTICAL, upper, bottom) >= best);
        for (int c = 0; c < EWIF_CASCADES; c++) {
            const double cost = ewif_boundary((enum ewif_cascade)c, upper.acceptance, bottom);
            if (cost > 0)                   /* equally fast at this length */
                near(ewif_best_cascade((enum ewif_cascade)c, (struct ewif_drafter){upper.acceptance, cost}, bottom),
                     ewif_best_alone(bottom));
            else
                assert_true(ewif_best_cascade((enum ewif_cascade)c, (struct ewif_drafter){upper.acceptance, 0}, bottom) <=
                            ewif_best_alone(bottom));
        }
    }
    assert_true(ewif_boundary(EWIF_VERTICAL, .8, bottom) > 0 && !(ewif_boundary(EWIF_VERTICAL, 0, bottom) > 0));
}

static void drafters_lie_by_acceptance_and_cost(void **state)
{
    struct made made;
    struct figure figure = {0};
    struct measured_share shares[2 * STEPS];
    char upper[] = "self", *names[] = {upper};
    (void)state;
    make(&made);
    /* The reference's forwards take 60, 60 and 120 us, 2, 4 and 6 bytes. The setting has 6 iterations; drafter 1 reads none. */
    for (int i = 0; i < STEPS; i++) {
        made.steps[i].verify_bytes = 2 * (i + 1);
        made.steps[i].first_share = 2 * (size_t)i;
        made.steps[i].drafters = i < 3 ? 0 : 2;
        shares[2 * i] = (struct measured_share){.us = 32, .bytes = 2, .runs = 2, .tried = 4, .kept = 3};
        shares[2 * i + 1] = (struct measured_share){.us = 4, .runs = 5, .tried = 2, .kept = 1};
    }
    made.all.shares = shares;
    made.settings[1].drafters = names;
    made.settings[1].drafter_count = 1;
    made.settings[1].reference = made.settings[2].reference = 0;
    figure_of(&figure, &made, FIGURE_BOUNDARY, false, 1);
    const struct figure_row *rows = figure.table[0].rows;
    assert_string_equal(rows[0].text[2], "self");
    assert_string_equal(rows[1].text[2], "drafter 1");
    near(rows[0].value[0], 24);
    near(rows[0].value[1], 0.75);
    near(rows[0].value[3], 16 / 80.0);
    near(rows[0].value[4], 3);
    near(rows[1].value[3], 0.8 / 80);
    near(rows[0].value[6], ewif_best_cascade(EWIF_VERTICAL, (struct ewif_drafter){.75, .2}, (struct ewif_drafter){.5, .01}));
    assert_string_equal(rows[0].text[3], "inside both");
    assert_string_equal(rows[1].text[3], "bottom");
    figure_free(&figure);
    figure_of(&figure, &made, FIGURE_BOUNDARY, true, 1);
    near(figure.table[0].rows[0].value[3], 1 / 4.0);
    assert_true(!(figure.table[0].rows[1].value[3] > 0));
    figure_free(&figure);
    for (int i = 0; i < STEPS; i++) {                   /* costs more than any gain, and a drafter that was never used */
        shares[2 * i].us = 160;
        shares[2 * i + 1].tried = shares[2 * i + 1].kept = i < 7 ? 1 : 0;
    }
    figure_of(&figure, &made, FIGURE_BOUNDARY, false, 1);
    assert_string_equal(figure.table[0].rows[0].text[3], "outside");
    figure_free(&figure);
    for (int i = 0; i < STEPS; i++)
        shares[2 * i + 1].tried = shares[2 * i + 1].kept = 0;
    figure_of(&figure, &made, FIGURE_BOUNDARY, false, 1);
    assert_string_equal(figure.table[0].rows[0].text[3], "unknown");
    assert_int_equal(figure.table[1].count, 0);
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
    setup = (struct figure_setup){FIGURE_BOUNDARY, false, 5};
    assert_int_equal(figure_make(&figure, &setup, &made.all, &made.summary, &err), -1);
    setup = (struct figure_setup){FIGURE_TIMES, true, 5};
    assert_int_equal(figure_make(&figure, &setup, &made.all, &made.summary, &err), -1);
    summary_free(&made.summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utility_is_that_of_windows), cmocka_unit_test(prediction_and_times),
        cmocka_unit_test(quality_and_nodes), cmocka_unit_test(expected_improvement),
        cmocka_unit_test(drafters_lie_by_acceptance_and_cost), cmocka_unit_test(what_is_not_there_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
