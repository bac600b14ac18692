/* What other programs call their options, and what to type here in their place. */
#ifndef MOE_CLI_FOREIGN_H
#define MOE_CLI_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

struct subcommand;

/* Whether another program has an option of that name (`length` bytes, no dashes); then the error says what to type here. */
bool foreign_option(const struct subcommand *subcommand, const char *name, size_t length, struct err *err);

#endif
