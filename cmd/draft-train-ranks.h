/* The processes that moe-draft-train runs in: opened as asked for, or as whoever started the command says. */
#ifndef MOE_CMD_DRAFT_TRAIN_RANKS_H
#define MOE_CMD_DRAFT_TRAIN_RANKS_H

#include "common/cli/console.h"
#include "common/ranks/ranks.h"
#include "common/session/session.h"

extern const char *const ranks_words[];         /* auto, none, mpi: what --ranks takes */

/* choice: index of ranks_words. auto: several where the environment says that mpirun, or a launcher like it, started
 * several. */
int draft_train_ranks_open(struct ranks **out, int choice, struct err *err);

/* Each process its share of the processors, unless a number of threads is asked for; and no two threads pinned to one. */
int draft_train_ranks_threads(struct session_options *options, const struct ranks *ranks, struct err *err);

/* Refuses what several processes cannot all read: what is no file, and standard input, which is read where `implied` and
 * nothing is named. */
int draft_train_ranks_check(const struct ranks *ranks, const struct strings *inputs, bool implied, struct err *err);

/* The end of a process after a failure: tells the others, and says it here, before any process is gone and is taken for
 * the fault. */
void draft_train_ranks_leave(struct ranks *ranks, const struct console *console, struct err *err);

#endif
