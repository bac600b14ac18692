/* dytc-verify compared with every fixed draft, in random worlds (tests/unit/scenario.h). MOE_SEED chooses other worlds.
 * MOE_POLICY tests another policy, without assertions. Prints each world in which the policy costs at least 5 % more than
 * the best fixed draft. */
#include "tests/unit/scenario.h"

enum { WORLDS = 200, TOKENS = 5000, MIXED = 20, TEXTS = 20 };

static uint64_t seed(void) { return getenv("MOE_SEED") ? strtoull(getenv("MOE_SEED"), NULL, 10) : 1; }
static const char *policy(void) { return getenv("MOE_POLICY") ? getenv("MOE_POLICY") : "dytc-verify"; }

static void show(const struct world *w, int number, double behind, const struct world_best *best,
                 const struct world_tally *tally)
{
    printf("world %d: %+.1f %%; best of %ld:", number, 100 * behind, best->tried);
    for (int stage = 0; stage < best->best.stages; stage++)
        printf(" %d of drafter %d", best->best.length[stage], best->best.order[stage]);
    printf(", cost %.0f; verified", best->best.cost);
    for (int i = 0; i < w->drafters; i++)
        printf(" %ld", tally->verified[i]);
    printf("; %s\n", w->about);
}

static void compare(bool plain, int *beyond_5, int *beyond_10)
{
    double sum = 0;
    *beyond_5 = *beyond_10 = 0;
    for (int i = 0; i < WORLDS; i++) {
        struct world w;
        struct world_best best;
        struct world_tally tally;
        world_scenario(&w, seed() * 1000 + (uint64_t)i, TOKENS, plain);
        world_best(&w, WORLD_LENGTH, &best);
        world_run(&w, policy(), &tally);
        double behind = tally.cost / best.best.cost - 1;
        *beyond_5 += behind > 0.05;
        *beyond_10 += behind > 0.10;
        sum += behind;
        if (behind > 0.05)
            show(&w, i, behind, &best, &tally);
        world_free(&w);
    }
    printf("seed %d%s, %d worlds: %d behind by more than 5 %%, %d by more than 10 %%, mean %+.2f %%\n", (int)seed(),
           plain ? ", plain" : "", WORLDS, *beyond_5, *beyond_10, 100 * sum / WORLDS);
}

static void near_the_best_fixed_one(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        int beyond_5, beyond_10;
        compare(plain, &beyond_5, &beyond_10);
        assert_true(getenv("MOE_POLICY") || (beyond_5 <= WORLDS / 20 && !beyond_10));
    }
}

static void mixed_texts_cost_a_tenth_less_than_the_best_fixed_draft(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++) {
        double sum = 0, worst = -1;
        for (int i = 0; i < MIXED; i++) {
            struct world w;
            struct world_best best;
            struct world_tally tally;
            world_mixed(&w, seed() * 1000 + (uint64_t)i, TOKENS, TEXTS, named);
            world_best(&w, WORLD_LENGTH, &best);
            world_run(&w, policy(), &tally);
            double behind = tally.cost / best.best.cost - 1;
            sum += behind;
            worst = fmax(worst, behind);
            world_free(&w);
        }
        printf("mixed texts, tasks %s: mean %+.1f %%, worst %+.1f %%\n", named ? "known" : "unknown", 100 * sum / MIXED,
               100 * worst);
        assert_true(getenv("MOE_POLICY") || (worst < 0 && sum < -0.10 * MIXED));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_the_best_fixed_one),
        cmocka_unit_test(mixed_texts_cost_a_tenth_less_than_the_best_fixed_draft),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
