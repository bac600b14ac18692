/* A guard: a child process that outlives its parent, one process of a job, and acts if the parent is killed.
 *
 * The other processes name a process that dies, but only after all have met in ranks_open; before that the guard prints the
 * name. If mpirun of Open MPI has ended all its processes and still does not end, the guard kills mpirun: mpirun with PMIx 4.2
 * deadlocks in its own end if a process dies while it connects to mpirun in MPI_Init. */
#ifndef MOE_RANKS_GUARD_H
#define MOE_RANKS_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

/* Starts the guard of this process, number `rank` of `size`. ends_launcher: the parent of this process is the launcher of all
 * processes, and may be killed as above. Must be called at most once, before threads exist. */
int guard_start(int rank, int size, bool ends_launcher, struct err *err);

/* Announces to the guard that from now on the other processes print the name if this process dies. */
void guard_met(void);

/* Returns when a process started, in the system's count; 0: there is none, or it has ended and its parent has not collected
 * it. */
uint64_t guard_start_time(int64_t id);

#endif
