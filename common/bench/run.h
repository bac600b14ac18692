/* Runs a suite: every prompt under every setting, in one process, on models that are each mapped once, and writes what
 * happened as a bench stream (stream/bench.h). Nothing is summed up here: reports are made from the stream. */
#ifndef MOE_BENCH_RUN_H
#define MOE_BENCH_RUN_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/bench/suite.h"
#include "common/cli/console.h"
#include "common/session/session.h"

struct bench_setup {
    const struct suite *suite;
    struct session_options session;         /* its model is not looked at: the suite names them */
    const char *output;                     /* "-": standard output */
    bool keep;                              /* what is finished survives signals and failures, beside the output */
    const char *farewell;                   /* said when a signal ends a run of which something is kept; NULL: nothing */
    const char *resume;                     /* take over what a run of this output left so, and keep; NULL: nothing */
    bool force;                             /* take rank streams of a model with another shape or tokenizer */
    const struct console *console;
};

int bench_run(const struct bench_setup *setup, struct err *err);

#endif
