/* A request to end a run soon, at a point where its output so far is usable: after a token, or between two prompts. A signal
 * handler sets it (cli/signals.h); long loops poll it. */
#ifndef MOE_BASE_STOP_H
#define MOE_BASE_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct stop {
    atomic_int signal;          /* number of the signal; 0: none */
    int wake;                   /* a descriptor that becomes readable with the request, for poll(2); -1: none */
};

/* stop may be NULL: never requested. */
static inline bool stop_asked(const struct stop *stop) { return stop && atomic_load(&stop->signal); }

#endif
