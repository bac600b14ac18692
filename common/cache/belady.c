/* belady: evicts the expert whose next use is furthest in the future (Belady 1966). The policy must know the future, so it
 * works over recorded routes only: among policies that insert every wanted expert none has more hits. If an expert without a
 * slot can be computed elsewhere, an expert whose next use is later than those of all residents is not inserted; then none
 * has more hits among policies that insert only experts wanted at that moment. If the actual wants differ from the recorded
 * ones, the state is `strayed`, and the policy is not a bound. */
#include "common/base/mem.h"
#include "common/cache/cache.h"

enum { NEVER = INT32_MAX };

struct belady {
    struct cache_policy base;
    int experts;
    bool strayed, elsewhere;
    const struct cache_future *future;
    int32_t *after;             /* [count] index of the next want of the same key, or NEVER */
    int32_t *next;              /* [keys] index of the key's next want, or NEVER */
    int32_t at;                 /* number of wants so far */
};

static void belady_free(struct cache_policy *policy)
{
    struct belady *b = (struct belady *)policy;
    mem_free(&b->after);
    mem_free(&b->next);
    mem_free(&b);
}

static int belady_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    int keys = setup->layers * setup->experts;
    (void)spec;
    if (!setup->future)
        return err_set(err, ERR_INPUT, "belady: needs all future requests, so it can be simulated over recorded routes only; "
                       "choose another policy");
    if (setup->future->count >= NEVER)
        return err_set(err, ERR_INPUT, "belady: the routes have %zu requests, but at most %d are supported; simulate fewer "
                       "texts", setup->future->count, NEVER - 1);
    struct belady *b = mem_alloc(1, sizeof *b, err);
    if (!b)
        return -1;
    b->experts = setup->experts;
    b->elsewhere = setup->elsewhere;
    b->future = setup->future;
    b->after = mem_alloc(setup->future->count, sizeof *b->after, err);
    b->next = mem_alloc(keys, sizeof *b->next, err);
    if (!b->after || !b->next) {
        belady_free(&b->base);
        return -1;
    }
    for (int key = 0; key < keys; key++)
        b->next[key] = NEVER;
    for (size_t i = setup->future->count; i--;) {
        b->after[i] = b->next[setup->future->key[i]];
        b->next[setup->future->key[i]] = (int32_t)i;
    }
    *out = &b->base;
    return 0;
}

static void belady_want(struct cache_policy *policy, struct cache *cache, int layer, const int32_t *expert,
                        const int32_t *tokens, int count)
{
    struct belady *b = (struct belady *)policy;
    (void)cache, (void)tokens;
    for (int i = 0; i < count; i++) {
        int key = layer * b->experts + expert[i];
        if (b->next[key] >= b->at + count)
            b->strayed = true;
        else
            b->next[key] = b->after[b->next[key]];
    }
    b->at += b->strayed ? 0 : count;
}

static struct cache_value belady_value(const struct cache_policy *policy, int key)
{
    return (struct cache_value){-(int64_t)((const struct belady *)policy)->next[key], 0};
}

/* Returns whether a resident may be evicted: by a prefetch or an optional insertion only if its next use is later than the
 * new expert's. */
static bool belady_may_evict(const struct cache_policy *policy, int victim, int key, int level)
{
    const struct belady *b = (const struct belady *)policy;
    return (!level && !b->elsewhere) || b->next[victim] > b->next[key];
}

static void belady_state(const struct cache_policy *policy, struct values *out)
{
    values_int(out, "strayed", ((const struct belady *)policy)->strayed);
}

const struct cache_policy_class cache_belady = {
    .name = "belady",
    .summary = "evicts the expert whose next request is furthest away; replay only",
    .replays = true,
    .open = belady_open,
    .want = belady_want,
    .value = belady_value,
    .may_evict = belady_may_evict,
    .state = belady_state,
    .free = belady_free,
};
