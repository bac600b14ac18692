/* Records training texts (examples.h) with the target's hidden states (stream/feature.h), for moe-profile features.
 *
 * The target reads each text as it would read a prompt, so the states do not depend on how the answer was decoded. Only the
 * states of a piece of at most 64 tokens are in memory at a time. */
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
    struct writer *writer;                      /* writer of a feature stream; NULL: only count, and compute no states */
    struct head_states states;                  /* at most FEATURES_MAX states */
    enum dtype dtype;                           /* F32, or BF16 rounded to nearest, ties to even */
    struct progress *bar;                       /* advances by tokens; may be NULL */
};

struct feature_profile;

int feature_profile_open(struct feature_profile **out, const struct feature_profile_setup *setup, struct err *err);
void feature_profile_close(struct feature_profile **profile);

/* Checks all prompts, as far as their input can be read twice. */
int feature_profile_check(struct feature_profile *profile, struct prompts *prompts, struct err *err);

/* Reads and records all texts. *ended: a stop was requested before the last token of the last text. */
int feature_profile_run(struct feature_profile *profile, struct prompts *prompts, bool *ended, struct err *err);
const struct examples_totals *feature_profile_totals(const struct feature_profile *profile);

#endif
