/* Comparisons: how often a program seems to differ from itself, whether a real loss is found, and what is said of each. */
#include "tests/unit/run_times.h"

#include "common/report/compare.h"

enum { COMPARISONS = 200, DIFFERENCES_MAX = 17 };

/* Seconds of a run: noise that mostly slows down, now and then much. */
static double noisy(double seconds, uint32_t *counter)
{
    double slow = exp(0.03 * normal(counter));
    return seconds * (uniform(counter) < 0.05 ? slow * 1.5 : slow);
}

static void make_pairs(struct stats_pair *pairs, int count, double factor, uint32_t *counter)
{
    for (int i = 0; i < count; i++) {
        double tokens = 20 + 100 * uniform(counter), seconds = tokens * 0.01 * exp(0.4 * normal(counter));
        pairs[i] = (struct stats_pair){.tokens = tokens, .base_tokens = tokens};
        pairs[i].seconds = factor * noisy(seconds, counter);
        pairs[i].base_seconds = noisy(seconds, counter);
    }
}

static bool differs(const struct stats_pair *pairs, int count)
{
    struct stats_ratio ratio;
    struct err err = {0};
    if (stats_ratio(pairs, (size_t)count, 0.05, &ratio, &err))
        fail_msg("%s", err.text);
    return ratio.low > 1 || ratio.high < 1;
}

static void itself_seldom_differs(void **state)
{
    static const int prompts[] = {COMPARE_PROMPTS, 8, 12, 20, 48};
    (void)state;
    for (size_t p = 0; p < sizeof prompts / sizeof *prompts; p++) {
        uint32_t counter = 0;
        int differences = 0;
        for (int i = 0; i < COMPARISONS; i++) {
            struct stats_pair pairs[PROMPTS_MAX];
            make_pairs(pairs, prompts[p], 1, &counter);
            differences += differs(pairs, prompts[p]);
        }
        if (differences > DIFFERENCES_MAX)
            fail_msg("with %d prompts %d of %d comparisons with itself differ", prompts[p], differences, COMPARISONS);
    }
}

/* Each side gets another repetition of each prompt, as if it had been the only one. */
static void a_real_run_seldom_differs_from_itself(void **state)
{
    static struct run_times times;
    static const int subsets[] = {1, 2, 4};
    (void)state;
    run_times_read(&times);
    for (size_t k = 0; k < sizeof subsets / sizeof *subsets; k++) {
        uint32_t counter = 0;
        int differences = 0, count = times.prompts / subsets[k];
        for (int i = 0; i < COMPARISONS; i++) {
            struct stats_pair pairs[PROMPTS_MAX];
            for (int p = 0; p < count; p++) {
                int from = p * subsets[k], one = (int)(uniform(&counter) * times.repeats);
                int other = (one + 1 + (int)(uniform(&counter) * (times.repeats - 1))) % times.repeats;
                pairs[p] = (struct stats_pair){times.tokens[from][one], 1e-6 * times.us[from][one], times.tokens[from][other],
                                               1e-6 * times.us[from][other]};
            }
            differences += differs(pairs, count);
        }
        if (differences > DIFFERENCES_MAX)
            fail_msg("with %d prompts %d of %d comparisons with itself differ", count, differences, COMPARISONS);
    }
}

static void a_loss_is_found(void **state)
{
    uint32_t counter = 0;
    int slower = 0, holds = 0;
    (void)state;
    for (int i = 0; i < COMPARISONS; i++) {
        struct stats_pair pairs[PROMPTS_MAX];
        struct stats_ratio ratio;
        make_pairs(pairs, 48, 1.25, &counter);
        assert_int_equal(stats_ratio(pairs, 48, 0.05, &ratio, NULL), 0);
        slower += compare_judge(&ratio, ratio.high, 48, 0.1) == COMPARE_SLOWER;
        make_pairs(pairs, 48, 1, &counter);
        assert_int_equal(stats_ratio(pairs, 48, 0.05, &ratio, NULL), 0);
        holds += compare_judge(&ratio, ratio.high, 48, 0.15) == COMPARE_HOLDS;
    }
    assert_in_range(slower, 180, COMPARISONS);
    assert_in_range(holds, 190, COMPARISONS);
}

