/* static: pins, the best experts of a rank stream or of a hot set, are never evicted; the other slots evict the least
 * recently used expert. Pins are prefetched at the start, and again when their layer had its turn without them.
 *
 * With pins in all slots this is the behaviour of llama.cpp with experts that it leaves on one device ("--override-tensor"
 * and "--n-cpu-moe"): a split made once, before any routes are known. */
#include "common/base/mem.h"
#include "common/cache/cache.h"

struct pins {
    struct cache_policy base;
    int keys, experts, pinned;
    int64_t clock;
    int64_t *last;              /* [keys] time of the last want */
    bool *pin;                  /* [keys] whether an expert is pinned */
};

static void pins_free(struct cache_policy *policy)
{
    struct pins *p = (struct pins *)policy;
    mem_free(&p->last);
    mem_free(&p->pin);
    mem_free(&p);
}

/* Returns the number of slots that pins leave free. 0 if experts can be computed elsewhere; else every wanted expert needs a
 * slot, so as many as the longest draft can want of a layer, but at most half of all slots. */
static int unpinned_slots(const struct cache_setup *setup)
{
    int64_t max = (int64_t)(setup->draft_length + 1) * setup->top_k;
    int half = setup->slots / 2 > setup->top_k ? setup->slots / 2 : setup->top_k;
    if (setup->elsewhere)
        return 0;
    if (max > setup->experts)
        max = setup->experts;
    return max < half ? (int)max : half;
}

static int pins_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    const char *rank;           /* not used here: the command that decodes has read the file already */
    int reserve, keys = setup->layers * setup->experts;
    if (spec_text(spec, "rank", NULL, &rank, err) ||
        spec_int(spec, "reserve", unpinned_slots(setup), setup->elsewhere ? 0 : setup->top_k, setup->slots, &reserve, err))
        return -1;
    if (rank && !setup->ranked)
        return err_set(err, ERR_INPUT, "static: rank: a ranking can be used only while a model decodes, not in a simulation");
    if (!setup->pinned)
        return err_set(err, ERR_INPUT, "static: no experts to pin are given; give a rank stream or a hot set");
    struct pins *p = mem_alloc(1, sizeof *p, err);
    if (!p)
        return -1;
    p->keys = keys;
    p->experts = setup->experts;
    p->last = mem_alloc(keys, sizeof *p->last, err);
    p->pin = mem_alloc(keys, sizeof *p->pin, err);
    if (!p->last || !p->pin) {
        pins_free(&p->base);
        return -1;
    }
    for (int i = 0; i < setup->pinned && p->pinned < setup->slots - reserve; i++) {
        p->pinned += !p->pin[setup->pins[i]];
        p->pin[setup->pins[i]] = true;
    }
    *out = &p->base;
    return 0;
}

static void ask_for_pins(const struct pins *p, struct cache *cache, int layer)
{
    for (int e = 0; e < p->experts; e++)
        if (p->pin[layer * p->experts + e] && cache_find(cache, layer, e) < 0)
            cache_ask(cache, layer, e, CACHE_LEVELS);
}

static void pins_start(struct cache_policy *policy, struct cache *cache)
{
    const struct pins *p = (const struct pins *)policy;
    for (int layer = 0; layer < p->keys / p->experts; layer++)
        ask_for_pins(p, cache, layer);
}

static void pins_want(struct cache_policy *policy, struct cache *cache, int layer, const int32_t *expert,
                      const int32_t *tokens, int count)
{
    struct pins *p = (struct pins *)policy;
    (void)tokens;
    for (int i = 0; i < count; i++)
        p->last[layer * p->experts + expert[i]] = ++p->clock;
    ask_for_pins(p, cache, layer);
}

static struct cache_value pins_value(const struct cache_policy *policy, int key)
{
    const struct pins *p = (const struct pins *)policy;
    return (struct cache_value){p->pin[key], p->last[key]};
}

static bool pins_may_evict(const struct cache_policy *policy, int victim, int key, int level)
{
    (void)key, (void)level;
    return !((const struct pins *)policy)->pin[victim];
}

static void pins_state(const struct cache_policy *policy, struct values *out)
{
    values_int(out, "pinned", ((const struct pins *)policy)->pinned);
}

const struct cache_policy_class cache_static = {
    .name = "static",
    .summary = "the best of a ranking stay; in other slots the last used",
    .settings = "rank=FILE,reserve=N",
    .open = pins_open,
    .start = pins_start,
    .want = pins_want,
    .value = pins_value,
    .may_evict = pins_may_evict,
    .state = pins_state,
    .free = pins_free,
};
