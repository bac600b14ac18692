/* Option names of other programs, and their equivalents here. */
#ifndef MOE_CLI_FOREIGN_H
#define MOE_CLI_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

struct subcommand;

/* Returns whether another program has an option that is written as `word` (`length` bytes, which begin with a dash or two); the
 * error names the equivalent. */
bool foreign_option(const struct subcommand *subcommand, const char *word, size_t length, struct err *err);

#endif
