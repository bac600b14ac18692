/* moe-profile features: records texts with a model's hidden states, for training draft heads.
 *
 * Reads:  model, texts, and with --for a draft head
 * Writes: feature stream; a few lines on a terminal or with --text
 * Exit:   0 done, 2 trouble */
#ifndef MOE_CMD_PROFILE_FEATURES_H
#define MOE_CMD_PROFILE_FEATURES_H

#include "common/cli/command.h"
#include "common/session/session.h"

struct features_args {
    struct session_options session;
    struct session_prompts prompts;
    struct decode_settings settings;
    struct strings inputs;
    const char *layers, *head, *output;
    double validation;
    int dtype, mask, turns, cut;
    bool text, force;
};
extern const struct opt features_options[];
extern const struct opt_rule features_rules[];
extern const struct operand features_operands[];
extern const struct features_args features_defaults;
int profile_features(const void *arguments, const struct console *console, struct err *err);

#endif
