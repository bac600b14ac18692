/* Several processes: copies and sums arrive completely and in a fixed order, an error of one is reported once and ends all,
 * and a process that dies is named. */
#include "tests/unit/ranks_pipes.h"

#include <math.h>
#include <signal.h>

#include "common/base/clock.h"
#include "common/base/plugin.h"

static bool report(const struct ranks *ranks, int line, const char *what)
{
    fprintf(stderr, "process %d, line %d: %s\n", ranks_rank(ranks), line, what);
    return true;
}

#define CHECK(what) do { if (!(what) && report(ranks, __LINE__, #what)) return 1; } while (0)

enum { LONG = 3 * RANKS_MESSAGE_BYTES + 12345 };

static unsigned char byte_at(size_t i) { return (unsigned char)(i * 2654435761u >> 13); }

static int copy_all(struct ranks *ranks, void *argument)
{
    static const size_t sizes[] = {0, 1, 1000, RANKS_MESSAGE_BYTES, LONG};
    const int rank = ranks_rank(ranks), size = ranks_size(ranks);
    struct err err = {0};
    (void)argument;
    CHECK(ranks_sharing_processors(ranks) == size && ranks_here(ranks) == rank && ranks_on_host(ranks) == size);
    for (int s = 0; s < 5; s++) {
        unsigned char *data = calloc(1, sizes[s] + 1);
        size_t cut[PIPES_MAX + 1];
        for (size_t i = 0; !rank && i < sizes[s]; i++)
            data[i] = byte_at(i);
        CHECK(!ranks_broadcast(ranks, data, sizes[s], &err));
        for (size_t i = 0; i < sizes[s]; i++)
            CHECK(data[i] == byte_at(i));
        CHECK(!data[sizes[s]]);
        ranks_cut(ranks, sizes[s], 64, cut);
        for (int only_first = 0; only_first < 2; only_first++) {
            memset(data, 0, sizes[s]);
            for (size_t i = cut[rank]; i < cut[rank + 1]; i++)
                data[i] = byte_at(i + 7);
            CHECK(!(only_first ? ranks_collect : ranks_share)(ranks, data, cut, &err));
            for (size_t i = 0; (!only_first || !rank) && i < sizes[s]; i++)
                CHECK(data[i] == byte_at(i + 7));
        }
        free(data);
    }
    return 0;
}

static void copies_arrive_whole(void **state)
{
    (void)state;
    for (int size = 1; size <= PIPES_MAX; size++)
        assert_int_equal(pipes_run(size, copy_all, NULL), 0);
}

static void cuts_are_equal_and_whole(void **state)
{
    struct err err = {0};
    struct ranks *alone = NULL;
    size_t cut[2] = {1, 1};
    (void)state;
    assert_int_equal(ranks_alone(&alone, &err), 0);
    assert_int_equal(ranks_size(alone), 1);
    assert_int_equal(ranks_sharing_processors(alone), 1);
    assert_int_equal(ranks_here(alone), 0);
    assert_int_equal(ranks_on_host(alone), 1);
    ranks_cut(alone, 1001, 16, cut);
    assert_true(cut[0] == 0 && cut[1] == 1001);
    ranks_close(&alone);
    assert_null(alone);
}

/* Values whose sum depends on the order of additions. */
static float value_of(int giver, int round, size_t i)
{
    const uint32_t bits = (uint32_t)(i + 1) * 2654435761u ^ (uint32_t)(giver + 4 * round + 1) * 40503u * 2246822519u;
    return (float)((int32_t)bits) * (giver == 1 ? 1e-3f : 1e-9f);
}

struct folding { size_t count, grain; int givers, rounds; };

