#include "common/store/schedule.h"

#include "common/base/mem.h"

/* Forecasts go to the host tier at once, but to the device's cache only within NEAR MoE layers of the current one: device slots
 * are few, and an expert that comes too early would evict experts that are requested before it. */
enum { NEAR = 2 };

static struct schedule_host_slot *host_slot_of(const struct schedule *s, int expert)
{
    return &s->host_slot[cache_find(s->host, s->layer, expert)];
}

static struct schedule_slot *slot_of(const struct schedule *s, int expert)
{
    return &s->slot[cache_find(s->cache, s->layer, expert)];
}

/* ---- forecasts */

/* Passes a layer's pending forecasts to the device's cache. */
static void pass_pending_forecasts(struct schedule *s, int layer)
{
    uint8_t *tokens = s->forecast + (size_t)layer * (size_t)s->experts;
    for (int e = 0; e < s->experts; e++) {
        if (tokens[e])
            cache_expect(s->cache, layer, e, tokens[e]);
        tokens[e] = 0;
    }
}

/* Passes on the forecasts for the next layers; the first layer follows the last. While a draft runs, no layer is near, because
 * forecasts are for the verification after it. */
static void pass_near_forecasts(struct schedule *s)
{
    for (int i = 1; s->tier && !s->drafts && i <= NEAR; i++)
        pass_pending_forecasts(s, (s->layer + i) % s->layers);
}

/* Records a forecast: at once without a host tier; else in the host's cache, and as pending for the device's cache. */
static void expect(struct schedule *s, int layer, int expert, int tokens)
{
    uint8_t *pending = &s->forecast[layer * s->experts + expert];
    if (!s->tier) {
        cache_expect(s->cache, layer, expert, tokens);
        return;
    }
    cache_expect(s->host, layer, expert, tokens);
    *pending = (uint8_t)(tokens < CACHE_LEVELS - *pending ? *pending + tokens : CACHE_LEVELS);
}

/* ---- a union */

/* Releases what a failed forward still holds, after everything in flight for it has arrived. */
static int release_failed(struct schedule *s, struct err *err)
{
    for (int e = 0; e < s->experts; e++) {
        while ((s->holds[e] && !slot_of(s, e)->ready) || (s->holds_host[e] && !host_slot_of(s, e)->ready))
            if (schedule_wait(s, err) <= 0)          /* 0: the read it waits for has failed */
                return -1;
        if (s->holds[e])
            cache_release(s->cache, cache_find(s->cache, s->layer, e));
        if (s->holds_host[e])
            schedule_release_host_slot(s, cache_find(s->host, s->layer, e));
        s->holds[e] = s->holds_host[e] = false;
    }
    return 0;
}

static int check(const struct schedule *s, struct err *err)
{
    return s->fault.code ? err_set(err, s->fault.code, "%s", s->fault.text) : 0;
}

/* Begins a layer, with all experts that it requests. */
static int begin_layer(struct schedule *s, int layer, const struct expert_union *wanted, struct err *err)
{
    if (check(s, err) || release_failed(s, err))
        return -1;
    s->layer = layer;
    if (s->tier && !s->drafts)
        pass_pending_forecasts(s, s->layer);
    const int64_t before = cache_counts(s->cache).hits;
    for (int i = 0; i < wanted->count && s->host; i++)
        s->facts.host_hits += cache_find(s->cache, s->layer, wanted->expert[i]) < 0 &&
                                   cache_find(s->host, s->layer, wanted->expert[i]) >= 0;
    cache_want(s->cache, s->layer, wanted->expert, wanted->tokens, wanted->count);
    if (s->host)
        cache_want(s->host, s->layer, wanted->expert, wanted->tokens, wanted->count);
    const int64_t hits = cache_counts(s->cache).hits - before;
    s->facts.hits += hits;
    s->facts.misses += wanted->count - hits;
    pass_near_forecasts(s);
    return 0;
}

/* Returns whether the expert has arrived in its slot. */
static bool is_here(const struct schedule *s, int expert)
{
    const int slot = cache_find(s->cache, s->layer, expert);
    return s->slot[slot].ready && (!s->host || s->transfers->has(s->context, slot));
}

static bool is_here_or_copied(const struct schedule *s, int expert) { return slot_of(s, expert)->ready; }
static bool is_at_host(const struct schedule *s, int expert) { return host_slot_of(s, expert)->ready; }

