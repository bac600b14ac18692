/* What the subcommands of moe-draft-train are given: a feature stream, or texts. */
#ifndef MOE_CMD_DRAFT_TRAIN_INPUTS_H
#define MOE_CMD_DRAFT_TRAIN_INPUTS_H

#include "common/base/err.h"
#include "common/cli/opt.h"

/* The feature stream among these operands; *path is NULL where they are texts, or `prompts` were given by options. A stream
 * has no other input with it, or, where `several`, other streams; and is what standard input has. */
int inputs_find_stream(const struct strings *inputs, const struct strings *prompts, bool several, const char **path,
                       struct err *err);

#endif
