/* Runs another program until it ends. The program does not outlive this process: a signal that ends this process takes
 * effect only after the program's process group has been killed. */
#ifndef MOE_BENCH_CHILD_H
#define MOE_BENCH_CHILD_H

#include "common/base/err.h"

struct child {
    const char *const *words;           /* path of the program and its arguments, ending with NULL */
    const char *folder;                 /* working directory; NULL: the current one */
    int input, output, errors;          /* descriptors of the program; -1: /dev/null, for errors: this process's stderr */
    double seconds;                     /* time after which the program is killed, as if it had exited with 1; INFINITY: no
                                         * limit */
};

/* Runs the program. *status: as from waitpid; exit status 127: the program could not be started. */
int child_run(const struct child *child, int *status, struct err *err);

/* Makes an unnamed file in `folder` that contains `text`, positioned at its beginning. The caller closes *out. */
int child_input(int *out, const char *folder, const char *text, struct err *err);

#endif