static int fold_all(struct ranks *ranks, void *argument)
{
    const struct folding *f = argument;
    const int rank = ranks_rank(ranks);
    struct err err = {0};
    size_t cut[PIPES_MAX + 1];
    float *values = calloc(f->count + 1, sizeof *values), *sum = calloc(f->count + 1, sizeof *sum);
    ranks_cut(ranks, f->count, f->grain, cut);
    CHECK(cut[0] == 0 && cut[ranks_size(ranks)] == f->count);
    for (int r = 0; r < ranks_size(ranks); r++)
        CHECK(cut[r] <= cut[r + 1] && (cut[r + 1] == f->count || cut[r + 1] % f->grain == 0));
    const bool in_place = f->rounds == 1;
    float *own = in_place ? values + cut[rank] : sum;
    for (int round = 0; round < f->rounds; round++) {
        const int givers = round + 1 < f->rounds ? ranks_size(ranks) : f->givers;
        for (size_t i = 0; i < f->count; i++)
            values[i] = rank < givers ? value_of(rank, round, i) : NAN;
        CHECK(!ranks_fold(ranks, rank < givers || in_place ? values : NULL, givers, cut, own, round == 0, &err));
    }
    for (size_t i = cut[rank]; i < cut[rank + 1]; i++) {
        float want = value_of(0, 0, i);
        for (int round = 0; round < f->rounds; round++)
            for (int giver = round ? 0 : 1; giver < (round + 1 < f->rounds ? ranks_size(ranks) : f->givers); giver++)
                want += value_of(giver, round, i);
        CHECK(own[i - cut[rank]] == want);
    }
    free(values);
    free(sum);
    return 0;
}

static void sums_have_the_order_of_the_processes(void **state)
{
    (void)state;
    for (int size = 1; size <= PIPES_MAX; size++)
        for (int rounds = 1; rounds <= 2; rounds++)
            for (int givers = 1; givers <= size; givers++) {
                struct folding few = {5, 1, givers, rounds}, many = {700001, 1024, givers, rounds};
                assert_int_equal(pipes_run(size, fold_all, &few), 0);
                if (givers == size && (size == 1 || size == 3))
                    assert_int_equal(pipes_run(size, fold_all, &many), 0);
            }
}

/* ---- errors ---- */

struct faults {
    int who;                    /* number of the process that fails; -1: all */
    struct err err[PIPES_MAX];
};

static int fail_one(struct ranks *ranks, void *argument)
{
    struct faults *f = argument;
    const int rank = ranks_rank(ranks);
    struct err err = {0};
    char data[100] = "";
    CHECK(!ranks_agree(ranks, false, NULL, &err));
    int rc = 0;
    if (f->who < 0 || rank == f->who)
        rc = err_set(&err, ERR_INPUT, "texts.jsonl:%d: no good", f->who);
    CHECK(rc || ranks_broadcast(ranks, data, sizeof data, &err));
    CHECK(rc || ranks_agree(ranks, false, NULL, NULL));           /* no call is made afterwards */
    ranks_leave(ranks, &err);
    f->err[rank] = err;
    return 0;
}

static void a_fault_of_one_is_reported_once(void **state)
{
    struct faults *f = pipes_memory(sizeof *f);
    char host[100], want[300];
    (void)state;
    assert_int_equal(gethostname(host, sizeof host), 0);
    for (int who = -1; who < 3; who++) {
        memset(f, 0, sizeof *f);
        f->who = who;
        assert_int_equal(pipes_run(3, fail_one, f), 0);
        const char *form = who < 0 ? "texts.jsonl:-1: no good" : "process %d of 3 (%s): texts.jsonl:%d: no good";
        snprintf(want, sizeof want, form, who, host, who);
        assert_string_equal(f->err[0].text, want);
        assert_int_equal(f->err[0].code, ERR_INPUT);
        assert_int_equal(f->err[1].code, ERR_REPORTED);
        assert_int_equal(f->err[2].code, ERR_REPORTED);
    }
    munmap(f, sizeof *f);
}

static int stop_one(struct ranks *ranks, void *argument)
{
    struct err err = {0};
    bool asked = true;
    (void)argument;
    CHECK(!ranks_agree(ranks, false, &asked, &err) && !asked);
    CHECK(!ranks_agree(ranks, ranks_rank(ranks) == 2, &asked, &err) && asked);
    return 0;
}

static void a_wish_of_one_is_heard_by_all(void **state)
{
    (void)state;
    assert_int_equal(pipes_run(3, stop_one, NULL), 0);
}

