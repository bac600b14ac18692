#include "common/base/team.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

/* How long to spin, in seconds, before sleeping: longer than what lies between two jobs of a forward, as waking a thread takes
 * tens of microseconds, and not so long that others miss the processor (BENCHMARKS.md). */
#define SPIN 20e-6

/* A job is published by raising `generation`; each member counts `pending` down when it is done. Who sleeps says so in
 * `sleepers` or `caller_sleeps` before it looks a last time, and who changes the state looks at these afterwards, all in
 * one total order: so either the sleeper sees the change or the changer sees the sleeper and wakes it. */
struct team {
    void (*job)(void *argument, int member, int members);
    void *argument;
    _Alignas(64) atomic_uint generation;
    _Alignas(64) atomic_int pending;
    _Alignas(64) atomic_int sleepers;
    atomic_int caller_sleeps;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    cpu_set_t before;                   /* where the caller might run before it was pinned */
    bool pinned;
    int threads, started;               /* members, and those of them that were created (all but the caller) */
    struct member {
        struct team *team;
        pthread_t thread;
        int index;
    } *members;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits up to `seconds` until *value is no longer `old`; false when the time is over. */
static bool spin_until_changed(atomic_uint *value, unsigned old, double seconds)
{
    double end = clock_seconds() + seconds;
    do
        for (int i = 0; i < 16; i++) {
            if (atomic_load(value) != old)
                return true;
            relax();
        }
    while (clock_seconds() < end);
    return false;
}

static void *member_main(void *argument)
{
    struct member *self = argument;
    struct team *team = self->team;
    unsigned seen = 0;
    for (;;) {
        if (!spin_until_changed(&team->generation, seen, SPIN)) {
            pthread_mutex_lock(&team->lock);
            atomic_fetch_add(&team->sleepers, 1);
            while (atomic_load(&team->generation) == seen)
                pthread_cond_wait(&team->work, &team->lock);
            atomic_fetch_sub(&team->sleepers, 1);
            pthread_mutex_unlock(&team->lock);
        }
        seen++;
        if (atomic_load(&team->stop))
            return NULL;
        team->job(team->argument, self->index, team->threads);
        if (atomic_fetch_sub(&team->pending, 1) == 1 && atomic_load(&team->caller_sleeps)) {
            pthread_mutex_lock(&team->lock);
            pthread_cond_signal(&team->done);
            pthread_mutex_unlock(&team->lock);
        }
    }
}

static void publish(struct team *team)
{
    atomic_fetch_add(&team->generation, 1);
    if (atomic_load(&team->sleepers)) {
        pthread_mutex_lock(&team->lock);
        pthread_cond_broadcast(&team->work);
        pthread_mutex_unlock(&team->lock);
    }
}

static void wait_for_members(struct team *team)
{
    double end = clock_seconds() + SPIN;
    do
        for (int i = 0; i < 16; i++) {
            if (atomic_load(&team->pending) == 0)
                return;
            relax();
        }
    while (clock_seconds() < end);
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->caller_sleeps, 1);
    while (atomic_load(&team->pending))
        pthread_cond_wait(&team->done, &team->lock);
    atomic_store(&team->caller_sleeps, 0);
    pthread_mutex_unlock(&team->lock);
}

void team_run(struct team *team, void (*job)(void *argument, int member, int members), void *argument)
{
    if (team->threads == 1) {
        job(argument, 0, 1);
        return;
    }
    team->job = job;
    team->argument = argument;
    atomic_store(&team->pending, team->threads - 1);
    publish(team);
    job(argument, 0, team->threads);
    wait_for_members(team);
}

/* Signals stay with the caller's thread: its handler may then rely on running where the program was started. */
static int start_members(struct team *team, struct err *err)
{
    sigset_t all, before;
    int failed = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < team->threads && !failed; i++) {
        team->members[i] = (struct member){.team = team, .index = i};
        failed = pthread_create(&team->members[i].thread, NULL, member_main, &team->members[i]);
        team->started += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return err_set(err, ERR_MEMORY, "cannot start thread %d of %d: %s; ask for fewer with --threads", team->started + 2,
                       team->threads, strerror(failed));
    return 0;
}

int team_new(struct team **out, int threads, struct err *err)
{
    if (threads < 1 || threads > 256)
        return err_set(err, ERR_INPUT, "%d threads: must be 1 to 256", threads);
    struct team *team = mem_alloc_aligned(1, sizeof *team, err);
    if (!team)
        return -1;
    team->threads = threads;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->work, NULL);
    pthread_cond_init(&team->done, NULL);
    team->members = mem_alloc((size_t)threads, sizeof *team->members, err);
    if (!team->members || start_members(team, err)) {
        team_free(&team);
        return -1;
    }
    *out = team;
    return 0;
}

void team_free(struct team **address)
{
    struct team *team = *address;
    if (!team)
        return;
    atomic_store(&team->stop, true);
    publish(team);
    if (team->pinned)
        pthread_setaffinity_np(pthread_self(), sizeof team->before, &team->before);
    for (int i = 1; i <= team->started; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_cond_destroy(&team->done);
    pthread_cond_destroy(&team->work);
    pthread_mutex_destroy(&team->lock);
    mem_free(&team->members);
    mem_free(address);
}

int team_pin(struct team *team, struct err *err)
{
    cpu_set_t allowed, one;
    int failed = 0, cpu = -1;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return err_set(err, ERR_IO, "cannot tell which processors may be used: %s", strerror(errno));
    if (CPU_COUNT(&allowed) < team->threads)
        return err_set(err, ERR_INPUT, "%d threads cannot have a processor each: there are %d; ask for fewer with --threads or "
                       "do not pin them", team->threads, CPU_COUNT(&allowed));
    for (int i = 0; i < team->threads && !failed; i++) {
        do
            cpu++;
        while (!CPU_ISSET(cpu, &allowed));
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        failed = pthread_setaffinity_np(i ? team->members[i].thread : pthread_self(), sizeof one, &one);
    }
    team->before = allowed;
    team->pinned = true;
    if (failed)
        return err_set(err, ERR_IO, "cannot bind a thread to processor %d: %s", cpu, strerror(failed));
    return 0;
}

int team_size(const struct team *team) { return team->threads; }

int team_cores(void)
{
    cpu_set_t allowed;
    int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > 256 ? 256 : cores;
}
