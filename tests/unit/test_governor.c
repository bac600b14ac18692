/* An automatic budget without a model: which levels it tries, takes and leaves. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/policy/governor.h"

static void open_governor(struct governor *governor, const char *text, int experts, int top_k)
{
    struct spec *spec = NULL;
    struct err err = {0};
    if (spec_parse(&spec, text, &err) || governor_init(governor, spec, experts, top_k, &err) || spec_end(spec, &err))
        fail_msg("%s", err.text);
    spec_free(&spec);
}

/* A world in which a budget of b experts diverges by divergence(b) and 30 of 32 experts are wanted in both layers. */
static int run(struct governor *governor, double (*divergence)(int budget), int iterations, int *probes)
{
    static const int32_t wanted[] = {30, 30};
    *probes = 0;
    for (int i = 0; i < iterations; i++) {
        bool probe;
        int budget = governor_next(governor, &probe);
        *probes += probe;
        if (probe)
            governor_observe(governor, budget, divergence(budget), wanted, 2, 10, 100);
        else
            assert_int_equal(budget, governor->level[governor->at].budget);
    }
    return governor->level[governor->at].budget;
}

static double steep(int budget) { return budget >= 16 ? 0.001 : 0.5; }
static double none(int budget) { (void)budget; return 0; }
static double much(int budget) { (void)budget; return 1; }

static void levels_go_down_to_what_a_token_takes(void **state)
{
    (void)state;
    struct governor governor;
    static const int want[] = {32, 28, 24, 20, 16, 12, 8, 4};
    open_governor(&governor, "auto", 32, 4);
    assert_int_equal(governor.levels, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(governor.level[i].budget, want[i]);
    open_governor(&governor, "auto", 32, 10);
    assert_int_equal(governor.levels, 7);
    assert_int_equal(governor.level[6].budget, 10);
    open_governor(&governor, "auto", 2, 2);
    assert_int_equal(governor.levels, 1);
    int probes;
    assert_int_equal(run(&governor, none, 100, &probes), 2);
    assert_int_equal(probes, 0);
}

static void it_takes_the_smallest_that_stays_close(void **state)
{
    (void)state;
    struct governor governor;
    int probes;
    open_governor(&governor, "auto:kl=0.02,every=10", 32, 4);
    assert_int_equal(run(&governor, steep, 2000, &probes), 16);
    assert_int_equal(probes, 200);
    struct values values = {0};
    governor_state(&governor, &values);
    assert_int_equal(values_number(&values, "budget", -1), 16);
    assert_float_equal(values_number(&values, "kl", -1), 0.001, 1e-9);
    assert_float_equal(values_number(&values, "kl_below", -1), 0.5, 1e-9);
    open_governor(&governor, "auto:kl=0.02,every=10", 32, 4);
    assert_int_equal(run(&governor, none, 2000, &probes), 4);
    open_governor(&governor, "auto:kl=0.02,every=10", 32, 4);
    assert_int_equal(run(&governor, much, 2000, &probes), 32);
    assert_int_equal(run(&governor, none, 2000, &probes), 4);       /* what was far is forgotten after 32 probes */
}

static void it_goes_back_when_the_text_changes(void **state)
{
    (void)state;
    struct governor governor;
    int probes;
    open_governor(&governor, "auto:every=1", 32, 4);
    assert_int_equal(run(&governor, none, 100, &probes), 4);
    assert_int_equal(run(&governor, steep, 2000, &probes), 16);
}

/* Divergences that scatter: a mean below the bound is not enough. */
static int turn;
static double uneven(int budget) { return budget < 32 && turn++ % 2 ? 0.03 : 0; }

static void chance_is_allowed_for(void **state)
{
    (void)state;
    struct governor governor;
    int probes;
    open_governor(&governor, "auto:kl=0.02,every=1", 32, 4);
    run(&governor, uneven, 5, &probes);
    assert_int_equal(governor.at, 0);           /* .015 + 2 x .0087 after four */
    run(&governor, uneven, 40, &probes);
    assert_true(governor.at > 0);
}

/* 28 of 32 experts read as much as all when a forward wants 4. */
static void what_saves_nothing_is_not_taken(void **state)
{
    (void)state;
    static const int32_t wanted[] = {4, 4};
    struct governor governor;
    bool probe;
    open_governor(&governor, "auto:every=1", 32, 4);
    for (int i = 0; i < 200; i++) {
        int budget = governor_next(&governor, &probe);
        governor_observe(&governor, budget, 0, wanted, 2, 10, 100);
    }
    assert_int_equal(governor.at, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_go_down_to_what_a_token_takes),
        cmocka_unit_test(it_takes_the_smallest_that_stays_close),
        cmocka_unit_test(it_goes_back_when_the_text_changes),
        cmocka_unit_test(chance_is_allowed_for),
        cmocka_unit_test(what_saves_nothing_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