static enum expert_tier tier_of(const struct schedule *s, int expert)
{
    const int slot = cache_find(s->cache, s->layer, expert);
    if (slot >= 0 && s->slot[slot].ready)
        return is_here(s, expert) ? EXPERT_ON_DEVICE : EXPERT_COMING;
    if (s->host && cache_find(s->host, s->layer, expert) >= 0)
        return is_at_host(s, expert) ? EXPERT_ON_HOST : EXPERT_ON_DISK;
    return EXPERT_ON_DISK;
}

int schedule_want(struct schedule *s, int layer, const struct expert_union *wanted, enum expert_tier *tier, struct err *err)
{
    if (begin_layer(s, layer, wanted, err))
        return -1;
    for (int i = 0; i < wanted->count; i++)
        tier[i] = tier_of(s, wanted->expert[i]);
    return 0;
}

/* Holds the requested experts that are in slots, so that experts brought for the same union cannot evict them. */
static void hold_resident(struct schedule *s, struct cache *cache, bool *holds, const struct expert_union *wanted)
{
    for (int i = 0; i < wanted->count; i++) {
        const int slot = cache_find(cache, s->layer, wanted->expert[i]);
        if (slot < 0 || holds[wanted->expert[i]])
            continue;
        cache_hold(cache, slot);
        holds[wanted->expert[i]] = true;
    }
}

/* Starts to bring the union's unfinished experts while slots are free. An expert that cannot be read now is skipped, because a
 * later one may be available already. */
static int fetch_wanted(struct schedule *s, const struct expert_union *wanted, bool *holds,
                        int (*bring)(struct schedule *s, int expert, struct err *err), struct err *err)
{
    for (int i = wanted->done; i < wanted->count; i++) {
        const int expert = wanted->expert[i];
        int got = 1;
        if (!holds[expert] && (got = bring(s, expert, err)) < 0)
            return -1;
        holds[expert] |= got > 0;
    }
    return 0;
}

/* Holds the slot if a prefetch has brought the expert since the union began; else starts to bring it. */
static int fetch_to_slot(struct schedule *s, int expert, struct err *err)
{
    const int slot = cache_find(s->cache, s->layer, expert);
    if (slot < 0)
        return schedule_bring(s, expert, err);
    cache_hold(s->cache, slot);
    return 1;
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t old = *a;
    *a = *b;
    *b = old;
}

/* Moves the held experts that are ready to the front of those that are not done. Returns their number and sets `held`. */
static int find_ready(const struct schedule *s, struct expert_union *wanted, const bool *holds,
                      bool (*ready)(const struct schedule *s, int expert))
{
    int end = wanted->done;
    for (int i = wanted->done; i < wanted->count; i++) {
        if (!holds[wanted->expert[i]] || !ready(s, wanted->expert[i]))
            continue;
        swap(&wanted->expert[end], &wanted->expert[i]);
        swap(&wanted->tokens[end++], &wanted->tokens[i]);
    }
    return wanted->held = end - wanted->done;
}

static int no_slot(int slots, struct err *err)
{
    return err_set(err, ERR_INPUT, "the cache policy frees none of its %d slots for requested experts; choose another policy",
                   slots);
}

/* Starts all reads and copies that can start, and waits only if there is nothing to compute with. */
static int gather(struct schedule *s, struct expert_union *wanted, struct err *err)
{
    for (;;) {
        int got;
        if (fetch_wanted(s, wanted, s->holds, fetch_to_slot, err) || schedule_poll(s, err) ||
            fetch_wanted(s, wanted, s->holds, fetch_to_slot, err))
            return -1;
        if (find_ready(s, wanted, s->holds, is_here) || find_ready(s, wanted, s->holds, is_here_or_copied))
            return 0;
        if ((got = schedule_wait(s, err)) <= 0)
            return got ? -1 : no_slot(s->slots, err);
    }
}

int schedule_acquire(struct schedule *s, int layer, struct expert_union *wanted, struct err *err)
{
    if (check(s, err) || (!wanted->done && !wanted->part && begin_layer(s, layer, wanted, err)))
        return -1;
    if (!wanted->done)
        hold_resident(s, s->cache, s->holds, wanted);
    return gather(s, wanted, err) || schedule_start_prefetches(s, err) ? -1 : 0;
}

static void end_piece(struct expert_union *wanted)
{
    wanted->done += wanted->held;
    wanted->held = 0;
}

void schedule_release(struct schedule *s, struct expert_union *wanted)
{
    for (int i = wanted->done; i < wanted->done + wanted->held; i++) {
        cache_release(s->cache, cache_find(s->cache, s->layer, wanted->expert[i]));
        s->holds[wanted->expert[i]] = false;
    }
    end_piece(wanted);
}

/* ---- computing on the host */

