/* moe-bench plan: predicts the speed of a model on a machine before anything is loaded.
 *
 * Reads:  a model file's index, or a config.json; descriptions of machines; likewise draft models and heads
 * Writes: tables or JSON lines
 * Exit:   0 done, 2 trouble */
#ifndef MOE_CMD_BENCH_PLAN_H
#define MOE_CMD_BENCH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cli/command.h"

struct plan_args {
    const char *model, *cache, *output, *isa;
    struct strings machines, drafters;
    int dtype, expert_dtype, length, context, kv_format, prefix, texts, ranks, threads;
    double hits, latency, bandwidth, seconds;
    uint64_t size;
    bool json;
};
extern const struct opt plan_options[];
extern const struct opt_rule plan_rules[];
extern const struct plan_args plan_defaults;
int bench_plan(const void *arguments, const struct console *console, struct err *err);

#endif
