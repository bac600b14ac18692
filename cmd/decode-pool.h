/* The decoders of a run of moe-decode: one for each concurrent text, and for each policy that prompts name ("policy"), opened
 * when they are first needed and kept until the end. Decoders of one policy are alike. */
#ifndef MOE_CMD_DECODE_POOL_H
#define MOE_CMD_DECODE_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "common/decode/decode.h"

struct pooled;

struct decoder_pool {
    struct decoder_setup setup;             /* of the run's own policy; what it points to is borrowed */
    int texts;                              /* max concurrent texts */
    const char *one_policy;                 /* why prompts cannot name other policies; NULL: they can */
    struct pooled *item;
    size_t count, room;
    struct pooled_settings **settings;      /* of other policies */
    size_t policies, policy_room;
};

/* Opens the decoders of the run's own policy. *pool: setup, texts and one_policy are set; close it also after a failure. */
int pool_open(struct decoder_pool *pool, struct err *err);
void pool_close(struct decoder_pool *pool);

/* Returns the first decoder of the run's own policy, which counts equal prompts for all. */
struct decoder *pool_first(const struct decoder_pool *pool);

/* Copies the `texts` decoders of the run's own policy. */
void pool_own(const struct decoder_pool *pool, struct decoder *own[DECODERS_MAX]);

/* Sets *out to a decoder of this policy (NULL: the run's own) that is not in use. The caller returns it with pool_return
 * before it takes more than `texts`. An impossible policy is an error that names it. */
int pool_take(struct decoder_pool *pool, const char *policy, struct decoder **out, struct err *err);
void pool_return(struct decoder_pool *pool, struct decoder *decoder);
bool pool_has_free(const struct decoder_pool *pool);

#endif
