/* The processes of a distributed moe-draft-train: as requested by --ranks, or as set by the launcher's environment. */
#ifndef MOE_CMD_DRAFT_TRAIN_RANKS_H
#define MOE_CMD_DRAFT_TRAIN_RANKS_H

#include "common/cli/console.h"
#include "common/ranks/ranks.h"
#include "common/session/session.h"

extern const char *const ranks_words[];         /* values of --ranks: auto, none, mpi */

/* choice: index of ranks_words. auto: several processes if the environment shows that mpirun, or a similar launcher, started
 * several. */
int draft_train_ranks_open(struct ranks **out, int choice, struct err *err);

/* Gives each process its share of the processors, unless the number of threads is given; pins no two threads to one processor.
 * */
int draft_train_ranks_threads(struct session_options *options, const struct ranks *ranks, struct err *err);

/* Refuses inputs that several processes cannot all read: pipes, and standard input, which is also read if `implied` and no
 * input is named. */
int draft_train_ranks_check(const struct ranks *ranks, const struct strings *inputs, bool implied, struct err *err);

/* Ends a process after a failure. Informs the other processes and prints the error first, so that a process that has already
 * gone is not reported as the cause. */
void draft_train_ranks_leave(struct ranks *ranks, const struct console *console, struct err *err);

#endif
