/* Finds the fastest drafting options for a model on this machine, for `moe-bench tune`.
 *
 * First the cost curve is measured (sweep.h). Then changes are tried in order, starting from no drafts: --draft auto, and each
 * available drafter alone with drafts of 2, 4 and 8 tokens. Each prompt is decoded with the current and then with the changed
 * options; if the change gained, all prompts are decoded again in the opposite order. A change is kept if in both orders all
 * tokens are the same and tokens/s are at least TUNE_GAIN times as many. */
#ifndef MOE_BENCH_TUNE_H
#define MOE_BENCH_TUNE_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/cli/console.h"
#include "common/cli/opt.h"
#include "common/session/session.h"

#define TUNE_GAIN 1.03

struct tune_setup {
    struct session_options session;
    struct strings prompts;             /* file names */
    int max_tokens, prompts_max;        /* maximum tokens per answer; maximum number of prompts, 0: no limit */
    double seconds;                     /* seconds for the cost curve */
    const struct console *console;      /* receives a note on each change */
};

/* Appends the file of settings to *out; session/tuned.h reads it. */
int tune_run(const struct tune_setup *setup, struct text *out, struct err *err);

#endif
