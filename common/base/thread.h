/* Threads beside the main one. Signals sent to the process are handled in the main thread; a fault of the thread's own
 * instructions (SIGBUS of a mapped file that was truncated) is handled in the thread, since a blocked one would end the process
 * without its handler. */
#ifndef MOE_BASE_THREAD_H
#define MOE_BASE_THREAD_H

#include <pthread.h>

/* The stack of every thread, also the main one (cli/run.c): attention keeps more than 1 MiB there. */
enum { THREAD_STACK_BYTES = 8 << 20 };

/* Starts a thread that runs `run` with `argument`, like pthread_create. Returns 0 or an error number. The caller joins the
 * thread. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
