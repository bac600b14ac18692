/* Runs the user's command to decide whether a text is right (grading.h describes the call). */
#ifndef MOE_BENCH_JUDGE_H
#define MOE_BENCH_JUDGE_H

#include <stdbool.h>

#include "common/base/err.h"

/* Runs the command. input: its standard input, passed through an unnamed file in `folder`. seconds: see child.h. */
int judge_ask(const char *command, const char *input, double seconds, const char *folder, bool *right, struct err *err);

#endif
