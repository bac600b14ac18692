/* The whole grid of acceptance rules, draft shapes, temperatures and filters, with a million samples per cell: outputs have
 * the exact distribution, and known mistakes are detected (tests/unit/distribution.h). */
#include "tests/unit/distribution.h"

#include "common/base/thread_pool.h"

#include <stdatomic.h>

enum { SAMPLES = 1000000, MISTAKE_SAMPLES = 100000 };

struct work {
    struct world world;
    atomic_int next;
    struct tally cells[CELLS], mistakes[MISTAKES][TEMPERATURES];
};

static void take(void *argument, int member, int members)
{
    struct work *work = argument;
    (void)member, (void)members;
    for (int at; (at = atomic_fetch_add(&work->next, 1)) < CELLS + MISTAKES * TEMPERATURES;) {
        int mistake = (at - CELLS) / TEMPERATURES, t = (at - CELLS) % TEMPERATURES;
        struct grid_point point = at < CELLS ? grid_point(at) : grid_mistake(mistake, t);
        if (at < CELLS)
            grid_run(&point, &work->world, GRID_RULE, SAMPLES, &work->cells[at]);
        else
            grid_run(&point, &work->world, GRID_PLAIN, MISTAKE_SAMPLES, &work->mistakes[mistake][t]);
    }
}

static int run_all(void **state)
{
    struct work *work = calloc(1, sizeof *work);
    struct thread_pool *pool = NULL;
    int cores = thread_pool_cores();
    if (!work || thread_pool_new(&pool, cores < 8 ? cores : 8, NULL))
        return -1;
    world_make(&work->world, 20);
    thread_pool_run(pool, take, work);
    thread_pool_free(&pool);
    *state = work;
    return 0;
}

static int drop_all(void **state)
{
    free(*state);
    return 0;
}

static void every_rule_gives_its_distribution(void **state)
{
    const struct work *work = *state;
    int bad = 0;
    for (int number = 0; number < CELLS; number++) {
        const struct tally *tally = &work->cells[number];
        struct grid_point point = grid_point(number);
        char name[160];
        if (!grid_sees(tally))
            continue;
        print_error("%s: z %.2f, %ld impossible, %ld other than without a draft\n", grid_name(&point, name, sizeof name),
                    tally->z, tally->impossible, tally->other);
        bad++;
    }
    assert_int_equal(bad, 0);
}

static void known_mistakes_are_seen(void **state)
{
    const struct work *work = *state;
    int missed = 0;
    for (int number = 0; number < MISTAKES; number++) {
        int seen = 0;
        for (int t = 0; t < TEMPERATURES; t++)
            seen += grid_sees(&work->mistakes[number][t]);
        if (seen < TEMPERATURES)
            print_error("%s: seen at %d of %d temperatures\n", grid_mistakes[number].name, seen, TEMPERATURES);
        missed += seen < TEMPERATURES - 1;
    }
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_gives_its_distribution),
        cmocka_unit_test(known_mistakes_are_seen),
    };
    return cmocka_run_group_tests(tests, run_all, drop_all);
}
