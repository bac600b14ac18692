/* Means, quantiles and the paired bootstrap. The interval was computed by another program (numpy) with the same rule. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/report/stats.h"

static void quantiles_interpolate(void **state)
{
    (void)state;
    double values[] = {4, 1, 3, 2};
    assert_true(stats_quantile(values, 4, 0.5) == 2.5);
    assert_true(stats_quantile(values, 4, 0) == 1);
    assert_true(stats_quantile(values, 4, 1) == 4);
    assert_true(fabs(stats_quantile(values, 4, 0.99) - 3.97) < 1e-12);
    assert_true(stats_quantile(values, 1, 0.99) == 1);
    assert_true(isnan(stats_quantile(values, 0, 0.5)));
    assert_true(stats_mean(values, 4) == 2.5);
    assert_true(isnan(stats_mean(values, 0)));
}

static void the_interval_is_as_defined(void **state)
{
    (void)state;
    struct err err = {0};
    const struct stats_pair pairs[] = {
        {10, 1.0, 10, 2.0}, {20, 1.5, 20, 4.5}, {30, 4, 30, 5}, {7, 0.5, 9, 1.25}, {12, 1.1, 12, 1.0}};
    struct stats_ratio out, again;
    assert_int_equal(stats_ratio(pairs, 5, 0.05, &out, &err), 0);
    assert_true(fabs(out.ratio - 1.655616521871666) < 1e-12);
    assert_true(fabs(out.low - 0.9090909090909091) < 1e-12);
    assert_true(fabs(out.high - 3.0) < 1e-12);
    assert_int_equal(stats_ratio(pairs, 5, 0.05, &again, &err), 0);
    assert_memory_equal(&out, &again, sizeof out);
    struct stats_pair more[15];
    for (int i = 0; i < 15; i++) {
        more[i] = pairs[i % 5];
        more[i].seconds *= 1 + 0.1 * (i / 5);
    }
    assert_int_equal(stats_ratio(more, 15, 0.05, &out, &err), 0);       /* equals 9 of equal weight */
    assert_true(fabs(out.ratio - 1.5051059289742417) < 1e-9);
    assert_true(fabs(out.low - 1.1623560635537862) < 1e-9);
    assert_true(fabs(out.high - 2.0699033605973636) < 1e-9);
}

static void one_pair_has_no_interval(void **state)
{
    (void)state;
    struct err err = {0};
    const struct stats_pair pair = {10, 1, 10, 2};
    struct stats_ratio out;
    assert_int_equal(stats_ratio(&pair, 1, 0.05, &out, &err), 0);
    assert_true(out.ratio == 2 && isnan(out.low) && isnan(out.high));
    assert_int_equal(stats_ratio(&pair, 0, 0.05, &out, &err), 0);
    assert_true(isnan(out.ratio));
}

static void equal_settings_give_one(void **state)
{
    (void)state;
    struct err err = {0};
    struct stats_pair pairs[50];
    for (int i = 0; i < 50; i++)
        pairs[i] = (struct stats_pair){i + 1, 0.5 * (i + 2), i + 1, 0.5 * (i + 2)};
    struct stats_ratio out;
    assert_int_equal(stats_ratio(pairs, 50, 0.05, &out, &err), 0);
    assert_true(out.ratio == 1 && out.low == 1 && out.high == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_interpolate),
        cmocka_unit_test(the_interval_is_as_defined),
        cmocka_unit_test(one_pair_has_no_interval),
        cmocka_unit_test(equal_settings_give_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
