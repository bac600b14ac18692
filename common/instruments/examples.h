/* Texts to learn from: prompts with the answers that they bring along (PROMPTS_ANSWERED), or that the target gives
 * (settings.max_tokens, PROMPTS_ASK_AGAIN); then each turn of a chat is a text. A text ends with the last token that is to be
 * learnt of it. What moe-profile features records and moe-draft-train learns from are these. */
#ifndef MOE_INSTRUMENTS_EXAMPLES_H
#define MOE_INSTRUMENTS_EXAMPLES_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/decode/decode.h"
#include "common/prompts/prompts.h"
#include "common/session/session.h"

struct examples_setup {
    const struct session *session;
    const struct decode_settings *settings;     /* max_tokens 0: texts bring their answers along */
    bool all;                                   /* every token is to be learnt, not answers alone */
    int cut;                                    /* only so many tokens of a text; 0: all */
    double validation;                          /* share of the prompts that are kept apart; a prompt is or is not one of them
                                                 * whatever is around it */
    int shard, shards;                          /* as struct profile_setup has them */
    const struct stop *stop;                    /* NULL: none */
};

/* Valid until the next one. */
struct example {
    const char *id, *task;                      /* task: NULL where there is none */
    const char *where;                          /* "file:line" */
    const int32_t *token;                       /* [tokens] */
    const uint8_t *mask;                        /* [tokens] 1: to be learnt; the last is */
    int tokens, prompt_tokens, learnt;          /* prompt_tokens: in front of the first that is to be learnt */
    bool validation;
};

struct examples_totals {
    int64_t texts, validation;
    int64_t tokens, learnt;                     /* of all texts; of these, with a mask of 1 */
    int64_t left_out;                           /* texts cut so short that nothing is left to learn */
};

struct examples;

/* Of options that say how to answer, those that are given where nothing is answered are refused. */
int examples_check_settings(const struct decode_settings *settings, struct err *err);

int examples_open(struct examples **out, const struct examples_setup *setup, struct err *err);
void examples_close(struct examples **examples);

/* Are the prompts good, as far as they can be read twice? */
int examples_check(struct examples *examples, struct prompts *prompts, struct err *err);

/* Hands each example to `take`. *ended: the stop was asked for before the last of them. */
typedef int examples_take(void *context, const struct example *example, struct err *err);
int examples_run(struct examples *examples, struct prompts *prompts, examples_take *take, void *context, bool *ended,
                 struct err *err);
const struct examples_totals *examples_totals(const struct examples *examples);

#endif
