/* Records the routes of prompts and answers, for moe-profile. Several texts may be decoded at once; the records are those of
 * one at a time, in the same order.
 *
 * Every forward becomes `route` records (stream/route.h): pieces of a prompt of at most 64 tokens, then one record per
 * iteration. Routing mass is always summed over the tokens of a record; probabilities, logits and hidden states of each
 * token are recorded on request. Rows of a verified draft are marked accepted if they would also have been computed
 * without a draft: so the accepted tokens of a text do not depend on the drafter, even if the text was truncated. */
#ifndef MOE_INSTRUMENTS_PROFILE_H
#define MOE_INSTRUMENTS_PROFILE_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/progress.h"
#include "common/decode/decode.h"
#include "common/prompts/prompts.h"
#include "common/route/counts.h"
#include "common/session/session.h"
#include "common/stream/writer.h"

struct profile_setup {
    const struct session *session;
    const struct decode_settings *settings;     /* max_tokens 0: prompts only */
    const struct budget *budget;                /* NULL: none */
    struct writer *writer;                      /* writer of a route stream; NULL: only count */
    bool probs, logits, hidden;                 /* record these, too */
    struct progress *bar;                       /* advances by tokens; may be NULL */
    const struct stop *stop;                    /* NULL: none */
    int texts;                                  /* max concurrent texts, which share forwards; at least 1 */
};

struct profile;

/* Opens a profile. With a model without experts only logits and hidden states can be recorded; anything else is an error. */
int profile_open(struct profile **out, const struct profile_setup *setup, struct err *err);

/* Checks all prompts whose input can be read twice, and that the concurrent texts fit into memory. */
int profile_check(struct profile *profile, struct prompts *prompts, struct err *err);

/* Runs all prompts. *ended: a stop was requested before the last token of the last prompt. */
int profile_run(struct profile *profile, struct prompts *prompts, bool *ended, struct err *err);
const struct route_counts *profile_counts(const struct profile *profile);       /* NULL: the model has no experts */
int profile_texts(const struct profile *profile);          /* number of texts; each turn of a chat is one */
void profile_close(struct profile **profile);

/* Parses "route,probs,hidden" into the setup's flags. */
int profile_parse_record(struct profile_setup *setup, const char *words, struct err *err);

#endif