static int gather_host(struct schedule *s, struct expert_union *wanted, struct err *err)
{
    for (;;) {
        int got;
        if (fetch_wanted(s, wanted, s->holds_host, schedule_bring_host, err) || schedule_poll(s, err) ||
            fetch_wanted(s, wanted, s->holds_host, schedule_bring_host, err))
            return -1;
        if (find_ready(s, wanted, s->holds_host, is_at_host))
            return 0;
        if ((got = schedule_wait(s, err)) <= 0)
            return got ? -1 : no_slot(s->host ? s->host_slots : s->slots, err);
    }
}

/* In place, host and device compute from the same slots. */
int schedule_acquire_host(struct schedule *s, int layer, struct expert_union *wanted, struct err *err)
{
    if (!s->host)
        return schedule_acquire(s, layer, wanted, err);
    if (check(s, err) || (!wanted->done && !wanted->part && begin_layer(s, layer, wanted, err)))
        return -1;
    if (!wanted->done)
        hold_resident(s, s->host, s->holds_host, wanted);
    return gather_host(s, wanted, err) || schedule_start_prefetches(s, err) ? -1 : 0;
}

void schedule_release_host(struct schedule *s, struct expert_union *wanted)
{
    if (!s->host) {
        schedule_release(s, wanted);
        return;
    }
    for (int i = wanted->done; i < wanted->done + wanted->held; i++) {
        schedule_release_host_slot(s, cache_find(s->host, s->layer, wanted->expert[i]));
        s->holds_host[wanted->expert[i]] = false;
    }
    end_piece(wanted);
}

/* ---- forwards, forecasts, facts */

void schedule_begin(struct schedule *s, int tokens, enum expert_forward forward, bool text)
{
    static const enum cache_forward as[] = {[EXPERTS_VERIFY] = CACHE_VERIFIES, [EXPERTS_PROMPT] = CACHE_PROMPT,
                                            [EXPERTS_DRAFT] = CACHE_DRAFTS};
    struct cache *const tiers[] = {s->cache, s->host};
    for (int i = 0; i < 2 && tiers[i]; i++) {
        if (text)
            cache_begin(tiers[i]);
        cache_step(tiers[i], tokens, as[forward]);
    }
    if (release_failed(s, NULL))        /* on failure, the next acquire reports it */
        return;
    s->layer = -1;
    s->drafts = forward == EXPERTS_DRAFT;
    pass_near_forecasts(s);
}

void schedule_keep(struct schedule *s, int layer)
{
    cache_keep(s->cache, layer);
    if (s->host)
        cache_keep(s->host, layer);
}

int schedule_prefetch(struct schedule *s, int layer, const int32_t *expert, const int32_t *tokens, int count, struct err *err)
{
    if (check(s, err))
        return -1;
    for (int i = 0; i < count; i++)
        expect(s, layer, expert[i], tokens ? tokens[i] : 1);
    pass_near_forecasts(s);
    s->facts.forecasts = true;
    return schedule_poll(s, err) || schedule_start_prefetches(s, err) ? -1 : 0;
}

struct store_facts schedule_facts(const struct schedule *s)
{
    const struct cache_counts counts = cache_counts(s->cache);
    struct store_facts facts = s->facts;
    facts.copies = s->host != NULL;
    facts.named = counts.named;
    facts.right = counts.right;
    facts.scored = counts.scored;
    facts.forecasts |= counts.named > 0;
    return facts;
}

int schedule_first(struct schedule *s, struct err *err)
{
    int got;
    do
        got = schedule_start_prefetches(s, err) ? -1 : schedule_wait(s, err);
    while (got > 0);
    s->facts.stall = s->facts.stall_copies = 0;         /* no forward has waited */
    return got;
}

/* ---- opening */

int schedule_open(struct schedule *s, struct err *err)
{
    const size_t experts = (size_t)s->experts, all = (size_t)s->layers * experts;
    if (!(s->slot = mem_alloc((size_t)s->slots, sizeof *s->slot, err)) ||
        !(s->holds = mem_alloc(experts, sizeof *s->holds, err)) ||
        !(s->holds_host = mem_alloc(experts, sizeof *s->holds_host, err)))
        return -1;
    return s->host && (!(s->host_slot = mem_alloc((size_t)s->host_slots + 1, sizeof *s->host_slot, err)) ||
                       !(s->forecast = mem_alloc(all, sizeof *s->forecast, err))) ? -1 : 0;
}

void schedule_free(struct schedule *s)
{
    mem_free(&s->slot);
    mem_free(&s->host_slot);
    mem_free(&s->holds);
    mem_free(&s->holds_host);
    mem_free(&s->forecast);
}
