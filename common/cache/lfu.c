/* lfu: the expert goes that was wanted the fewest times, by forwards, since the run began; of equal ones the one wanted the
 * longest time ago. Counts outlive the eviction: what is known of an expert is known of it wherever it is. */
#include "common/base/mem.h"
#include "common/cache/cache.h"

struct lfu {
    struct cache_policy base;
    int keys, experts;
    int64_t clock;
    struct cache_value *use;    /* [keys] so often, and when at last */
};

static void lfu_free(struct cache_policy *policy)
{
    struct lfu *lfu = (struct lfu *)policy;
    mem_free(&lfu->use);
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
    lfu->use = mem_alloc(lfu->keys, sizeof *lfu->use, err);
    if (!lfu->use) {
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
    for (int i = 0; i < count; i++) {
        struct cache_value *use = &lfu->use[layer * lfu->experts + expert[i]];
        use->first++;
        use->second = ++lfu->clock;
    }
}

static struct cache_value lfu_value(const struct cache_policy *policy, int key)
{
    return ((const struct lfu *)policy)->use[key];
}

static bool lfu_weights(const struct cache_policy *policy, double *weight)
{
    const struct lfu *lfu = (const struct lfu *)policy;
    for (int key = 0; key < lfu->keys; key++)
        weight[key] = lfu->use[key].first;
    return true;
}

const struct cache_policy_class cache_lfu = {
    .name = "lfu",
    .summary = "the expert goes that was wanted the fewest times",
    .open = lfu_open,
    .want = lfu_want,
    .value = lfu_value,
    .weights = lfu_weights,
    .free = lfu_free,
};
