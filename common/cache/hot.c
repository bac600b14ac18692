/* hot: evicts the expert that was wanted least often of late: each forward that wants an expert adds one to its count, and
 * counts halve every `half` forwards. The policy begins with the counts of earlier runs (pins with weights), prefetches the
 * best of those experts before anything is decoded, and exports its counts (cache_weights), so that a hot set survives runs.
 *
 * No count is ever halved: the increment grows instead, and everything is scaled back before it leaves the range of a
 * double. */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cache/cache.h"

#define SCALE_LIMIT 0x1p500

struct hot {
    struct cache_policy base;
    int keys, experts, half, asked;
    double one;                 /* current increment of a forward */
    double *heat;               /* [keys] counts */
    int32_t *first;             /* [asked] experts to prefetch at the start, best first */
};

static void hot_free(struct cache_policy *policy)
{
    struct hot *hot = (struct hot *)policy;
    mem_free(&hot->heat);
    mem_free(&hot->first);
    mem_free(&hot);
}

static int hot_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    int half, keys = setup->layers * setup->experts;
    if (spec_int(spec, "half", 1000, 1, 1 << 30, &half, err))
        return -1;
    struct hot *hot = mem_alloc(1, sizeof *hot, err);
    if (!hot)
        return -1;
    *hot = (struct hot){.keys = keys, .experts = setup->experts, .half = half, .one = 1,
                        .asked = setup->pinned < setup->slots ? setup->pinned : setup->slots};
    hot->heat = mem_alloc(keys, sizeof *hot->heat, err);
    hot->first = mem_alloc(hot->asked, sizeof *hot->first, err);
    if (!hot->heat || !hot->first) {
        hot_free(&hot->base);
        return -1;
    }
    if (hot->asked)
        memcpy(hot->first, setup->pins, hot->asked * sizeof *hot->first);
    for (int i = 0; i < setup->pinned; i++)
        hot->heat[setup->pins[i]] = setup->pin_weight ? setup->pin_weight[i] : 0;
    *out = &hot->base;
    return 0;
}

static void hot_start(struct cache_policy *policy, struct cache *cache)
{
    const struct hot *hot = (const struct hot *)policy;
    for (int i = 0; i < hot->asked; i++)
        cache_ask(cache, hot->first[i] / hot->experts, hot->first[i] % hot->experts, 1);
}

static bool hot_step(struct cache_policy *policy, int tokens, enum cache_forward forward)
{
    struct hot *hot = (struct hot *)policy;
    (void)tokens, (void)forward;
    hot->one *= exp2(1.0 / hot->half);
    if (hot->one < SCALE_LIMIT)
        return false;
    for (int key = 0; key < hot->keys; key++)
        hot->heat[key] /= hot->one;
    hot->one = 1;
    return true;
}

static void hot_want(struct cache_policy *policy, struct cache *cache, int layer, const int32_t *expert,
                     const int32_t *tokens, int count)
{
    struct hot *hot = (struct hot *)policy;
    (void)cache, (void)tokens;
    for (int i = 0; i < count; i++)
        hot->heat[layer * hot->experts + expert[i]] += hot->one;
}

/* Returns the heat as an integer: the bit patterns of doubles >= 0 have the order of their values. */
static struct cache_value hot_value(const struct cache_policy *policy, int key)
{
    int64_t bits;
    memcpy(&bits, &((const struct hot *)policy)->heat[key], sizeof bits);
    return (struct cache_value){bits, 0};
}

/* Returns whether a resident may be evicted: by a prefetch only if it is less hot, because a hot set larger than the cache
 * would keep evicting itself. */
static bool hot_may_evict(const struct cache_policy *policy, int victim, int key, int level)
{
    const struct hot *hot = (const struct hot *)policy;
    return !level || hot->heat[victim] < hot->heat[key];
}

static bool hot_weights(const struct cache_policy *policy, double *weight)
{
    const struct hot *hot = (const struct hot *)policy;
    for (int key = 0; key < hot->keys; key++)
        weight[key] = hot->heat[key] / hot->one;
    return true;
}

const struct cache_policy_class cache_hot = {
    .name = "hot",
    .summary = "evicts the expert requested least often lately; begins with a hot set",
    .settings = "half=N",
    .open = hot_open,
    .start = hot_start,
    .step = hot_step,
    .want = hot_want,
    .value = hot_value,
    .may_evict = hot_may_evict,
    .weights = hot_weights,
    .free = hot_free,
};