static void verdicts_follow_the_interval(void **state)
{
    (void)state;
    const struct stats_ratio same = {1, 0.99, 1.01}, slow = {0.9, 0.88, 0.92}, wide = {0.97, 0.8, 1.2},
        faster = {1.3, 1.2, 1.4};
    assert_int_equal(compare_judge(&same, same.high, 20, 0.02), COMPARE_HOLDS);
    assert_int_equal(compare_judge(&same, same.high, 20, 0.005), COMPARE_UNCLEAR);
    assert_int_equal(compare_judge(&slow, slow.high, 20, 0.02), COMPARE_SLOWER);
    assert_int_equal(compare_judge(&slow, 0.99, 20, 0.02), COMPARE_UNCLEAR);
    assert_int_equal(compare_judge(&wide, wide.high, 20, 0.02), COMPARE_UNCLEAR);
    assert_int_equal(compare_judge(&faster, faster.high, 20, 0), COMPARE_HOLDS);
    assert_int_equal(compare_judge(&faster, faster.high, COMPARE_PROMPTS - 1, 0), COMPARE_UNCLEAR);
}

/* Two streams of one setting each and eight prompts; the second takes `factor` times as long. */
enum { JUDGED_PROMPTS = 8 };

struct judged {
    struct measured_stream streams[2];
    struct measured_setting settings[3];
    struct measured_sample samples[2 * JUDGED_PROMPTS];
    struct measured_step steps[2 * JUDGED_PROMPTS];
    struct measurements all;
};

static void make_judged(struct judged *out, double factor)
{
    static char name[] = "s", other[] = "t", none[] = "", host[] = "host", isa[] = "avx2";
    *out = (struct judged){0};
    for (int i = 0; i < 3; i++)
        out->settings[i] = (struct measured_setting){.name = i < 2 ? name : other, .model = none, .options = none,
                                                     .label = none, .index_sha256 = none, .reference = -1, .stream = i > 0};
    for (int i = 0; i < 2; i++)
        out->streams[i] = (struct measured_stream){.name = name, .device = host, .isa = isa, .threads = 2,
                                                   .read_bandwidth = {30e9, 30e9}};
    for (int i = 0; i < 2 * JUDGED_PROMPTS; i++) {
        size_t step = (size_t)i;
        out->samples[i] = (struct measured_sample){.setting = i % 2, .stream = i % 2, .id = none, .prompt = i / 2,
                                                   .first_step = step, .steps = 1, .done = true, .score = NAN};
        out->steps[i] = (struct measured_step){.sample = step, .us = i % 2 ? 100 * factor : 100, .nodes = 1, .emitted = 1};
    }
    out->all = (struct measurements){.streams = out->streams, .settings = out->settings, .samples = out->samples,
                                     .steps = out->steps, .stream_count = 2, .setting_count = 2,
                                     .sample_count = 2 * JUDGED_PROMPTS, .step_count = 2 * JUDGED_PROMPTS,
                                     .prompts = JUDGED_PROMPTS};
}

/* The verdict on them, and what is answered: 0, or why not. Table and JSON must agree with it. */
static int judge(const struct judged *judged, struct err *answer)
{
    static const char *const words[] = {"holds", "slower", "unclear"};
    struct comparison comparison = {0};
    struct text json = {0};
    char last[64];
    *answer = (struct err){0};
    if (comparison_make(&comparison, &judged->all, 0.02, answer))
        fail_msg("%s", answer->text);
    int verdict = comparison.verdict;
    assert_int_equal(comparison_json(&json, &judged->all, &comparison, answer), 0);
    snprintf(last, sizeof last, "{\"type\":\"verdict\",\"verdict\":\"%s\",", words[verdict]);
    if (!strstr(json.data, last))
        fail_msg("%s is not in %s", last, json.data);
    int rc = comparison_answer(&judged->all, &comparison, answer);
    assert_int_equal(rc == 0, verdict == COMPARE_HOLDS);
    if (rc)
        assert_int_equal(answer->code, verdict == COMPARE_SLOWER ? ERR_ANSWER_NO : ERR_NO_ANSWER);
    if (rc && !strstr(json.data, "\"reason\":\""))
        fail_msg("no reason in %s", json.data);
    text_free(&json);
    comparison_free(&comparison);
    return verdict;
}

