/* moe-bench ab: compares the speed of two builds, which run the same suite alternately.
 *
 * Reads:  a suite, and the files that it names
 * Writes: a table or JSON lines
 * Exit:   0 not slower, 1 slower, 2 trouble, 125 undecided */
#ifndef MOE_CMD_BENCH_AB_H
#define MOE_CMD_BENCH_AB_H

#include <stdbool.h>

#include "common/cli/command.h"

struct ab_args {
    struct strings builds;
    const char *suite, *limit, *device, *isa, *cache_experts, *keep, *output;
    int threads, rounds;
    bool json;
};
extern const struct opt ab_options[];
extern const struct operand ab_operands[];
extern const struct ab_args ab_defaults;
int bench_ab(const void *arguments, const struct console *console, struct err *err);

#endif
