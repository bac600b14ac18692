/* Comparisons: how often a program seems to differ from itself, whether a real loss is detected, and the reported verdict. */
#include "tests/unit/run_times.h"

#include "common/report/compare.h"

enum { COMPARISONS = 200, DIFFERENCES_MAX = 17 };

/* Returns the seconds of a run: noise that mostly slows it down, sometimes much. */
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

/* Each side gets another repetition of each prompt, as its only one. */
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

/* Writes two streams over eight prompts. In the second stream everything takes `drift` times as long, and `s` also takes
 * `factor` times that. `none` is the reference, unless `s` is alone. */
enum { JUDGED_PROMPTS = 8, JUDGED_SAMPLES = 4 * JUDGED_PROMPTS };

struct judged {
    struct measured_stream streams[2];
    struct measured_setting settings[5];
    struct measured_sample samples[JUDGED_SAMPLES];
    struct measured_step steps[JUDGED_SAMPLES];
    struct measurements all;
};

static void make_judged(struct judged *out, double factor, double drift, bool alone)
{
    static char names[][5] = {"none", "s", "none", "s", "t"}, none[] = "", host[] = "host", isa[] = "avx2", other[] = "{K}";
    *out = (struct judged){0};
    for (int i = 0; i < 5; i++)
        out->settings[i] = (struct measured_setting){.name = names[i], .model = none, .options = i % 2 ? other : none,
                                                     .label = none, .index_sha256 = none,
                                                     .reference = alone || i == 4 ? -1 : i / 2 * 2, .stream = i > 1};
    for (int i = 0; i < 2; i++)
        out->streams[i] = (struct measured_stream){.name = names[1], .device = host, .isa = isa, .threads = 2,
                                                   .read_bandwidth = {30e9, 30e9}};
    for (int i = 0; i < JUDGED_SAMPLES; i++) {
        size_t step = (size_t)i;
        out->samples[i] = (struct measured_sample){.setting = i % 4, .stream = i % 4 > 1, .id = none, .prompt = i / 4,
                                                   .first_step = step, .steps = 1, .done = true, .score = NAN};
        out->steps[i] = (struct measured_step){.sample = step, .nodes = 1, .emitted = 1,
                                               .us = 100 * (i % 4 > 1 ? drift : 1) * (i % 4 == 3 ? factor : 1)};
    }
    out->all = (struct measurements){.streams = out->streams, .settings = out->settings, .samples = out->samples,
                                     .steps = out->steps, .stream_count = 2, .setting_count = 4,
                                     .sample_count = JUDGED_SAMPLES, .step_count = JUDGED_SAMPLES,
                                     .prompts = JUDGED_PROMPTS};
}

/* Returns the verdict; *answer: 0, or the error. Table and JSON must agree with it. */
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
    make_judged(&judged, 1, 1, false);
    assert_int_equal(judge(&judged, &err), COMPARE_HOLDS);
    make_judged(&judged, 1.5, 1, false);
    assert_int_equal(judge(&judged, &err), COMPARE_SLOWER);
    assert_string_equal(err.text, "setting 's' is slower: relative to 'none' it runs at 0.667 times the earlier speed, at "
                        "most 0.667");
    for (int what = 0; what < 3; what++)
        for (int faster = 0; faster < 2; faster++) {
            make_judged(&judged, faster ? 0.5 : 2, 1, false);
            judged.streams[1].threads += what == 0;
            judged.streams[1].device = what == 1 ? ref : judged.streams[1].device;
            judged.streams[1].isa = what == 2 ? ref : judged.streams[1].isa;
            assert_int_equal(judge(&judged, &err), COMPARE_UNCLEAR);
            assert_non_null(strstr(err.text, "machine"));
        }
}

