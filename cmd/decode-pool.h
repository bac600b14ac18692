/* The decoders of a run of moe-decode. For each policy that prompts name ("policy"), there is at most one decoder per
 * concurrent text, opened when it is first needed and kept until the end. Decoders of the same policy are interchangeable. */
#ifndef MOE_CMD_DECODE_POOL_H
#define MOE_CMD_DECODE_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "common/decode/decode.h"

struct pooled;

struct decoder_pool {
    struct decoder_setup setup;             /* for the run's own policy; its pointers are borrowed */
    int texts;                              /* max concurrent texts */
    const char *one_policy;                 /* reason why prompts cannot name other policies; NULL: they can */
    struct pooled *item;
    size_t count, room;
    struct pooled_settings **settings;      /* settings of the other policies */
    size_t policies, policy_room;
};

/* Opens the decoders of the run's own policy. The caller has set setup, texts and one_policy of *pool, and must close *pool
 * also after a failure. */
int pool_open(struct decoder_pool *pool, struct err *err);
void pool_close(struct decoder_pool *pool);

/* Returns the first decoder of the run's own policy, which counts equal prompts for all decoders. */
struct decoder *pool_first(const struct decoder_pool *pool);

/* Copies the `texts` decoders of the run's own policy. */
void pool_decoders(const struct decoder_pool *pool, struct decoder *own[DECODERS_MAX]);

/* Sets *out to an unused decoder of this policy (NULL: the run's own). The caller returns decoders with pool_return, and uses
 * at most `texts` at a time. Fails for an impossible policy, with an error that names the policy. */
int pool_take(struct decoder_pool *pool, const char *policy, struct decoder **out, struct err *err);
void pool_return(struct decoder_pool *pool, struct decoder *decoder);
bool pool_has_free(const struct decoder_pool *pool);

#endif
