/* The wish that a run ends soon, at a point where what it wrote so far is of use: after a token, between two prompts. A signal
 * handler sets it (cli/signals.h); who works for long asks. */
#ifndef MOE_BASE_STOP_H
#define MOE_BASE_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct stop {
    atomic_int signal;          /* which one came; 0: none */
    int wake;                   /* a descriptor that can be read once it came, for who waits for input; -1: none */
};

/* stop may be NULL: nobody can wish. */
static inline bool stop_asked(const struct stop *stop) { return stop && atomic_load(&stop->signal); }

#endif
