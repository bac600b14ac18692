#include "tests/unit/scenario.h"
#include <time.h>

static void all(void **state)
{
    (void)state;
    uint64_t seed = getenv("MOE_SEED") ? strtoull(getenv("MOE_SEED"), NULL, 10) : 1;
    int count = getenv("MOE_COUNT") ? atoi(getenv("MOE_COUNT")) : 200, beyond5 = 0, beyond10 = 0;
    const char *policy = getenv("MOE_POLICY") ? getenv("MOE_POLICY") : "dytc-verify";
    double sum = 0;
    for (int i = 0; i < count; i++) {
        struct world w;
        struct world_best best;
        struct world_tally tally;
        world_scenario(&w, seed * 1000 + (uint64_t)i, 5000);
        world_best(&w, 8, &best);
        world_run(&w, policy, &tally);
        double ratio = tally.cost / best.best.cost - 1;
        beyond5 += ratio > 0.05;
        beyond10 += ratio > 0.10;
        sum += ratio;
        if (ratio > 0.05 || getenv("MOE_ALL")) {
            printf("%4d %+6.1f%% cost %.0f best %.0f (none %.0f):", i, 100 * ratio, tally.cost, best.best.cost, best.none);
            for (int s = 0; s < best.best.stages; s++)
                printf(" %d*%d", best.best.order[s], best.best.length[s]);
            printf(" | iters %ld drafted %ld drafting %.0f levels", tally.iterations, tally.drafted, tally.drafting);
            for (int d = 0; d < w.drafters; d++)
                printf(" %ld", tally.verified[d]);
            printf(" | %s\n", w.about);
        }
        world_free(&w);
    }
    printf("seed %d %d scenarios: %d beyond 5 %%, %d beyond 10 %%, mean %+.2f %%\n", (int)seed, count, beyond5, beyond10, 100 * sum / count);
}

static void mixed(void **state)
{
    (void)state;
    uint64_t seed = getenv("MOE_SEED") ? strtoull(getenv("MOE_SEED"), NULL, 10) : 1;
    for (int i = 0; i < 40; i++) {
        struct world w;
        struct world_best best;
        struct world_tally tally;
        world_mixed(&w, seed * 1000 + (uint64_t)i / 2, 5000, 20, i % 2);
        world_best(&w, 8, &best);
        world_run(&w, getenv("MOE_POLICY") ? getenv("MOE_POLICY") : "dytc-verify", &tally);
        printf("mixed %d: %+.1f%% %s\n", i, 100 * (tally.cost / best.best.cost - 1), w.about);
        world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all), cmocka_unit_test(mixed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
