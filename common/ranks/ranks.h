/* Several processes that work on one job: their numbers, and sums and copies over all of them, in a fixed order.
 *
 * Every process makes the same calls in the same order. Each call first exchanges the status of all processes. If one has
 * failed (ranks_leave), this call and all later ones fail in every process, with the error and name of the failed one. The
 * death of a process is detected by processes on the same machine that wait for it. No process waits for ever, and an error is
 * printed once: by process 0, or the first living one; the others return ERR_REPORTED.
 *
 * Parts: the part of process `rank` in an array is cut[rank] .. cut[rank + 1], with `cut` [size + 1]. */
#ifndef MOE_RANKS_RANKS_H
#define MOE_RANKS_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/ranks/plugin.h"

enum { RANKS_MAX = 4096 };

struct ranks;

int ranks_alone(struct ranks **out, struct err *err);           /* Opens a job of one process, without a plug-in. */
/* Opens moe-ranks-NAME.so. expected: number of processes of the job; 0 if unknown. */
int ranks_open(struct ranks **out, const char *name, int expected, struct err *err);
/* Uses a plug-in that is already loaded. */
int ranks_over(struct ranks **out, const struct ranks_plugin *plugin, void *context, int expected, struct err *err);
void ranks_close(struct ranks **ranks);

int ranks_rank(const struct ranks *ranks);
int ranks_size(const struct ranks *ranks);
/* Returns the number of processes, this one included, that share its processors. */
int ranks_sharing_processors(const struct ranks *ranks);
/* Returns this process's number among those on its host. */
int ranks_here(const struct ranks *ranks);
/* Returns the number of processes on this host, this one included. */
int ranks_on_host(const struct ranks *ranks);

/* Announces to the other processes that this one has failed with `err`, unless they know; changes err to ERR_REPORTED if
 * another process prints it. Must be called once before a failed process ends. */
void ranks_leave(struct ranks *ranks, struct err *err);

/* Exchanges the status only. *asked, if not NULL: whether any process requests a stop. */
int ranks_agree(struct ranks *ranks, bool asks, bool *asked, struct err *err);

/* Exchanges the status like ranks_agree, and fails in all processes unless `fingerprint`, which describes the caller's next
 * work, is equal in all. */
int ranks_agree_on(struct ranks *ranks, uint64_t fingerprint, bool asks, bool *asked, struct err *err);

/* Copies the bytes of process 0 to all processes. */
int ranks_broadcast(struct ranks *ranks, void *data, size_t bytes, struct err *err);
/* Shares an array (all-gather): each process contributes its part of an array of bytes; afterwards each has the whole array. */
int ranks_share(struct ranks *ranks, void *data, const size_t *cut, struct err *err);
/* Shares an array without exchanging the status; must directly follow ranks_agree_on. */
int ranks_share_agreed(struct ranks *ranks, void *data, const size_t *cut, struct err *err);
/* Collects an array (gather): like ranks_share, but only process 0 receives the whole array. */
int ranks_collect(struct ranks *ranks, void *data, const size_t *cut, struct err *err);

/* Sums of floats by parts. Each process receives the sum over its own part,
 *
 *     sum[i] = (..((start + values of process 0) + values of process 1) .. + values of process givers - 1)
 *
 * each `+` rounded once; start is sum[i], or omitted with `anew`. values: [cut[size]], read in processes below `givers` only;
 * sum: [cut[rank + 1] - cut[rank]], may alias this process's own part of values. The bytes are those of a single process that
 * adds the same values one after the other. */
int ranks_fold(struct ranks *ranks, const float *values, int givers, const size_t *cut, float *sum, bool anew,
               struct err *err);

/* Computes `cut` for `count` items, in multiples of `grain`, as evenly as possible. */
void ranks_cut(const struct ranks *ranks, size_t count, size_t grain, size_t *cut);

#endif