static void nothing_is_judged_across_machines(void **state)
{
    static char ref[] = "ref";
    struct judged judged;
    struct err err;
    (void)state;
    make_judged(&judged, 1);
    assert_int_equal(judge(&judged, &err), COMPARE_HOLDS);
    make_judged(&judged, 1.5);
    assert_int_equal(judge(&judged, &err), COMPARE_SLOWER);
    for (int what = 0; what < 3; what++)
        for (int faster = 0; faster < 2; faster++) {
            make_judged(&judged, faster ? 0.5 : 2);
            judged.streams[1].threads += what == 0;
            judged.streams[1].device = what == 1 ? ref : judged.streams[1].device;
            judged.streams[1].isa = what == 2 ? ref : judged.streams[1].isa;
            assert_int_equal(judge(&judged, &err), COMPARE_UNCLEAR);
            assert_non_null(strstr(err.text, "machine"));
        }
}

/* The machine is slower or faster by a half: a loss is not the program's for sure, and a gain may hide one. */
static void memory_that_changed_is_no_answer(void **state)
{
    static const struct { double before[2], now[2], factor; int verdict; } cases[] = {
        {{30e9, 29e9}, {15e9, 14e9}, 1.5, COMPARE_UNCLEAR}, {{30e9, 29e9}, {45e9, 44e9}, 1.5, COMPARE_UNCLEAR},
        {{30e9, 29e9}, {45e9, 44e9}, 1.0, COMPARE_UNCLEAR}, {{30e9, 29e9}, {45e9, 44e9}, 0.8, COMPARE_UNCLEAR},
        {{30e9, 29e9}, {45e9, 44e9}, 0.6, COMPARE_HOLDS},   {{30e9, 29e9}, {15e9, 14e9}, 1.0, COMPARE_HOLDS},
        {{30e9, 20e9}, {20e9, 30e9}, 1.5, COMPARE_SLOWER},  {{30e9, 29e9}, {NAN, NAN}, 1.5, COMPARE_SLOWER},
        {{NAN, 30e9}, {NAN, 15e9}, 1.5, COMPARE_UNCLEAR},   {{30e9, 30e9}, {30.5e9, 30e9}, 1.5, COMPARE_SLOWER},
        {{30e9, 30e9}, {30.5e9, 30e9}, 1.0, COMPARE_HOLDS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct judged judged;
        struct err err;
        make_judged(&judged, cases[i].factor);
        memcpy(judged.streams[0].read_bandwidth, cases[i].before, sizeof cases[i].before);
        memcpy(judged.streams[1].read_bandwidth, cases[i].now, sizeof cases[i].now);
        int verdict = judge(&judged, &err);
        if (verdict != cases[i].verdict)
            fail_msg("case %zu: %d", i, verdict);
        if (verdict == COMPARE_UNCLEAR)
            assert_non_null(strstr(err.text, "memory"));
    }
}

static void settings_without_a_partner_are_no_yes(void **state)
{
    struct judged judged;
    struct err err;
    (void)state;
    make_judged(&judged, 1);
    judged.all.setting_count = 3;
    assert_int_equal(judge(&judged, &err), COMPARE_UNCLEAR);
    assert_non_null(strstr(err.text, "'t'"));
    make_judged(&judged, 2);                    /* what is slower is slower, whatever else there is */
    judged.all.setting_count = 3;
    assert_int_equal(judge(&judged, &err), COMPARE_SLOWER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(itself_seldom_differs),      cmocka_unit_test(a_real_run_seldom_differs_from_itself),
        cmocka_unit_test(a_loss_is_found),            cmocka_unit_test(verdicts_follow_the_interval),
        cmocka_unit_test(nothing_is_judged_across_machines), cmocka_unit_test(memory_that_changed_is_no_answer),
        cmocka_unit_test(settings_without_a_partner_are_no_yes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
