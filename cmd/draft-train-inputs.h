/* The inputs of moe-draft-train's subcommands: feature streams, or texts. */
#ifndef MOE_CMD_DRAFT_TRAIN_INPUTS_H
#define MOE_CMD_DRAFT_TRAIN_INPUTS_H

#include "common/base/err.h"
#include "common/cli/opt.h"

/* Stores the last feature stream among the operands in *path; NULL if they are texts, or if options give `prompts`. Streams and
 * texts cannot be mixed; standard input must be a stream. */
int inputs_find_stream(const struct strings *inputs, const struct strings *prompts, const char **path, struct err *err);

#endif
