/* Several processes that work as one: who is who, and sums and copies over all of them, in an order that is always the same.
 *
 * Every process makes the same calls in the same order. In each call all first say to each other how they are: where one has
 * failed meanwhile (ranks_leave), the call fails for all of them with that one's error and name, and so do all calls after it.
 * One that has died is noticed by those who wait for it, on its own machine at least. So nobody waits for ever, and a fault is
 * reported once: by process 0, or the first that lives; for the others it is ERR_REPORTED.
 *
 * Parts: `cut` [size + 1] says which part of an array is whose: cut[rank] .. cut[rank + 1]. */
#ifndef MOE_RANKS_RANKS_H
#define MOE_RANKS_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/ranks/plugin.h"

enum { RANKS_MAX = 4096 };

struct ranks;

int ranks_alone(struct ranks **out, struct err *err);           /* one process, without any plug-in */
/* Opens moe-ranks-NAME.so. expected: how many processes the job has, as far as that is known; else 0. */
int ranks_open(struct ranks **out, const char *name, int expected, struct err *err);
/* Over a plug-in that is there. */
int ranks_over(struct ranks **out, const struct ranks_plugin *plugin, void *context, int expected, struct err *err);
void ranks_close(struct ranks **ranks);

int ranks_rank(const struct ranks *ranks);
int ranks_size(const struct ranks *ranks);
/* How many, this one included, may run on processors that this one may run on. */
int ranks_beside(const struct ranks *ranks);
/* This process's number among those on its host. */
int ranks_here(const struct ranks *ranks);

/* Tells the others that this process has failed, with `err` set, unless they know; then makes err ERR_REPORTED where another
 * process is to say it. To be called once, before the end of each process that has failed. */
void ranks_leave(struct ranks *ranks, struct err *err);

/* Nothing but the telling. *asked, if not NULL: does any of them wish to stop? */
int ranks_agree(struct ranks *ranks, bool asks, bool *asked, struct err *err);

/* Process 0's bytes to all. */
int ranks_broadcast(struct ranks *ranks, void *data, size_t bytes, struct err *err);
/* Each has its part of an array of bytes; afterwards all have all of it. */
int ranks_share(struct ranks *ranks, void *data, const size_t *cut, struct err *err);
/* The same, and only process 0 has all of it. */
int ranks_collect(struct ranks *ranks, void *data, const size_t *cut, struct err *err);

/* Sums of floats by parts. Each process gets the sum over its own part,
 *
 *     sum[i] = (..((start + values of process 0) + values of process 1) .. + values of process givers - 1)
 *
 * each `+` rounded once, where start is sum[i], or nothing with `anew`. values: [cut[size]] of a process below `givers`, who
 * alone give any; sum: [cut[rank + 1] - cut[rank]], which may be this process's own part of values. So one process that adds
 * the same values to a sum one after the other gets the same bytes. */
int ranks_fold(struct ranks *ranks, const float *values, int givers, const size_t *cut, float *sum, bool anew,
               struct err *err);

/* cut of `count` items, in steps of `grain`, as equal as that allows. */
void ranks_cut(const struct ranks *ranks, size_t count, size_t grain, size_t *cut);

#endif
