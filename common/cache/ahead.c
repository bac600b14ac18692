/* ahead: a requested expert is kept until its layer has had its turn; among all other residents the least recently used one
 * is evicted first, per layer (recency.h). moekit's own, for forecasts that name single experts, such as the routes of a draft
 * phase: the level of a request is the number of tokens that are expected to want the expert, and an expected resident is
 * evicted only for an expert that more tokens want.
 *
 * An expert that the forecast missed gets a slot all the same: on demand the resident with the lowest value is evicted. */
#include "common/base/mem.h"
#include "common/cache/cache.h"
#include "common/cache/recency.h"

struct ahead {
    struct cache_policy base;
    int experts;
    bool drafts;                /* the current forward is a draft's */
    struct recency *recency;
    uint8_t *expected;          /* [keys] number of tokens expected to want each expert */
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

static bool ahead_may_evict(const struct cache_policy *policy, int victim, int key, int level)
{
    (void)key;
    return !level || ((const struct ahead *)policy)->expected[victim] < level;
}

const struct cache_policy_class cache_ahead = {
    .name = "ahead",
    .summary = "keeps experts named by forecasts until their layer's turn, and of the others the last used",
    .open = ahead_open,
    .step = ahead_step,
    .asked = ahead_asked,
    .want = ahead_want,
    .value = ahead_value,
    .may_evict = ahead_may_evict,
    .free = ahead_free,
};
