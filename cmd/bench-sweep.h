/* moe-bench sweep: measures the cost of a forward over M tokens relative to one over a single token.
 *
 * Reads:  a model
 * Writes: a table, or a JSON object that moe-bench replay accepts as a cost table
 * Exit:   0 done, 2 trouble */
#ifndef MOE_CMD_BENCH_SWEEP_H
#define MOE_CMD_BENCH_SWEEP_H

#include "common/cli/command.h"
#include "common/session/session.h"

struct sweep_args {
    struct session_options session;
    const char *rows, *output;
    int prefix;
    double seconds;
    uint64_t seed;
    int logits, nodes;
    bool json;
};
extern const struct opt sweep_options[];
extern const struct sweep_args sweep_defaults;
int bench_sweep(const void *arguments, const struct console *console, struct err *err);

#endif
