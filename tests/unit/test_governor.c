/* An automatic budget without a model: what it allows, when it probes, and whether it keeps its bound. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/policy/governor.h"
#include "tests/unit/tiny.h"

enum { LAYERS = 6, EXPERTS = 32, TOP_K = 4 };

static void open_governor(struct governor *governor, const char *text, int experts, int top_k, int layers)
{
    struct spec *spec = NULL;
    struct err err = {0};
    if (spec_parse(&spec, text, &err) || governor_init(governor, spec, experts, top_k, layers, &err) || spec_end(spec, &err))
        fail_msg("%s", err.text);
    spec_free(&spec);
}

static int left_out(const struct governor *governor)
{
    int sum = 0;
    for (int layer = 0; layer < governor->layers; layer++)
        sum += governor->experts - governor_budget(governor, layer);
    return sum;
}

/* A world in which a token diverges with a probability that grows with the number of excluded experts. The divergence is
 * `lump`, or if wide, between a hundredth and ten times that, uniform in its logarithm. */
struct world {
    struct chance chance;
    double lump, share;                 /* share: probability per excluded expert */
    bool wide;
    int tokens;                         /* of an iteration */
    double divergence, max;            /* max: largest divergence of one token */
    int64_t total, probes, checks, restored, budgeted;
};

static double lump_of(struct world *world, int left)
{
    if (chance_range(&world->chance, 0, 999999) >= 1e6 * world->share * left)
        return 0;
    return world->wide ? world->lump * pow(10, chance_range(&world->chance, -200, 100) / 100.0) : world->lump;
}

/* Runs the checks of one iteration's tokens; returns the divergence of those that were allowed. */
static double run_checked(struct world *world, struct governor *governor, int left)
{
    double sum = 0;
    for (int token = 1; token <= world->tokens; token++) {
        double lump = lump_of(world, left);
        if (governor_allows(governor, token, lump, sum + lump)) {
            sum += lump;
            world->max = fmax(world->max, lump);
        } else {
            governor_restored(governor);
            world->restored++;
        }
    }
    world->checks++;
    governor_observe(governor, world->tokens, world->tokens, sum);
    return sum;
}

static void run(struct world *world, struct governor *governor, int iterations)
{
    int waited = 0, waiting = 0;
    double hidden = 0;
    for (int i = 0; i < iterations; i++) {
        int left = left_out(governor);
        bool checks = governor_checks(governor, waiting + world->tokens);
        world->budgeted += left > 0;
        if (!checks) {
            for (int token = 0; token < world->tokens; token++)
                hidden += lump_of(world, left);
            waiting += world->tokens;
            waited++;
        }
        if (waiting && (checks || governor_is_due(governor, waited, waiting))) {
            governor_observe(governor, waiting, waiting, hidden);
            world->divergence += hidden;
            world->total += waiting;
            world->probes++;
            waited = waiting = 0;
            hidden = 0;
        }
        if (checks) {
            world->divergence += run_checked(world, governor, left);
            world->total += world->tokens;
        }
    }
}

static double mean_of(const struct world *world) { return world->divergence / (double)world->total; }

static void long_runs_hold_the_bound_unchecked(void **state)
{
    (void)state;
    static const double bounds[] = {0.005, 0.02, 0.05, 0.1};
    static const double shares[] = {0.01, 0.001, 1e-4};
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++)
        for (size_t s = 0; s < sizeof shares / sizeof *shares; s++) {
            char text[64];
            double sum = 0;
            snprintf(text, sizeof text, "auto:kl=%g,every=16,check=0", bounds[b]);
            for (uint64_t seed = 1; seed <= 20; seed++) {
                struct world world = {.chance = {seed}, .lump = 1, .share = shares[s], .tokens = 3};
                struct governor governor;
                open_governor(&governor, text, EXPERTS, TOP_K, LAYERS);
                run(&world, &governor, 4000);
                sum += mean_of(&world) / 20;
                assert_true(mean_of(&world) < 1.1 * bounds[b]);
            }
            if (shares[s] * LAYERS * (EXPERTS - TOP_K) > 2 * bounds[b])       /* the largest possible loss */
                assert_true(sum > 0.4 * bounds[b]);
            assert_true(sum < bounds[b]);
        }
}