static int die_one(struct ranks *ranks, void *argument)
{
    struct faults *f = argument;
    const int rank = ranks_rank(ranks);
    struct err err = {0};
    const double began = clock_seconds();
    CHECK(!ranks_agree(ranks, false, NULL, &err));
    if (rank == f->who)
        raise(SIGKILL);
    CHECK(ranks_agree(ranks, false, NULL, &err));
    ranks_leave(ranks, &err);
    CHECK(clock_seconds() - began < 20);
    f->err[rank] = err;
    return 0;
}

static void who_dies_is_named(void **state)
{
    struct faults *f = pipes_memory(sizeof *f);
    (void)state;
    for (int who = 0; who < 3; who++) {
        char words[40];
        memset(f, 0, sizeof *f);
        f->who = who;
        assert_int_equal(pipes_run(3, die_one, f), 0);
        snprintf(words, sizeof words, "process %d of 3 (", who);
        const int teller = who == 0;
        assert_int_equal(f->err[teller].code, ERR_IO);
        assert_memory_equal(f->err[teller].text, words, strlen(words));
        assert_non_null(strstr(f->err[teller].text, ") ended unexpectedly"));
        for (int i = teller + 1; i < 3; i++)
            if (i != who)
                assert_int_equal(f->err[i].code, ERR_REPORTED);
    }
    munmap(f, sizeof *f);
}

static void a_job_of_another_size_is_refused(void **state)
{
    struct pipes_job job = {.size = 1};
    struct ranks *ranks = NULL;
    struct err err = {0};
    (void)state;
    assert_int_equal(ranks_over(&ranks, &pipes_plugin, &job, 2, &err), -1);
    assert_null(ranks);
    assert_non_null(strstr(err.text, "the job has 2 processes, but the plug-in finds 1"));
    err_clear(&err);
    assert_int_equal(ranks_open(&ranks, "nothing", 0, &err), -1);
    assert_string_equal(err.text, "moe-ranks-nothing.so is not part of this build; build it on a machine with mpicc, which "
                        "make deps-mpi installs");
}

/* ---- the plug-in over MPI ---- */

/* Processes started by mpirun: the same work as above, over real messages. */
static int work_over_mpi(int size)
{
    struct folding few = {5, 1, size, 2}, many = {700001, 1024, size, 1};
    struct ranks *ranks = NULL;
    struct err err = {0};
    if (ranks_open(&ranks, "mpi", size, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int failed = copy_all(ranks, NULL) || fold_all(ranks, &few) || fold_all(ranks, &many);
    if (size == 3)
        failed = failed || stop_one(ranks, NULL);
    ranks_close(&ranks);
    return failed;
}

static bool has_mpi(void)
{
    struct err err = {0};
    return system("command -v mpirun > /dev/null 2>&1") == 0 &&
           plugin_load("moe-ranks-mpi.so", "", &err) != NULL;
}

static void mpi_carries_the_same(void **state)
{
    char program[1000], command[1500];
    (void)state;
    if (!has_mpi())
        skip();
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    /* As root, on any number of processors, and beside other jobs. */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    for (int size = 2; size <= 3; size++) {
        snprintf(command, sizeof command, "mpirun --oversubscribe --bind-to none -n %d '%s' ranks", size, program);
        assert_int_equal(system(command), 0);
    }
}

int main(void)
{
    if (getenv("OMPI_COMM_WORLD_SIZE"))
        return work_over_mpi(atoi(getenv("OMPI_COMM_WORLD_SIZE")));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_are_equal_and_whole),
        cmocka_unit_test(copies_arrive_whole),
        cmocka_unit_test(sums_have_the_order_of_the_processes),
        cmocka_unit_test(a_fault_of_one_is_reported_once),
        cmocka_unit_test(a_wish_of_one_is_heard_by_all),
        cmocka_unit_test(who_dies_is_named),
        cmocka_unit_test(a_job_of_another_size_is_refused),
        cmocka_unit_test(mpi_carries_the_same),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
