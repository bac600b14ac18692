/* A team of threads that run one function together, again and again.
 *
 * team_run returns when all members are done; it costs about a microsecond: members spin for a few microseconds after a
 * job, then sleep, so that a busy machine is not slowed by waiting. The caller is member 0. A team of one runs in place.
 * The kernel of the system chooses where they run, and moves them away from a busy processor, unless they are pinned.
 * Not reentrant: a job must not call team_run on its own team. */
#ifndef MOE_BASE_TEAM_H
#define MOE_BASE_TEAM_H

#include <stddef.h>

#include "common/base/err.h"

enum { TEAM_MAX = 256 };

struct team;

int team_new(struct team **out, int threads, struct err *err);      /* 1 .. TEAM_MAX */
void team_free(struct team **team);
int team_size(const struct team *team);
int team_cores(void);                                               /* processors this process may run on */

/* Binds each member to a processor of its own, the caller too until team_free. Fails when there are fewer than members. */
int team_pin(struct team *team, struct err *err);

void team_run(struct team *team, void (*job)(void *argument, int member, int members), void *argument);

/* The part [*begin, *end) of `count` items that `member` takes: contiguous parts, sizes differ by at most one. */
static inline void team_part(size_t count, int member, int members, size_t *begin, size_t *end)
{
    *begin = count / (size_t)members * (size_t)member + count % (size_t)members * (size_t)member / (size_t)members;
    member++;
    *end = count / (size_t)members * (size_t)member + count % (size_t)members * (size_t)member / (size_t)members;
}

#endif