/* Lumps larger than the whole run may spend: none is allowed, and smaller ones are. */
static void checked_runs_hold_the_bound_at_any_time(void **state)
{
    (void)state;
    static const double bounds[] = {0.002, 0.005, 0.02, 0.05};
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++)
        for (uint64_t seed = 1; seed <= 20; seed++) {
            char text[64];
            snprintf(text, sizeof text, "auto:kl=%g", bounds[b]);
            struct world world = {.chance = {seed}, .lump = 1, .share = 0.002, .tokens = 3, .wide = true};
            struct governor governor;
            open_governor(&governor, text, EXPERTS, TOP_K, LAYERS);
            double sum = 0;
            for (int i = 0; i < 200; i++) {
                run(&world, &governor, 1);
                assert_true(world.divergence <= GOVERNOR_AIM * bounds[b] * (double)world.total + 1e-9);
                sum = mean_of(&world);
            }
            assert_int_equal(world.total, 600);
            assert_int_equal(world.checks, 200);
            assert_true(sum > 0.4 * bounds[b]);
            assert_true(bounds[b] > 0.005 || world.restored > 0);
        }
}

/* Calculated by hand for a bound of 0.1 nats per token: tokens are checked before they are emitted until the account covers a
 * reserve of 20 nats and the expected divergence of 20 waiting tokens, 1 nat. That takes 210 tokens. */
static void a_reserve_ends_checking(void **state)
{
    (void)state;
    struct governor governor;
    open_governor(&governor, "auto:kl=0.1", EXPERTS, TOP_K, LAYERS);
    assert_true(governor_checks(&governor, 0));
    governor_observe(&governor, 209, 209, 0);
    assert_true(governor_checks(&governor, 20));
    governor_observe(&governor, 1, 1, 0);
    assert_false(governor_checks(&governor, 20));
    assert_true(governor_checks(&governor, 21));
    governor_observe(&governor, 100, 100, 10);
    assert_false(governor_checks(&governor, 20));
    governor_observe(&governor, 1, 1, 0.2);
    assert_true(governor_checks(&governor, 20));
    struct world world = {.chance = {1}, .lump = 1, .share = 0.001, .tokens = 3, .wide = true};
    open_governor(&governor, "auto:kl=0.1", EXPERTS, TOP_K, LAYERS);
    run(&world, &governor, 10000);
    assert_in_range(world.probes, 300, 3000);
    assert_in_range(world.checks, 60, 2000);
    assert_true(mean_of(&world) > 0.06 && mean_of(&world) < 0.075);
    open_governor(&governor, "auto:kl=0.1,check=0", EXPERTS, TOP_K, LAYERS);
    assert_false(governor_checks(&governor, 1));
}

/* Calculated by hand: each token adds 0.7 x 0.1 nats to the account; 32 tokens fill the account; at first at most 6 x 32 / 64
 * experts are left out. */
static void the_account_says_what_is_left_out(void **state)
{
    (void)state;
    struct governor governor;
    open_governor(&governor, "auto:kl=0.1,check=0", EXPERTS, TOP_K, LAYERS);
    assert_int_equal(left_out(&governor), 0);
    governor_observe(&governor, 16, 16, 0);
    assert_int_equal(left_out(&governor), 1);
    assert_int_equal(governor_budget(&governor, LAYERS - 1), EXPERTS - 1);
    assert_int_equal(governor_budget(&governor, 0), EXPERTS);
    governor_observe(&governor, 16, 16, 0);
    assert_int_equal(left_out(&governor), 3);
    assert_float_equal(governor.account, 2.24, 1e-12);
    governor_observe(&governor, 10, 10, 0);         /* the account was full: reach grows by 10 x 0.07 / 2 */
    assert_float_equal(governor.reach[0], 3 * 1.35, 1e-12);
    governor_observe(&governor, 10, 0, 0);          /* forwards that no budget can change: reach does not grow */
    assert_float_equal(governor.reach[0], 3 * 1.35, 1e-12);
    governor_observe(&governor, 10, 10, 5);         /* overdrawn */
    assert_float_equal(governor.account, 62 * 0.07 - 5, 1e-12);
    assert_float_equal(governor.reach[0], 1.5 * 1.35, 1e-12);
    assert_int_equal(left_out(&governor), 0);
    governor_observe(&governor, 1, 1, 0.01);        /* still full, but reach grows no further */
    assert_float_equal(governor.reach[0], 1.5 * 1.35, 1e-12);
    struct values values = {0};
    governor_state(&governor, true, &values);
    assert_float_equal(values_number(&values, "budget", -1), EXPERTS, 0);
    assert_float_equal(values_number(&values, "kl", -1), 5.01 / 63, 1e-12);
    governor_observe(&governor, 100000, 0, 0);
    assert_float_equal(governor.account, 512 * 0.07, 1e-12);
    assert_int_equal(left_out(&governor), 2);
    struct values full = {0}, nowhere = {0};
    governor_state(&governor, true, &full);
    governor_state(&governor, false, &nowhere);
    assert_float_equal(values_number(&full, "budget", -1), EXPERTS - 2.0 / 6, 1e-12);
    assert_float_equal(values_number(&nowhere, "budget", -1), EXPERTS, 0);
}

