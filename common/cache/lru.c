/* lru: the expert goes that was wanted the longest time ago; one that was fetched beforehand counts as wanted when it came. */
#include "common/base/mem.h"
#include "common/cache/cache.h"

struct lru {
    struct cache_policy base;
    int experts;
    int64_t clock;
    int64_t *last;              /* [keys] */
};

static void lru_free(struct cache_policy *policy)
{
    struct lru *lru = (struct lru *)policy;
    mem_free(&lru->last);
    mem_free(&lru);
}

static int lru_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    struct lru *lru = mem_alloc(1, sizeof *lru, err);
    (void)spec;
    if (!lru)
        return -1;
    lru->experts = setup->experts;
    lru->last = mem_alloc((size_t)setup->layers * setup->experts, sizeof *lru->last, err);
    if (!lru->last) {
        lru_free(&lru->base);
        return -1;
    }
    *out = &lru->base;
    return 0;
}

static void lru_want(struct cache_policy *policy, struct cache *cache, int layer, const int32_t *expert,
                     const int32_t *tokens, int count)
{
    struct lru *lru = (struct lru *)policy;
    (void)cache, (void)tokens;
    for (int i = 0; i < count; i++)
        lru->last[layer * lru->experts + expert[i]] = ++lru->clock;
}

static void lru_inserted(struct cache_policy *policy, int key, int level)
{
    struct lru *lru = (struct lru *)policy;
    if (level)
        lru->last[key] = ++lru->clock;
}

static struct cache_value lru_value(const struct cache_policy *policy, int key)
{
    return (struct cache_value){((const struct lru *)policy)->last[key], 0};
}

const struct cache_policy_class cache_lru = {
    .name = "lru",
    .summary = "the expert goes that was wanted the longest time ago",
    .open = lru_open,
    .want = lru_want,
    .inserted = lru_inserted,
    .value = lru_value,
    .free = lru_free,
};
