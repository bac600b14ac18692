/* lfu: evicts the expert that the fewest forwards have wanted since the run began; among equal ones the least recently used,
 * per layer (recency.h). Counts survive eviction. */
#include "common/base/mem.h"
#include "common/cache/cache.h"
#include "common/cache/recency.h"

struct lfu {
    struct cache_policy base;
    int keys, experts;
    int64_t *count;             /* [keys] number of forwards that wanted the expert */
    struct recency *recency;
};

static void lfu_free(struct cache_policy *policy)
{
    struct lfu *lfu = (struct lfu *)policy;
    mem_free(&lfu->count);
    recency_close(&lfu->recency);
    mem_free(&lfu);
}

static int lfu_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    struct lfu *lfu = mem_alloc(1, sizeof *lfu, err);
    (void)spec;
    if (!lfu)
        return -1;
    lfu->experts = setup->experts;
    lfu->keys = setup->layers * setup->experts;
    lfu->count = mem_alloc(lfu->keys, sizeof *lfu->count, err);
    if (!lfu->count || recency_open(&lfu->recency, setup->layers, setup->experts, false, err)) {
        lfu_free(&lfu->base);
        return -1;
    }
    *out = &lfu->base;
    return 0;
}

static void lfu_want(struct cache_policy *policy, struct cache *cache, int layer, const int32_t *expert,
                     const int32_t *tokens, int count)
{
    struct lfu *lfu = (struct lfu *)policy;
    (void)cache, (void)tokens;
    for (int i = 0; i < count; i++)
        lfu->count[layer * lfu->experts + expert[i]]++;
    recency_want(lfu->recency, layer, expert, count);
}

static struct cache_value lfu_value(const struct cache_policy *policy, int key)
{
    const struct lfu *lfu = (const struct lfu *)policy;
    return (struct cache_value){lfu->count[key], recency_of(lfu->recency, key)};
}

static bool lfu_weights(const struct cache_policy *policy, double *weight)
{
    const struct lfu *lfu = (const struct lfu *)policy;
    for (int key = 0; key < lfu->keys; key++)
        weight[key] = (double)lfu->count[key];
    return true;
}

const struct cache_policy_class cache_lfu = {
    .name = "lfu",
    .summary = "evicts the expert requested the fewest times",
    .open = lfu_open,
    .want = lfu_want,
    .value = lfu_value,
    .weights = lfu_weights,
    .free = lfu_free,
};
