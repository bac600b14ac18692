/* Records where prompts and answers are routed: what moe-profile does.
 *
 * Every forward becomes `route` records (stream/route.h): a prompt in pieces of at most 64 tokens, then one record an
 * iteration. Routing mass is always summed over the tokens of a record; probabilities, logits and hidden states of each
 * token are recorded on request. Of a verified draft those rows are marked accepted whose forward would have happened
 * without a draft, too: so the accepted tokens of a text are the same whatever drafted it, even where it was cut. */
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
    const struct decode_settings *settings;     /* max_tokens 0: prompts alone */
    const struct budget *budget;                /* NULL: none */
    struct writer *writer;                      /* of a route stream; NULL: only count */
    bool probs, logits, hidden;                 /* record these, too */
    int shard, shards;                          /* takes the prompts number shard, shard + shards, ..., from 1; 1, 1: all */
    struct progress *bar;                       /* steps by tokens; may be NULL */
    const struct stop *stop;                    /* NULL: none */
};

struct profile;

/* Of a model without experts only logits and hidden states can be recorded; anything else is an error. */
int profile_open(struct profile **out, const struct profile_setup *setup, struct err *err);

/* Are the prompts good, as far as they can be read twice? */
int profile_check(struct profile *profile, struct prompts *prompts, struct err *err);

/* *ended: the stop was asked for before the last token of the last prompt. */
int profile_run(struct profile *profile, struct prompts *prompts, bool *ended, struct err *err);
const struct route_counts *profile_counts(const struct profile *profile);       /* NULL: the model has no experts */
int profile_texts(const struct profile *profile);          /* prompts, each turn of a chat by itself */
void profile_close(struct profile **profile);

/* "route,probs,hidden" into the setup's flags; "3/8" into shard and shards. */
int profile_parse_record(struct profile_setup *setup, const char *words, struct err *err);
int profile_parse_shard(const char *text, int *shard, int *shards, struct err *err);

#endif
