/* The divergence of two rows of logits, computed by hand. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/decode/divergence.h"

static void it_is_the_sum_over_the_vocabulary(void **state)
{
    (void)state;
    const float p[] = {logf(0.5f), logf(0.25f), logf(0.25f)}, q[] = {logf(0.25f) + 3, logf(0.25f) + 3, logf(0.5f) + 3};
    double want = 0.5 * log(2) + 0 + 0.25 * log(0.5), back = 0.25 * log(0.5) + 0 + 0.5 * log(2);
    assert_float_equal(divergence_between(p, q, 3), want, 1e-6);
    assert_float_equal(divergence_between(q, p, 3), back, 1e-6);
    assert_true(divergence_between(p, p, 3) == 0);
    const float far[] = {0, -800, -2000}, other[] = {-500, 0, 1};
    assert_float_equal(divergence_between(far, other, 3), 500 + log(1 + exp(1)), 1e-6);
    assert_true(isnan(divergence_between(p, (const float[]){NAN, 0, 0}, 3)));
}

static void it_does_not_depend_on_the_level_of_logits(void **state)
{
    (void)state;
    const float p[] = {1, 2, 3}, q[] = {3, 1, 2}, high[] = {1001, 1002, 1003};
    assert_float_equal(divergence_between(high, q, 3), divergence_between(p, q, 3), 1e-9);
    assert_true(divergence_between(p, q, 3) > 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_sum_over_the_vocabulary),
        cmocka_unit_test(it_does_not_depend_on_the_level_of_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
