/* Records texts with the states of the target there (stream/feature.h): what moe-profile features does.
 *
 * A text is a prompt with the answer that it brings along (PROMPTS_ANSWERED), or that the target gives (settings.max_tokens);
 * then each turn of a chat is a text. Either way the target reads the whole text anew, as it reads a prompt, so states do not
 * depend on how the answer came about. Pieces of at most 64 tokens are all that is held of a text's states. */
#ifndef MOE_INSTRUMENTS_FEATURES_H
#define MOE_INSTRUMENTS_FEATURES_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/progress.h"
#include "common/decode/decode.h"
#include "common/model/head_states.h"
#include "common/prompts/prompts.h"
#include "common/session/session.h"
#include "common/stream/writer.h"

struct feature_profile_setup {
    const struct session *session;
    const struct decode_settings *settings;     /* max_tokens 0: texts bring their answers along */
    struct writer *writer;                      /* of a feature stream; NULL: only count, and compute no states */
    struct head_states states;                  /* FEATURES_MAX at most */
    enum dtype dtype;                           /* F32 or BF16, rounded to nearest, ties to even */
    bool all;                                   /* every token is to be learnt, not answers alone */
    int cut;                                    /* only so many tokens of a text; 0: all */
    double validation;                          /* share of the prompts that are kept apart; a prompt is or is not one of them
                                                 * whatever stands around it */
    int shard, shards;                          /* as struct profile_setup has them */
    struct progress *bar;                       /* steps by tokens; may be NULL */
    const struct stop *stop;                    /* NULL: none */
};

struct feature_totals {
    int64_t texts, validation;
    int64_t tokens, learnt;                     /* of all texts; of these, with a mask of 1 */
    int64_t left_out;                           /* texts cut so short that nothing is left to learn */
};

struct feature_profile;

int feature_profile_open(struct feature_profile **out, const struct feature_profile_setup *setup, struct err *err);
void feature_profile_close(struct feature_profile **profile);

/* Are the prompts good, as far as they can be read twice? */
int feature_profile_check(struct feature_profile *profile, struct prompts *prompts, struct err *err);

/* *ended: the stop was asked for before the last token of the last text. */
int feature_profile_run(struct feature_profile *profile, struct prompts *prompts, bool *ended, struct err *err);
const struct feature_totals *feature_profile_totals(const struct feature_profile *profile);

#endif
