#include "cmd/decode-pool.h"

#include <string.h>

#include "common/base/mem.h"

enum { POLICIES_MAX = 32 };                 /* max policies that the prompts of a run may name */

struct pooled {
    struct decoder *decoder;
    int policy;                             /* index in pool->settings; -1: the run's own policy */
    bool used;
};

struct pooled_settings {
    char *policy;
    struct decode_settings settings;        /* the run's settings, with this policy */
};

static int add_decoder(struct decoder_pool *pool, int policy, struct err *err)
{
    struct decoder_setup setup = pool->setup;
    if (mem_grow(&pool->item, &pool->room, pool->count + 1, sizeof *pool->item, err))
        return -1;
    if (policy >= 0)
        setup.settings = &pool->settings[policy]->settings;
    setup.counts = setup.like = pool->count ? pool->item[0].decoder : NULL;
    for (size_t i = pool->count; i-- > 0; )
        setup.like = pool->item[i].policy == policy ? pool->item[i].decoder : setup.like;
    struct pooled *item = &pool->item[pool->count];
    *item = (struct pooled){.policy = policy};
    if (decoder_open(&item->decoder, &setup, err))
        return -1;
    pool->count++;
    return 0;
}

int pool_open(struct decoder_pool *pool, struct err *err)
{
    for (int i = 0; i < pool->texts; i++)
        if (add_decoder(pool, -1, err))
            return -1;
    return 0;
}

void pool_close(struct decoder_pool *pool)
{
    while (pool->count)
        decoder_close(&pool->item[--pool->count].decoder);
    while (pool->policies) {
        struct pooled_settings *settings = pool->settings[--pool->policies];
        mem_free(&settings->policy);
        mem_free(&settings);
    }
    mem_free(&pool->item);
    mem_free(&pool->settings);
}

struct decoder *pool_first(const struct decoder_pool *pool) { return pool->item[0].decoder; }

/* Copies the first `texts` items, which pool_open opened. */
void pool_decoders(const struct decoder_pool *pool, struct decoder *own[DECODERS_MAX])
{
    for (int i = 0; i < pool->texts; i++)
        own[i] = pool->item[i].decoder;
}

/* Finds the settings with this policy, or adds them. */
static int find_policy(struct decoder_pool *pool, const char *policy, int *out, struct err *err)
{
    const char *own = pool->setup.settings->policy;
    *out = -1;
    if (!policy || (own && !strcmp(policy, own)))
        return 0;
    for (size_t i = 0; i < pool->policies; i++)
        if (!strcmp(pool->settings[i]->policy, policy)) {
            *out = (int)i;
            return 0;
        }
    if (pool->one_policy)
        return err_set(err, ERR_INPUT, "\"policy\": %s", pool->one_policy);
    if (pool->policies == POLICIES_MAX)
        return err_set(err, ERR_INPUT, "\"policy\": the prompts name more than %d policies; decode them in several runs",
                       POLICIES_MAX);
    if (mem_grow(&pool->settings, &pool->policy_room, pool->policies + 1, sizeof *pool->settings, err))
        return -1;
    struct pooled_settings *made = pool->settings[pool->policies] = mem_alloc(1, sizeof *made, err);
    if (!made)
        return -1;
    *out = (int)pool->policies++;
    made->settings = *pool->setup.settings;
    made->settings.policy = made->policy = mem_string(policy, err);
    return made->policy ? 0 : -1;
}

/* Removes settings with which no decoder could be opened. */
static void drop_policy(struct decoder_pool *pool)
{
    struct pooled_settings *settings = pool->settings[--pool->policies];
    mem_free(&settings->policy);
    mem_free(&settings);
}

int pool_take(struct decoder_pool *pool, const char *policy, struct decoder **out, struct err *err)
{
    const size_t before = pool->policies;
    int wanted;
    if (find_policy(pool, policy, &wanted, err))
        return -1;
    size_t at = 0;
    while (at < pool->count && (pool->item[at].used || pool->item[at].policy != wanted))
        at++;
    if (at == pool->count && add_decoder(pool, wanted, err)) {
        if (pool->policies > before)
            drop_policy(pool);
        return wanted < 0 ? -1 : err_at(err, "\"policy\"");
    }
    pool->item[at].used = true;
    *out = pool->item[at].decoder;
    return 0;
}

void pool_return(struct decoder_pool *pool, struct decoder *decoder)
{
    for (size_t i = 0; i < pool->count; i++)
        if (pool->item[i].decoder == decoder)
            pool->item[i].used = false;
    if (pool->policies)
        decoder_free_cache(decoder);
}

bool pool_has_free(const struct decoder_pool *pool)
{
    int used = 0;
    for (size_t i = 0; i < pool->count; i++)
        used += pool->item[i].used;
    return used < pool->texts;
}