/* The machine's speed changes by a half: a loss is not certainly the program's, and a gain may hide one. */
static void memory_that_changed_is_no_answer(void **state)
{
    static const struct { double before[2], now[2], factor; int verdict; } cases[] = {
        {{30e9, 29e9}, {15e9, 14e9}, 1.5, COMPARE_UNCLEAR}, {{30e9, 29e9}, {45e9, 44e9}, 1.5, COMPARE_UNCLEAR},
        {{30e9, 29e9}, {45e9, 44e9}, 1.0, COMPARE_UNCLEAR}, {{30e9, 29e9}, {45e9, 44e9}, 0.8, COMPARE_UNCLEAR},
        {{30e9, 29e9}, {45e9, 44e9}, 0.6, COMPARE_HOLDS},   {{30e9, 29e9}, {15e9, 14e9}, 1.0, COMPARE_HOLDS},
        {{NAN, 30e9}, {NAN, 15e9}, 1.5, COMPARE_UNCLEAR},   {{30e9, 30e9}, {30.5e9, 30e9}, 1.0, COMPARE_HOLDS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct judged judged;
        struct err err;
        make_judged(&judged, 1, cases[i].factor, true);
        memcpy(judged.streams[0].read_bandwidth, cases[i].before, sizeof cases[i].before);
        memcpy(judged.streams[1].read_bandwidth, cases[i].now, sizeof cases[i].now);
        int verdict = judge(&judged, &err);
        if (verdict != cases[i].verdict)
            fail_msg("case %zu: %d", i, verdict);
        if (verdict == COMPARE_UNCLEAR)
            assert_non_null(strstr(err.text, "memory"));
    }
}

/* A loss shared by all settings is never attributed to the program; a loss relative to the reference is, whatever the
 * memory's speed. */
static void what_none_shows_is_drift(void **state)
{
    static const struct { double factor, drift; bool alone; int verdict; const char *part; } cases[] = {
        {1, 1.5, false, COMPARE_UNCLEAR, "'none' runs at 0.667 times the earlier speed, but either the machine"},
        {1, 1.5, true, COMPARE_UNCLEAR, "'none' runs at 0.667 times the earlier speed, but either the machine"},
        {1.5, 1.5, false, COMPARE_SLOWER, "relative to 'none' it runs at 0.667 times the earlier speed"},
        {1.2, 1.5, false, COMPARE_UNCLEAR, "'none' runs at 0.667"},    /* the drift of `s` may be up to 1.84 */
        {1.2, 1.1, false, COMPARE_SLOWER, "relative to 'none' it runs at 0.833 times the earlier speed"},
        {1, 0.8, false, COMPARE_UNCLEAR, "too noisy"},                  /* all gain: not attributed to `s` */
        {1.2, 0.8, false, COMPARE_UNCLEAR, "too noisy"},                /* unchanged, while `none` became faster */
        {1.5, 0.8, false, COMPARE_SLOWER, "relative to 'none' it runs at 0.667 times the earlier speed"},
        {0.9, 1.01, false, COMPARE_HOLDS, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int memory = 0; memory < 2; memory++) {
            struct judged judged;
            struct err err;
            make_judged(&judged, cases[i].factor, cases[i].drift, cases[i].alone);
            if (memory && cases[i].verdict == COMPARE_SLOWER)
                judged.streams[1].read_bandwidth[0] = judged.streams[1].read_bandwidth[1] = 15e9;
            int verdict = judge(&judged, &err);
            if (verdict != cases[i].verdict || (cases[i].part && !strstr(err.text, cases[i].part)))
                fail_msg("case %zu: %d, %s", i, verdict, err.text);
        }
}

/* A setting with other options is no reference, because its speed differs for another reason than drift. */
static void a_reference_is_the_same_before_and_now(void **state)
{
    static char other[] = "{other}";
    struct judged judged;
    struct err err;
    (void)state;
    for (int what = 0; what < 2; what++) {
        make_judged(&judged, 1.5, 1, false);
        *(what ? &judged.settings[2].options : &judged.settings[2].index_sha256) = other;
        assert_int_equal(judge(&judged, &err), COMPARE_UNCLEAR);
    }
}

/* Both runs of a program on machines with other load: `none` shows what all settings suffer, the other one suffers between
 * half and one and a half of that. The 97.5 % quantile of 50 comparisons at 5 % is 6. */
static void a_drift_is_seldom_a_loss(void **state)
{
    enum { DRIFTS = 50 };
    uint32_t counter = 0;
    int slower = 0, uncorrected = 0, found = 0;
    (void)state;
    for (int i = 0; i < DRIFTS; i++)
        for (int lost = 0; lost < 2; lost++) {
            struct judged judged;
            struct comparison comparison = {0};
            double drift = 0.3 * fabs(normal(&counter)), felt = drift * (0.5 + uniform(&counter));
            make_judged(&judged, 1, 1, false);
            for (int k = 0; k < JUDGED_SAMPLES; k++)
                judged.steps[k].us = noisy(100, &counter) * (k % 4 == 2 ? exp(drift) : k % 4 == 3 ? exp(felt) : 1) *
                                     (lost && k % 4 == 3 ? 3 : 1);
            assert_int_equal(comparison_make(&comparison, &judged.all, 0.02, NULL), 0);
            slower += !lost && comparison.verdict == COMPARE_SLOWER;
            found += lost && comparison.verdict == COMPARE_SLOWER;
            uncorrected += !lost && comparison.rows[1].high_together < 0.98;
            comparison_free(&comparison);
        }
    printf("# of %d equal ones %d are slower, %d without correction; of slower ones %d\n", DRIFTS, slower, uncorrected,
           found);
    assert_in_range(slower, 0, 6);
    assert_in_range(uncorrected, 25, DRIFTS);
    assert_in_range(found, 47, DRIFTS);
}

static void settings_without_a_partner_are_no_yes(void **state)
{
    struct judged judged;
    struct err err;
    (void)state;
    make_judged(&judged, 1, 1, false);
    judged.all.setting_count = 5;
    assert_int_equal(judge(&judged, &err), COMPARE_UNCLEAR);
    assert_non_null(strstr(err.text, "'t'"));
    make_judged(&judged, 2, 1, false);          /* a slower setting is slower, whatever the others do */
    judged.all.setting_count = 5;
    assert_int_equal(judge(&judged, &err), COMPARE_SLOWER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(itself_seldom_differs),      cmocka_unit_test(a_real_run_seldom_differs_from_itself),
        cmocka_unit_test(a_loss_is_found),            cmocka_unit_test(verdicts_follow_the_interval),
        cmocka_unit_test(nothing_is_judged_across_machines), cmocka_unit_test(memory_that_changed_is_no_answer),
        cmocka_unit_test(what_none_shows_is_drift), cmocka_unit_test(a_reference_is_the_same_before_and_now),
        cmocka_unit_test(a_drift_is_seldom_a_loss), cmocka_unit_test(settings_without_a_partner_are_no_yes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
