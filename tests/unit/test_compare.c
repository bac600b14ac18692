/* Comparisons: how often a program seems to differ from itself, whether a real loss is found, and what is said of each. */
#include "tests/unit/run_times.h"

#include "common/report/compare.h"

enum { COMPARISONS = 200, DIFFERENCES_MOST = 17 };

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
            struct stats_pair pairs[PROMPTS_MOST];
            make_pairs(pairs, prompts[p], 1, &counter);
            differences += differs(pairs, prompts[p]);
        }
        if (differences > DIFFERENCES_MOST)
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
            struct stats_pair pairs[PROMPTS_MOST];
            for (int p = 0; p < count; p++) {
                int from = p * subsets[k], one = (int)(uniform(&counter) * times.repeats);
                int other = (one + 1 + (int)(uniform(&counter) * (times.repeats - 1))) % times.repeats;
                pairs[p] = (struct stats_pair){times.tokens[from][one], 1e-6 * times.us[from][one], times.tokens[from][other],
                                               1e-6 * times.us[from][other]};
            }
            differences += differs(pairs, count);
        }
        if (differences > DIFFERENCES_MOST)
            fail_msg("with %d prompts %d of %d comparisons with itself differ", count, differences, COMPARISONS);
    }
}

static void a_loss_is_found(void **state)
{
    uint32_t counter = 0;
    int slower = 0, holds = 0;
    (void)state;
    for (int i = 0; i < COMPARISONS; i++) {
        struct stats_pair pairs[PROMPTS_MOST];
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(itself_seldom_differs),      cmocka_unit_test(a_real_run_seldom_differs_from_itself),
        cmocka_unit_test(a_loss_is_found),            cmocka_unit_test(verdicts_follow_the_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
