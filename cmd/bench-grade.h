/* moe-bench grade: grades the texts of a saved stream by the reference answers of its prompts.
 *
 * Reads:  a decode or bench stream; files of prompts with answers
 * Writes: a table, or JSON lines; the bench stream with its new grades
 * Exit:   0 done, 2 trouble */
#ifndef MOE_CMD_BENCH_GRADE_H
#define MOE_CMD_BENCH_GRADE_H

#include <stdbool.h>

#include "common/cli/command.h"

struct grade_args {
    const char *input, *output, *stream;
    struct strings prompts, rules, commands;
    double seconds;
    bool json;
};
extern const struct opt grade_options[];
extern const struct operand grade_operands[];
extern const struct grade_args grade_defaults;
int bench_grade_texts(const void *arguments, const struct console *console, struct err *err);

#endif
