/* moe-draft-train eval: measures the accuracy of a draft head on held-out texts. */
#ifndef MOE_CMD_DRAFT_TRAIN_EVAL_H
#define MOE_CMD_DRAFT_TRAIN_EVAL_H

#include "common/cli/command.h"
#include "common/session/session.h"

struct eval_args {
    struct session_options session;
    struct session_prompts prompts;
    struct strings inputs;
    const char *head, *drafting, *tree, *output;
    int length, cut, max_tokens;
    bool decode, validation, text, json, csv;
};

extern const struct opt eval_options[];
extern const struct opt_rule eval_rules[];
extern const struct operand eval_operands[];
extern const struct eval_args eval_defaults;

int draft_train_eval(const void *arguments, const struct console *console, struct err *err);

#endif
