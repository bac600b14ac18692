/* Training texts: prompts with their own answers (PROMPTS_ANSWERED), or with answers of the target (settings.max_tokens,
 * PROMPTS_ASK_AGAIN); then each turn of a chat is a text. A text ends with the last token to be learnt. moe-profile features
 * records these texts, and moe-draft-train trains on them. */
#ifndef MOE_INSTRUMENTS_EXAMPLES_H
#define MOE_INSTRUMENTS_EXAMPLES_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/decode/decode.h"
#include "common/prompts/prompts.h"
#include "common/session/session.h"

struct examples_setup {
    const struct session *session;
    const struct decode_settings *settings;     /* max_tokens 0: texts contain their answers */
    bool all;                                   /* learn every token, not only answers */
    int cut;                                    /* maximum tokens of a text; 0: all */
    double validation;                          /* share of prompts for validation; the choice of a prompt depends on the
                                                 * prompt alone */
    const struct stop *stop;                    /* NULL: none */
};

/* One text. Valid until the next one. */
struct example {
    const char *id, *task;                      /* task: NULL if there is none */
    const char *where;                          /* "file:line" */
    const int32_t *token;                       /* [tokens] */
    const uint8_t *mask;                        /* [tokens] 1: to be learnt; the last element is 1 */
    int tokens, prompt_tokens, learnt;          /* prompt_tokens: number of tokens before the first token to be learnt */
    bool validation;
};

struct examples_totals {
    int64_t texts, validation;
    int64_t tokens, learnt;                     /* tokens: number of tokens of all texts; learnt: number of tokens to be
                                                 * learnt */
    int64_t left_out;                           /* texts truncated so short that no token to learn is left */
};

struct examples;

/* Fails if options for answering are given although nothing is to be answered. */
int examples_check_settings(const struct decode_settings *settings, struct err *err);

int examples_open(struct examples **out, const struct examples_setup *setup, struct err *err);
void examples_close(struct examples **examples);

/* Checks all prompts, as far as their input can be read twice. */
int examples_check(struct examples *examples, struct prompts *prompts, struct err *err);

/* Passes each example to `take`. *ended: a stop was requested before the last one. */
typedef int examples_take(void *context, const struct example *example, struct err *err);
int examples_run(struct examples *examples, struct prompts *prompts, examples_take *take, void *context, bool *ended,
                 struct err *err);
const struct examples_totals *examples_totals(const struct examples *examples);

#endif
