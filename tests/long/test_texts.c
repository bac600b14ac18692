/* Every policy with every acceptance rule through the whole loop, a million texts per pair (MOE_TEXTS=N: N texts): texts
 * have the target's distribution, or equal the texts without drafts, and known mistakes are detected (tests/unit/loop.h). */
#include "tests/unit/loop_policies.h"

#include "common/base/thread_pool.h"

#include <stdatomic.h>

enum { TEXTS = 1000000, RIGHT = sizeof loop_right / sizeof *loop_right, WRONG = sizeof loop_wrong / sizeof *loop_wrong,
       MORE = 4 /* as many texts of a mistake as in the short test */, CELLS_MAX = 2048 };

struct job {
    struct loop_cell cell;
    char policy[1400], fault[3000];
    struct loop_tally tally;
    int rc;
};

struct work {
    struct loop_world world;
    struct loop_law laws[LOOP_SAMPLINGS];
    long texts;
    int points;
    atomic_int next;
    struct job job[CELLS_MAX], right[RIGHT], wrong[WRONG];
};

/* Trees and n-grams need only a part of the texts. */
static long texts_of(const struct work *work, const struct loop_point *point)
{
    return point->tree || point->draft ? work->texts / 20 : work->texts;
}

static void take_point(struct work *work, const struct loop_rig *rig, int number)
{
    const struct loop_point point = loop_point(number);
    const int sampling = number % LOOP_SAMPLINGS;
    struct job *job = &work->job[number];
    loop_cell(&job->cell, &point, sampling, &work->world, rig, job->policy, sizeof job->policy);
    job->rc = loop_run(&job->cell, &work->world, &work->laws[sampling], rig, texts_of(work, &point), &job->tally);
}

static void take(void *argument, int member, int members)
{
    struct work *work = argument;
    struct loop_rig rig;
    (void)members;
    loop_rig_open(&rig, &work->world, 1 + member);
    for (int at; (at = atomic_fetch_add(&work->next, 1)) < work->points + RIGHT + WRONG;) {
        int right = at - work->points, wrong = right - RIGHT;
        if (right < 0)
            take_point(work, &rig, at);
        else if (wrong < 0)
            work->right[right].rc = loop_twist_run(&loop_right[right], &work->world, &work->laws[3], &rig, work->texts / 4,
                                                   &work->right[right].tally);
        else
            work->wrong[wrong].rc = loop_twist_run(&loop_wrong[wrong], &work->world, &work->laws[3], &rig,
                                                   MORE * 1000L * loop_wrong[wrong].thousands, &work->wrong[wrong].tally);
    }
    loop_rig_close(&rig);
}

static int run_all(void **state)
{
    struct work *work = calloc(1, sizeof *work);
    const char *texts = getenv("MOE_TEXTS");
    struct thread_pool *pool = NULL;
    int cores = thread_pool_cores();
    if (!work || loop_points() > CELLS_MAX || thread_pool_new(&pool, cores < 16 ? cores : 16, NULL))
        return -1;
    work->texts = texts ? atol(texts) : TEXTS;
    work->points = loop_points();
    loop_world_open(&work->world);
    for (int i = 0; i < LOOP_SAMPLINGS; i++) {
        struct sample_filter filter = grid_filters[loop_samplings[i].filter];
        filter.temperature = loop_samplings[i].temperature;
        loop_law_make(&work->laws[i], &work->world, &filter);
    }
    thread_pool_run(pool, take, work);
    thread_pool_free(&pool);
    *state = work;
    return 0;
}

static int drop_all(void **state)
{
    struct work *work = *state;
    loop_world_close(&work->world);
    free(work);
    return 0;
}

static void every_pair_gives_its_law(void **state)
{
    struct work *work = *state;
    int bad = 0;
    for (int number = 0; number < work->points; number++) {
        struct job *job = &work->job[number];
        job->cell.policy = job->policy[0] ? job->policy : job->cell.policy;
        if (!loop_fault(&job->cell, job->rc, &job->tally, job->fault, sizeof job->fault))
            continue;
        print_error("%s\n", job->fault);
        bad++;
    }
    assert_int_equal(bad, 0);
}

static void policies_may_look_to_decide_what_comes_next(void **state)
{
    const struct work *work = *state;
    int bad = 0;
    for (int i = 0; i < RIGHT; i++)
        if (work->right[i].rc || loop_sees(&work->right[i].tally)) {
            print_error("%s: z %.2f %s\n", loop_right[i].name, work->right[i].tally.tally.z, work->right[i].tally.err.text);
            bad++;
        }
    assert_int_equal(bad, 0);
}

static void known_mistakes_are_seen(void **state)
{
    const struct work *work = *state;
    int missed = 0;
    for (int i = 0; i < WRONG; i++)
        if (work->wrong[i].rc || !loop_sees(&work->wrong[i].tally)) {
            print_error("%s: z %.2f %s\n", loop_wrong[i].name, work->wrong[i].tally.tally.z, work->wrong[i].tally.err.text);
            missed++;
        }
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_gives_its_law),
        cmocka_unit_test(policies_may_look_to_decide_what_comes_next),
        cmocka_unit_test(known_mistakes_are_seen),
    };
    return cmocka_run_group_tests(tests, run_all, drop_all);
}
