/* moe-bench tune: finds the fastest drafting options for a model on this machine.
 *
 * Reads:  a model, the drafters attached to it, prompts
 * Writes: a file of settings, for --settings of moe-decode and "settings" of suites
 * Exit:   0 done, 2 trouble */
#ifndef MOE_CMD_BENCH_TUNE_H
#define MOE_CMD_BENCH_TUNE_H

#include "common/cli/command.h"
#include "common/session/session.h"

struct tune_args {
    struct session_options session;
    struct strings files;
    const char *output;
    int max_tokens, prompts;
    double seconds;
};
extern const struct opt tune_options[];
extern const struct operand tune_operands[];
extern const struct tune_args tune_defaults;
int bench_tune(const void *arguments, const struct console *console, struct err *err);

#endif
