/* A thread pool: threads that run one function together, again and again.
 *
 * thread_pool_run returns when all members are done; it costs about a microsecond: members spin for a few microseconds after a
 * job, then sleep, so that a busy machine is not slowed by waiting. The caller is member 0. A pool of one runs in place.
 * The kernel of the system chooses where they run, and moves them away from a busy processor, unless they are pinned.
 * Not reentrant: a job must not call thread_pool_run on its own pool. */
#ifndef MOE_BASE_THREAD_POOL_H
#define MOE_BASE_THREAD_POOL_H

#include <stddef.h>

#include "common/base/err.h"

enum { THREAD_POOL_MAX = 256 };

struct thread_pool;

int thread_pool_new(struct thread_pool **out, int threads, struct err *err);      /* 1 .. THREAD_POOL_MAX */
void thread_pool_free(struct thread_pool **pool);
int thread_pool_size(const struct thread_pool *pool);
int thread_pool_cores(void);                                               /* processors this process may run on */

/* Binds each member to a processor of its own, the caller too until thread_pool_free. Fails when there are fewer than members.
 * */
int thread_pool_pin(struct thread_pool *pool, struct err *err);

void thread_pool_run(struct thread_pool *pool, void (*job)(void *argument, int member, int members), void *argument);

/* The part [*begin, *end) of `count` items that `member` takes: contiguous parts, sizes differ by at most one. */
static inline void thread_pool_part(size_t count, int member, int members, size_t *begin, size_t *end)
{
    *begin = count / (size_t)members * (size_t)member + count % (size_t)members * (size_t)member / (size_t)members;
    member++;
    *end = count / (size_t)members * (size_t)member + count % (size_t)members * (size_t)member / (size_t)members;
}

#endif
