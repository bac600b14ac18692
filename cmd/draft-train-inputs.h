/* What the subcommands of moe-draft-train are given: a feature stream, or texts. */
#ifndef MOE_CMD_DRAFT_TRAIN_INPUTS_H
#define MOE_CMD_DRAFT_TRAIN_INPUTS_H

#include "common/base/err.h"
#include "common/cli/opt.h"

/* The last feature stream among these operands; *path is NULL where they are texts, or `prompts` were given by options. A
 * stream has other streams with it at most, and is what standard input has. */
int inputs_find_stream(const struct strings *inputs, const struct strings *prompts, const char **path, struct err *err);

#endif
