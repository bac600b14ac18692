/* Records texts to learn from (examples.h) with the states of the target there (stream/feature.h): what moe-profile features
 * does.
 *
 * The target reads each text anew, as it reads a prompt, so states do not depend on how the answer came about. Pieces of at
 * most 64 tokens are all that is held of a text's states. */
#ifndef MOE_INSTRUMENTS_FEATURES_H
#define MOE_INSTRUMENTS_FEATURES_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/progress.h"
#include "common/instruments/examples.h"
#include "common/model/head_states.h"
#include "common/stream/writer.h"

struct feature_profile_setup {
    struct examples_setup examples;
    struct writer *writer;                      /* of a feature stream; NULL: only count, and compute no states */
    struct head_states states;                  /* FEATURES_MAX at most */
    enum dtype dtype;                           /* F32 or BF16, rounded to nearest, ties to even */
    struct progress *bar;                       /* steps by tokens; may be NULL */
};

struct feature_profile;

int feature_profile_open(struct feature_profile **out, const struct feature_profile_setup *setup, struct err *err);
void feature_profile_close(struct feature_profile **profile);

/* Are the prompts good, as far as they can be read twice? */
int feature_profile_check(struct feature_profile *profile, struct prompts *prompts, struct err *err);

/* *ended: the stop was asked for before the last token of the last text. */
int feature_profile_run(struct feature_profile *profile, struct prompts *prompts, bool *ended, struct err *err);
const struct examples_totals *feature_profile_totals(const struct feature_profile *profile);

#endif
