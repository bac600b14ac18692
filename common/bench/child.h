/* Runs another program to its end. It does not outlive this process: of the signals that end it, one that comes meanwhile takes
 * effect when the program's process group has been killed. */
#ifndef MOE_BENCH_CHILD_H
#define MOE_BENCH_CHILD_H

#include "common/base/err.h"

struct child {
    const char *const *words;           /* the program, by its path, and its arguments; NULL after the last */
    const char *folder;                 /* where it runs; NULL: here */
    int input, output, errors;          /* its descriptors; -1: /dev/null, of errors: those of this process */
    double seconds;                     /* it is killed after so long, as if it had exited with 1; INFINITY: never */
};

/* *status: as waitpid has it; exit status 127: the program could not be started. */
int child_run(const struct child *child, int *status, struct err *err);

/* A nameless file in `folder` that holds the text, at its beginning, for the caller to close. */
int child_input(int *out, const char *folder, const char *text, struct err *err);

#endif
