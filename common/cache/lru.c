/* lru: evicts the least recently used expert, where an age counts the wants of the expert's own layer (recency.h);
 * lru-global: the same with one list over all layers. A prefetched expert counts as wanted when it arrives. */
#include "common/base/mem.h"
#include "common/cache/cache.h"
#include "common/cache/recency.h"

struct lru {
    struct cache_policy base;
    struct recency *recency;
};

static void lru_free(struct cache_policy *policy)
{
    struct lru *lru = (struct lru *)policy;
    recency_close(&lru->recency);
    mem_free(&lru);
}

static int open_as(struct cache_policy **out, const struct cache_setup *setup, bool global, struct err *err)
{
    struct lru *lru = mem_alloc(1, sizeof *lru, err);
    if (!lru)
        return -1;
    if (recency_open(&lru->recency, setup->layers, setup->experts, global, err)) {
        lru_free(&lru->base);
        return -1;
    }
    *out = &lru->base;
    return 0;
}

static int lru_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    (void)spec;
    return open_as(out, setup, false, err);
}

static int lru_global_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    (void)spec;
    return open_as(out, setup, true, err);
}

static void lru_want(struct cache_policy *policy, struct cache *cache, int layer, const int32_t *expert,
                     const int32_t *tokens, int count)
{
    (void)cache, (void)tokens;
    recency_want(((struct lru *)policy)->recency, layer, expert, count);
}

static void lru_inserted(struct cache_policy *policy, int key, int level)
{
    if (level)
        recency_touch(((struct lru *)policy)->recency, key);
}

static struct cache_value lru_value(const struct cache_policy *policy, int key)
{
    return (struct cache_value){recency_of(((const struct lru *)policy)->recency, key), 0};
}

const struct cache_policy_class cache_lru = {
    .name = "lru",
    .summary = "evicts the least recently requested expert of a layer",
    .open = lru_open,
    .want = lru_want,
    .inserted = lru_inserted,
    .value = lru_value,
    .free = lru_free,
};

const struct cache_policy_class cache_lru_global = {
    .name = "lru-global",
    .summary = "evicts the least recently requested expert of all layers",
    .open = lru_global_open,
    .want = lru_want,
    .inserted = lru_inserted,
    .value = lru_value,
    .free = lru_free,
};
