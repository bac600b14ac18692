/* ahead: what is asked for beforehand is kept until its layer has had its turn; of all others the one goes that was wanted the
 * longest time ago, per layer (recency.h). Ours, for forecasts that name experts one by one, such as the routes of a draft
 * phase: the level of a request is how many tokens are expected to want it, and a resident that is expected gives way only to
 * one that more tokens want.
 *
 * What is wanted in spite of the forecast has a slot like everything else: on demand the lowest goes. */
#include "common/base/mem.h"
#include "common/cache/cache.h"
#include "common/cache/recency.h"

struct ahead {
    struct cache_policy base;
    int experts;
    bool drafts;                /* the forward at work does */
    struct recency *recency;
    uint8_t *expected;          /* [keys] by so many tokens */
};

static void ahead_free(struct cache_policy *policy)
{
    struct ahead *a = (struct ahead *)policy;
    recency_close(&a->recency);
    mem_free(&a->expected);
    mem_free(&a);
}

static int ahead_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    size_t keys = (size_t)setup->layers * setup->experts;
    struct ahead *a = mem_alloc(1, sizeof *a, err);
    (void)spec;
    if (!a)
        return -1;
    a->experts = setup->experts;
    a->expected = mem_alloc(keys, sizeof *a->expected, err);
    if (!a->expected || recency_open(&a->recency, setup->layers, setup->experts, false, err)) {
        ahead_free(&a->base);
        return -1;
    }
    *out = &a->base;
    return 0;
}

static void ahead_asked(struct cache_policy *policy, int key, int level)
{
    ((struct ahead *)policy)->expected[key] = (uint8_t)level;
}

static bool ahead_step(struct cache_policy *policy, int tokens, enum cache_forward forward)
{
    (void)tokens;
    ((struct ahead *)policy)->drafts = forward == CACHE_DRAFTS;
    return false;
}

static void ahead_want(struct cache_policy *policy, struct cache *cache, int layer, const int32_t *expert,
                       const int32_t *tokens, int count)
{
    struct ahead *a = (struct ahead *)policy;
    (void)cache, (void)tokens;
    recency_want(a->recency, layer, expert, count);
    for (int e = 0; e < a->experts && !a->drafts; e++)
        a->expected[layer * a->experts + e] = 0;
}

static struct cache_value ahead_value(const struct cache_policy *policy, int key)
{
    const struct ahead *a = (const struct ahead *)policy;
    return (struct cache_value){a->expected[key], recency_of(a->recency, key)};
}

static bool ahead_gives(const struct cache_policy *policy, int victim, int key, int level)
{
    (void)key;
    return !level || ((const struct ahead *)policy)->expected[victim] < level;
}

const struct cache_policy_class cache_ahead = {
    .name = "ahead",
    .summary = "what forecasts ask for stays until its turn; of others the last used",
    .open = ahead_open,
    .step = ahead_step,
    .asked = ahead_asked,
    .want = ahead_want,
    .value = ahead_value,
    .gives = ahead_gives,
    .free = ahead_free,
};
