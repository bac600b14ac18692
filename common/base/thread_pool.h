/* A thread pool: a fixed set of threads that run one function together, once per job.
 *
 * thread_pool_run returns when all members are done; it costs about a microsecond: members spin for a few microseconds after a
 * job, then sleep, so that a busy machine is not slowed by waiting. The caller is member 0. A pool of one runs in place.
 * Unless pinned, threads are placed by the system, which moves them away from a busy processor.
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

/* Binds each member to its own processor, and the caller too until thread_pool_free. Fails if there are fewer processors than
 * members. */
int thread_pool_pin(struct thread_pool *pool, struct err *err);

void thread_pool_run(struct thread_pool *pool, void (*job)(void *argument, int member, int members), void *argument);

/* Computes the part [*begin, *end) of `count` items for `member`: contiguous parts whose sizes differ by at most one. */
static inline void thread_pool_part(size_t count, int member, int members, size_t *begin, size_t *end)
{
    *begin = count / (size_t)members * (size_t)member + count % (size_t)members * (size_t)member / (size_t)members;
    member++;
    *end = count / (size_t)members * (size_t)member + count % (size_t)members * (size_t)member / (size_t)members;
}

#endif
