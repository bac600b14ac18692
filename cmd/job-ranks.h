/* The processes of a job: as requested by --ranks, or as set by the launcher's environment. */
#ifndef MOE_CMD_JOB_RANKS_H
#define MOE_CMD_JOB_RANKS_H

#include "common/cli/console.h"
#include "common/ranks/ranks.h"
#include "common/session/session.h"

enum { RANKS_AUTO, RANKS_NONE, RANKS_MPI };
extern const char *const ranks_words[];         /* values of --ranks in this order: auto, none, mpi */

/* Opens the processes of the job. choice: index of ranks_words. auto: several processes if the environment shows that mpirun,
 * or a similar launcher, started several. */
int job_ranks_open(struct ranks **out, int choice, struct err *err);

/* Makes sure that only process 0 prints an error that all processes find independently before they are connected; must be
 * called before printing the error. Returns immediately in process 0. In the others, waits until the launcher ends them, which
 * happens after process 0 has ended; returns after some seconds in case process 0 does not find the error. */
void job_ranks_leave_fault_to_first(void);

/* Assigns each process its share of the processors, unless the number of threads is given; never pins two threads to one
 * processor. */
int job_ranks_threads(struct session_options *options, const struct ranks *ranks, struct err *err);

/* Refuses inputs that several processes cannot all read: pipes, and standard input, which is also read if `implied` and no
 * input is named. */
int job_ranks_check(const struct ranks *ranks, const struct strings *inputs, bool implied, struct err *err);

/* Informs the other processes of a failure, and prints the error unless another process prints it. Must be called before a
 * failed process ends, so that the others report its error and not its disappearance. */
void job_ranks_leave(struct ranks *ranks, const struct console *console, struct err *err);

#endif
