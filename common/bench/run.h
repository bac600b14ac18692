/* Runs a suite: every prompt under every setting, in one process, with each model mapped once, and writes the measurements
 * as a bench stream (stream/bench.h). Summaries are made from the stream later. */
#ifndef MOE_BENCH_RUN_H
#define MOE_BENCH_RUN_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/bench/suite.h"
#include "common/cli/console.h"
#include "common/prompts/shard.h"
#include "common/session/session.h"

struct bench_setup {
    const struct suite *suite;
    struct session_options session;         /* its model is ignored: the suite names the models */
    const char *output;                     /* "-": standard output */
    bool keep;                              /* finished samples survive signals and failures, in a file beside the output */
    const char *signal_text;                /* printed when a signal ends a run whose samples are kept; NULL: nothing */
    bool *kept;                             /* receives whether a failed run left its finished samples; NULL: not wanted */
    const char *resume;                     /* stream of an interrupted run to resume (implies keep); NULL: none */
    const char *note;                       /* printed once all settings are known to work; NULL: nothing */
    struct shard shard;                     /* runs this part of the suite's prompts only */
    bool force;                             /* accept rank streams of a model with another shape or tokenizer */
    const struct console *console;
};

/* Runs the suite and writes its stream. */
int bench_run(const struct bench_setup *setup, struct err *err);

#endif
