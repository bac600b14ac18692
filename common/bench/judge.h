/* Asks a command of the user's whether a text is right (grading.h says how it is called). */
#ifndef MOE_BENCH_JUDGE_H
#define MOE_BENCH_JUDGE_H

#include <stdbool.h>

#include "common/base/err.h"

/* input: what the command reads on standard input, by way of a nameless file in `folder`; see child.h. */
int judge_ask(const char *command, const char *input, double seconds, const char *folder, bool *right, struct err *err);

#endif