/* By hand, with 0.07 per token. */
static void what_is_checked_is_let_through_as_the_account_says(void **state)
{
    (void)state;
    struct governor governor;
    open_governor(&governor, "auto:kl=0.1", EXPERTS, TOP_K, LAYERS);
    governor_observe(&governor, 32, 32, 0);
    governor_observe(&governor, 8, 8, 0);           /* the account was full: reach grows by a quarter */
    assert_float_equal(governor.reach[1], 3 * 1.25, 1e-12);
    governor_restored(&governor);
    assert_float_equal(governor.reach[1], 3, 1e-12);
    assert_true(governor_allows(&governor, 1, 2.86, 2.86));         /* of 40 tokens, and its own share */
    assert_false(governor_allows(&governor, 1, 2.88, 2.88));
    assert_true(governor_allows(&governor, 3, 1, 3));               /* of 43 */
    assert_false(governor_allows(&governor, 3, 1, 3.02));
    assert_true(governor_allows(&governor, 3, 0.069, 9));            /* no more than its own share */
    assert_false(governor_allows(&governor, 3, 0.071, 9));
}

static void what_does_not_diverge_goes_down_to_what_a_token_takes(void **state)
{
    (void)state;
    struct governor governor;
    struct world world = {.chance = {1}, .tokens = 3};
    open_governor(&governor, "auto", EXPERTS, TOP_K, LAYERS);
    run(&world, &governor, 4000);
    for (int layer = 0; layer < LAYERS; layer++)
        assert_int_equal(governor_budget(&governor, layer), TOP_K);
    open_governor(&governor, "auto", 2, 2, 1);
    run(&world, &governor, 1000);
    assert_int_equal(governor_budget(&governor, 0), 2);
    open_governor(&governor, "auto", 3, 2, 1);
    run(&world, &governor, 1000);
    assert_int_equal(governor_budget(&governor, 0), 2);
}

static void probes_come_early_at_first(void **state)
{
    (void)state;
    struct governor governor;
    open_governor(&governor, "auto:every=16", EXPERTS, TOP_K, LAYERS);
    assert_true(governor_is_due(&governor, 1, 1));
    governor_observe(&governor, 320, 0, 0);
    assert_false(governor_is_due(&governor, 10, 19));
    assert_true(governor_is_due(&governor, 10, 20));
    assert_true(governor_is_due(&governor, 16, 16));
    open_governor(&governor, "auto:every=16", EXPERTS, TOP_K, LAYERS);
    governor_observe(&governor, 1600, 0, 0);
    governor_observe(&governor, 1, 0, governor.account - 0.446);    /* of 0.448, which excludes the whole reach */
    assert_int_equal(left_out(&governor), 3);
    assert_false(governor_is_due(&governor, 1, 9));
    assert_true(governor_is_due(&governor, 1, 10));
    governor_observe(&governor, 1, 0, 1);                           /* overdrawn: no divergence may be caused */
    assert_false(governor_is_due(&governor, 1, 10));
    struct world world = {.chance = {1}, .tokens = 1};
    open_governor(&governor, "auto:every=16,check=0", EXPERTS, TOP_K, LAYERS);
    run(&world, &governor, 16000);
    assert_in_range(world.probes, 1000, 1070);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_runs_hold_the_bound_unchecked),
        cmocka_unit_test(checked_runs_hold_the_bound_at_any_time),
        cmocka_unit_test(a_reserve_ends_checking),
        cmocka_unit_test(the_account_says_what_is_left_out),
        cmocka_unit_test(what_is_checked_is_let_through_as_the_account_says),
        cmocka_unit_test(what_does_not_diverge_goes_down_to_what_a_token_takes),
        cmocka_unit_test(probes_come_early_at_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
