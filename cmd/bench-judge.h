/* Subcommands of moe-bench that judge measurements from saved streams, without a model.
 *
 * Reads:  two bench or decode streams (compare); a suite and streams (gate)
 * Writes: a table, JSON lines or JUnit XML
 * Exit:   0 passed, 1 failed, 2 trouble, 125 cannot judge */
#ifndef MOE_CMD_BENCH_JUDGE_H
#define MOE_CMD_BENCH_JUDGE_H

#include <stdbool.h>

#include "common/base/text.h"
#include "common/cli/command.h"
#include "common/report/measurements.h"
#include "common/report/training.h"

struct compare_args {
    const char *base, *now, *limit, *output;
    bool json;
};
extern const struct opt compare_options[];
extern const struct operand compare_operands[];
extern const struct compare_args compare_defaults;
int bench_compare(const void *arguments, const struct console *console, struct err *err);

struct gate_args {
    const char *suite, *output, *junit;
    struct strings inputs;
};
extern const struct opt gate_options[];
extern const struct operand gate_operands[];
extern const struct gate_args gate_defaults;
int bench_gate(const void *arguments, const struct console *console, struct err *err);

/* Reads measurements from streams and sorts them; without paths, reads standard input. */
int bench_gather(struct measurements *all, const struct strings *inputs, struct err *err);

/* Reads measurements as bench_gather does, or train streams if the first stream is one; then all must be train streams. */
int bench_gather_any(struct measurements *all, struct trainings *trainings, const struct strings *inputs, struct err *err);

#endif
