#include "common/base/thread_pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/thread.h"

/* Seconds to spin before sleeping: longer than the gap between two jobs of a forward, because waking a thread takes tens of
 * microseconds, but short enough that other processes get the processor (docs/benchmarks.md). */
#define SPIN 20e-6

/* A job is published by raising `generation`; each member counts `pending` down when it is done. A thread that
 * goes to sleep sets `sleepers` or `caller_sleeps` and then checks the state once more; a thread that changes the state checks
 * these flags afterwards. All are sequentially consistent, so either the sleeper sees the change or it is woken. */
struct thread_pool {
    void (*job)(void *argument, int member, int members);
    void *argument;
    _Alignas(64) atomic_uint generation;
    _Alignas(64) atomic_int pending;
    _Alignas(64) atomic_int sleepers;
    atomic_int caller_sleeps;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    cpu_set_t before;                   /* the caller's affinity before it was pinned */
    bool pinned;
    int threads, started;               /* members, and threads created (all members but the caller) */
    double spin;                        /* SPIN; 0 with more members than processors, which would be delayed by it */
    struct member {
        struct thread_pool *pool;
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

/* Waits up to `seconds` until *value differs from `old`; returns false on timeout. */
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
    struct thread_pool *pool = self->pool;
    unsigned seen = 0;
    for (;;) {
        if (!spin_until_changed(&pool->generation, seen, pool->spin)) {
            pthread_mutex_lock(&pool->lock);
            atomic_fetch_add(&pool->sleepers, 1);
            while (atomic_load(&pool->generation) == seen)
                pthread_cond_wait(&pool->work, &pool->lock);
            atomic_fetch_sub(&pool->sleepers, 1);
            pthread_mutex_unlock(&pool->lock);
        }
        seen++;
        if (atomic_load(&pool->stop))
            return NULL;
        pool->job(pool->argument, self->index, pool->threads);
        if (atomic_fetch_sub(&pool->pending, 1) == 1 && atomic_load(&pool->caller_sleeps)) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static void publish(struct thread_pool *pool)
{
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->sleepers)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void wait_for_members(struct thread_pool *pool)
{
    double end = clock_seconds() + pool->spin;
    do
        for (int i = 0; i < 16; i++) {
            if (atomic_load(&pool->pending) == 0)
                return;
            relax();
        }
    while (clock_seconds() < end);
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, 1);
    while (atomic_load(&pool->pending))
        pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->caller_sleeps, 0);
    pthread_mutex_unlock(&pool->lock);
}

void thread_pool_run(struct thread_pool *pool, void (*job)(void *argument, int member, int members), void *argument)
{
    if (pool->threads == 1) {
        job(argument, 0, 1);
        return;
    }
    pool->job = job;
    pool->argument = argument;
    atomic_store(&pool->pending, pool->threads - 1);
    publish(pool);
    job(argument, 0, pool->threads);
    wait_for_members(pool);
}

static int start_members(struct thread_pool *pool, struct err *err)
{
    int failed = 0;
    for (int i = 1; i < pool->threads && !failed; i++) {
        pool->members[i] = (struct member){.pool = pool, .index = i};
        failed = thread_start(&pool->members[i].thread, member_main, &pool->members[i]);
        pool->started += !failed;
    }
    if (failed)
        return err_set(err, ERR_MEMORY, "thread %d of %d cannot be started: %s; give fewer --threads", pool->started + 2,
                       pool->threads, strerror(failed));
    return 0;
}

int thread_pool_new(struct thread_pool **out, int threads, struct err *err)
{
    if (threads < 1 || threads > 256)
        return err_set(err, ERR_INPUT, "the number of threads is %d; it must be from 1 to 256", threads);
    struct thread_pool *pool = mem_alloc_aligned(1, sizeof *pool, err);
    if (!pool)
        return -1;
    pool->threads = threads;
    pool->spin = threads <= thread_pool_cores() ? SPIN : 0;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->members = mem_alloc((size_t)threads, sizeof *pool->members, err);
    if (!pool->members || start_members(pool, err)) {
        thread_pool_free(&pool);
        return -1;
    }
    *out = pool;
    return 0;
}

void thread_pool_free(struct thread_pool **address)
{
    struct thread_pool *pool = *address;
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    publish(pool);
    if (pool->pinned)
        pthread_setaffinity_np(pthread_self(), sizeof pool->before, &pool->before);
    for (int i = 1; i <= pool->started; i++)
        pthread_join(pool->members[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    mem_free(&pool->members);
    mem_free(address);
}

int thread_pool_pin(struct thread_pool *pool, struct err *err)
{
    cpu_set_t allowed, one;
    int failed = 0, cpu = -1;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return err_set(err, ERR_IO, "the processors that this process may use cannot be determined: %s", strerror(errno));
    if (CPU_COUNT(&allowed) < pool->threads)
        return err_set(err, ERR_INPUT, "%d threads cannot be pinned to a processor each, because there are only %d "
                       "processors; give fewer --threads, or leave --pin out", pool->threads, CPU_COUNT(&allowed));
    for (int i = 0; i < pool->threads && !failed; i++) {
        do
            cpu++;
        while (!CPU_ISSET(cpu, &allowed));
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        failed = pthread_setaffinity_np(i ? pool->members[i].thread : pthread_self(), sizeof one, &one);
    }
    pool->before = allowed;
    pool->pinned = true;
    if (failed)
        return err_set(err, ERR_IO, "a thread cannot be bound to processor %d: %s", cpu, strerror(failed));
    return 0;
}

int thread_pool_size(const struct thread_pool *pool) { return pool->threads; }

int thread_pool_cores(void)
{
    cpu_set_t allowed;
    int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > 256 ? 256 : cores;
}
