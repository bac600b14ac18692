/* moe-bench simulate: simulates decoding on a described machine, in virtual time.
 *
 * Reads:  a machine's description; route streams
 * Writes: a table or JSON lines, labelled simulated; a route stream
 * Exit:   0 done, 2 trouble */
#ifndef MOE_CMD_BENCH_SIMULATE_H
#define MOE_CMD_BENCH_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cli/command.h"

struct simulate_args {
    const char *machine, *split, *output, *keep;
    struct strings inputs, systems, policies;
    int skew, figure, prefetch, texts, tokens, draft_length;
    double cached, host_cached;
    uint64_t seed;
    bool json, markdown, svg, force, forecasts, iterations;
};
extern const struct opt simulate_options[];
extern const struct opt_rule simulate_rules[];
extern const struct operand simulate_operands[];
extern const struct simulate_args simulate_defaults;
int bench_simulate(const void *arguments, const struct console *console, struct err *err);

#endif
