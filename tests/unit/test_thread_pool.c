/* Thread pools: every member runs every job once, nothing is lost between jobs, parts cover all items. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "common/base/thread_pool.h"

struct tally {
    atomic_int runs[256];
    int sum[256];               /* not atomic: thread_pool_run must order it */
    int members;
};

static void count(void *argument, int member, int members)
{
    struct tally *tally = argument;
    atomic_fetch_add(&tally->runs[member], 1);
    tally->sum[member] += member + 1;
    if (member == 0)
        tally->members = members;
}

static void every_member_runs_every_job_once(void **state)
{
    (void)state;
    int sizes[] = {1, 2, 3, 8};
    for (int s = 0; s < 4; s++) {
        struct err err = {0};
        struct thread_pool *pool = NULL;
        struct tally tally = {0};
        assert_int_equal(thread_pool_new(&pool, sizes[s], &err), 0);
        assert_int_equal(thread_pool_size(pool), sizes[s]);
        for (int i = 0; i < 2000; i++)
            thread_pool_run(pool, count, &tally);
        for (int i = 0; i < sizes[s]; i++) {
            assert_int_equal(atomic_load(&tally.runs[i]), 2000);
            assert_int_equal(tally.sum[i], 2000 * (i + 1));
        }
        assert_int_equal(tally.members, sizes[s]);
        thread_pool_free(&pool);
        assert_null(pool);
    }
}

/* Longer than members and caller spin, so that both sleep. */
static void slow_member(void *argument, int member, int members)
{
    if (member == members - 1)
        usleep(2000);
    count(argument, member, members);
}

static void sleepers_are_woken(void **state)
{
    (void)state;
    struct err err = {0};
    struct thread_pool *pool = NULL;
    struct tally tally = {0};
    assert_int_equal(thread_pool_new(&pool, 3, &err), 0);
    for (int i = 0; i < 20; i++) {
        usleep(i % 2 ? 0 : 1000);
        thread_pool_run(pool, slow_member, &tally);
        for (int m = 0; m < 3; m++)
            assert_int_equal(tally.sum[m], (i + 1) * (m + 1));
    }
    thread_pool_free(&pool);
}

static void idle_members_use_no_time(void **state)
{
    (void)state;
    struct err err = {0};
    struct thread_pool *pool = NULL;
    struct tally tally = {0};
    struct rusage before, after;
    assert_int_equal(thread_pool_new(&pool, 4, &err), 0);
    thread_pool_run(pool, count, &tally);
    getrusage(RUSAGE_SELF, &before);
    usleep(200000);
    getrusage(RUSAGE_SELF, &after);
    double used = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                  1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec);
    assert_true(used < 0.05);
    thread_pool_free(&pool);
}

static void parts_cover_all_items_evenly(void **state)
{
    (void)state;
    size_t counts[] = {0, 1, 2, 7, 64, 1000, 50304, SIZE_MAX / 2};
    for (int c = 0; c < 8; c++)
        for (int members = 1; members <= 9; members++) {
            size_t end_before = 0, smallest = SIZE_MAX, largest = 0;
            for (int m = 0; m < members; m++) {
                size_t begin = 1, end = 0;
                thread_pool_part(counts[c], m, members, &begin, &end);
                assert_true(begin == end_before && end >= begin);
                end_before = end;
                smallest = end - begin < smallest ? end - begin : smallest;
                largest = end - begin > largest ? end - begin : largest;
            }
            assert_true(end_before == counts[c]);
            assert_true(largest - smallest <= 1);
        }
}

static void sizes_out_of_range_are_refused(void **state)
{
    (void)state;
    int sizes[] = {0, -1, 257};
    for (int i = 0; i < 3; i++) {
        struct err err = {0};
        struct thread_pool *pool = NULL;
        assert_int_equal(thread_pool_new(&pool, sizes[i], &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        assert_null(pool);
    }
    assert_in_range(thread_pool_cores(), 1, 256);
}

static void note_processor(void *argument, int member, int members)
{
    (void)members;
    cpu_set_t own;
    int *processor = argument;
    pthread_getaffinity_np(pthread_self(), sizeof own, &own);
    processor[member] = CPU_COUNT(&own) == 1 ? sched_getcpu() : -1;
}

static void pinned_members_have_a_processor_each(void **state)
{
    (void)state;
    int cores = thread_pool_cores(), processor[THREAD_POOL_MAX];
    struct err err = {0};
    struct thread_pool *pool = NULL;
    cpu_set_t before, after;
    sched_getaffinity(0, sizeof before, &before);
    assert_int_equal(thread_pool_new(&pool, cores, &err), 0);
    assert_int_equal(thread_pool_pin(pool, &err), 0);
    thread_pool_run(pool, note_processor, processor);
    for (int i = 0; i < cores; i++) {
        assert_true(processor[i] >= 0);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(processor[i], processor[j]);
    }
    thread_pool_free(&pool);
    sched_getaffinity(0, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
    if (cores < THREAD_POOL_MAX) {
        assert_int_equal(thread_pool_new(&pool, cores + 1, &err), 0);
        assert_int_equal(thread_pool_pin(pool, &err), -1);
        assert_non_null(strstr(err.text, "give fewer"));
        thread_pool_free(&pool);
    }
}

/* In a child whose address space has no room for another stack. */
static void a_thread_that_does_not_start_is_named(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();                             /* sanitisers themselves need the address space */
#endif
    pid_t child = fork();
    if (child == 0) {
        struct err err = {0};
        struct thread_pool *pool = NULL;
        struct rlimit limit = {64 << 20, 64 << 20};
        setrlimit(RLIMIT_AS, &limit);
        int rc = thread_pool_new(&pool, 200, &err);
        _exit(rc == -1 && pool == NULL && strstr(err.text, "cannot be started") && strstr(err.text, "of 200") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void end_child(int number)
{
    (void)number;
    _exit(7);
}

static void touch_missing_page(void *argument, int member, int members)
{
    (void)members;
    if (member == 1)
        (void)*(volatile char *)argument;
}

/* In a child: a member touches a page after the end of its file, which raises SIGBUS in that thread. */
static void a_fault_of_a_member_reaches_its_handler(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        struct thread_pool *pool = NULL;
        FILE *file = tmpfile();
        void *page = file ? mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0) : MAP_FAILED;
        signal(SIGBUS, end_child);
        if (page != MAP_FAILED && !thread_pool_new(&pool, 2, NULL))
            thread_pool_run(pool, touch_missing_page, page);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_runs_every_job_once),
        cmocka_unit_test(sleepers_are_woken),
        cmocka_unit_test(idle_members_use_no_time),
        cmocka_unit_test(parts_cover_all_items_evenly),
        cmocka_unit_test(sizes_out_of_range_are_refused),
        cmocka_unit_test(pinned_members_have_a_processor_each),
        cmocka_unit_test(a_thread_that_does_not_start_is_named),
        cmocka_unit_test(a_fault_of_a_member_reaches_its_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
