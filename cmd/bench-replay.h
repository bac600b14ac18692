/* moe-bench replay: runs policies over a stream recorded by moe-decode --record drafts, without a model.
 *
 * Reads:  a decode stream with drafts; a cost table
 * Writes: a table, or JSON lines
 * Exit:   0 done, 2 trouble */
#ifndef MOE_CMD_BENCH_REPLAY_H
#define MOE_CMD_BENCH_REPLAY_H

#include <stdbool.h>

#include "common/cli/command.h"

struct replay_args {
    const char *stream, *output, *cost, *tree;
    struct strings policies;
    int draft_length;
    bool json, iterations;
};
extern const struct opt replay_options[];
extern const struct operand replay_operands[];
extern const struct replay_args replay_defaults;
int bench_replay(const void *arguments, const struct console *console, struct err *err);

#endif
