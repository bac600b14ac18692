/* Writes the command line that continues a run, quoted for a shell. */
#ifndef MOE_CLI_AGAIN_H
#define MOE_CLI_AGAIN_H

#include "common/base/text.h"
#include "common/cli/console.h"

/* Appends the command line of this run with `--resume stream` in place of its own --resume, if any. words: number of words
 * before the options: the program and its subcommand. */
int again_put(struct text *out, const struct console *console, int words, const char *stream, struct err *err);

/* Appends to an error how to continue from `stream`: that command line, or in short if it is too long. more: words on what else
 * to give, or "". */
void again_hint(struct err *err, const struct console *console, int words, const char *stream, const char *more);

#endif
