/* The cached expert source: a requested expert that is not in a slot is read from the model file, in one read, or copied from a
 * host slot (cached.h). common/cache decides which experts stay.
 *
 * Experts that are available are computed first. When none is left, the device's queue waits for copies in flight, and the host
 * does not wait. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/mem.h"
#include "common/cache/balance.h"
#include "common/cache/utility.h"
#include "common/store/cached.h"

/* Forecasts go to the host tier at once, but to the device's cache only within NEAR MoE layers of the current one: device slots
 * are few, and an expert that comes too early would evict experts that are requested before it. */
enum { NEAR = 2 };

static struct cached *cached_of(struct expert_source *source) { return (struct cached *)source; }

static struct cached_host_slot *host_slot_of(const struct cached *cached, int expert)
{
    return &cached->host_slot[cache_find(cached->host, cached->layer, expert)];
}

static struct cached_slot *slot_of(const struct cached *cached, int expert)
{
    return &cached->slot[cache_find(cached->cache, cached->layer, expert)];
}

/* ---- forecasts */

/* Passes a layer's pending forecasts to the device's cache. */
static void pass_pending_forecasts(struct cached *cached, int layer)
{
    uint8_t *tokens = cached->forecast + (size_t)layer * (size_t)cached->experts;
    for (int e = 0; e < cached->experts; e++) {
        if (tokens[e])
            cache_expect(cached->cache, layer, e, tokens[e]);
        tokens[e] = 0;
    }
}

/* Passes on the forecasts for the next layers; the first layer follows the last. While a draft runs, no layer is near, because
 * forecasts are for the verification after it. */
static void pass_near_forecasts(struct cached *cached)
{
    for (int i = 1; cached->tier && !cached->drafts && i <= NEAR; i++)
        pass_pending_forecasts(cached, (cached->layer + i) % cached->layers);
}

/* Records a forecast: at once without a host tier; else in the host's cache, and as pending for the device's cache. */
static void expect(struct cached *cached, int layer, int expert, int tokens)
{
    uint8_t *pending = &cached->forecast[layer * cached->experts + expert];
    if (!cached->tier) {
        cache_expect(cached->cache, layer, expert, tokens);
        return;
    }
    cache_expect(cached->host, layer, expert, tokens);
    *pending = (uint8_t)(tokens < CACHE_LEVELS - *pending ? *pending + tokens : CACHE_LEVELS);
}

/* ---- a union */

/* Releases what a failed forward still holds, after everything in flight for it has arrived. */
static int end_last(struct cached *cached, struct err *err)
{
    for (int e = 0; e < cached->experts; e++) {
        while ((cached->holds[e] && !slot_of(cached, e)->ready) || (cached->holds_host[e] && !host_slot_of(cached, e)->ready))
            if (cached_wait(cached, err) <= 0)          /* 0: the read it waits for has failed */
                return -1;
        if (cached->holds[e])
            cache_release(cached->cache, cache_find(cached->cache, cached->layer, e));
        if (cached->holds_host[e])
            cached_release_host_slot(cached, cache_find(cached->host, cached->layer, e));
        cached->holds[e] = cached->holds_host[e] = false;
    }
    return 0;
}

/* Begins a layer, with all experts that it requests. */
static int begin_layer(struct cached *cached, const struct expert_union *wanted, struct err *err)
{
    if (cached->fault.code)
        return err_set(err, cached->fault.code, "%s", cached->fault.text);
    if (end_last(cached, err))
        return -1;
    cached->layer = cached->number[wanted->layer];
    if (cached->tier && !cached->drafts)
        pass_pending_forecasts(cached, cached->layer);
    const int64_t before = cache_counts(cached->cache).hits;
    for (int i = 0; i < wanted->count && cached->host; i++)
        cached->facts.host_hits += cache_find(cached->cache, cached->layer, wanted->expert[i]) < 0 &&
                                   cache_find(cached->host, cached->layer, wanted->expert[i]) >= 0;
    cache_want(cached->cache, cached->layer, wanted->expert, wanted->tokens, wanted->count);
    if (cached->host)
        cache_want(cached->host, cached->layer, wanted->expert, wanted->tokens, wanted->count);
    const int64_t hits = cache_counts(cached->cache).hits - before;
    cached->facts.hits += hits;
    cached->facts.misses += wanted->count - hits;
    pass_near_forecasts(cached);
    return 0;
}

/* The expert has arrived in its slot. */
static bool is_here(const struct cached *cached, int expert)
{
    const int slot = cache_find(cached->cache, cached->layer, expert);
    return cached->slot[slot].ready && (!cached->staging || staging_has(cached->staging, slot));
}

static bool is_here_or_copied(const struct cached *cached, int expert) { return slot_of(cached, expert)->ready; }
static bool is_at_host(const struct cached *cached, int expert) { return host_slot_of(cached, expert)->ready; }

static enum expert_tier tier_of(const struct cached *cached, int expert)
{
    const int slot = cache_find(cached->cache, cached->layer, expert);
    if (slot >= 0 && cached->slot[slot].ready)
        return is_here(cached, expert) ? EXPERT_ON_DEVICE : EXPERT_COMING;
    if (cached->host && cache_find(cached->host, cached->layer, expert) >= 0)
        return is_at_host(cached, expert) ? EXPERT_ON_HOST : EXPERT_ON_DISK;
    return EXPERT_ON_DISK;
}

static int cached_want(struct expert_source *source, const struct expert_union *wanted, enum expert_tier *tier,
                       struct err *err)
{
    struct cached *cached = cached_of(source);
    if (begin_layer(cached, wanted, err))
        return -1;
    for (int i = 0; i < wanted->count; i++)
        tier[i] = tier_of(cached, wanted->expert[i]);
    return 0;
}

/* Holds the requested experts that are in slots, so that experts brought for the same union cannot evict them. */
static void hold_resident(struct cached *cached, struct cache *cache, bool *holds, const struct expert_union *wanted)
{
    for (int i = 0; i < wanted->count; i++) {
        const int slot = cache_find(cache, cached->layer, wanted->expert[i]);
        if (slot < 0 || holds[wanted->expert[i]])
            continue;
        cache_hold(cache, slot);
        holds[wanted->expert[i]] = true;
    }
}

/* Starts to bring experts of the union that are not done, as far as there are slots. Goes on after one that cannot be read now,
 * because a later one may be available already. */
static int fetch_wanted(struct cached *cached, const struct expert_union *wanted, bool *holds,
                        int (*bring)(struct cached *cached, int expert, struct err *err), struct err *err)
{
    for (int i = wanted->done; i < wanted->count; i++) {
        const int expert = wanted->expert[i];
        int got = 1;
        if (!holds[expert] && (got = bring(cached, expert, err)) < 0)
            return -1;
        holds[expert] |= got > 0;
    }
    return 0;
}

/* Holds the slot if a prefetch has brought the expert since the union began; else starts to bring it. */
static int fetch_to_slot(struct cached *cached, int expert, struct err *err)
{
    const int slot = cache_find(cached->cache, cached->layer, expert);
    if (slot < 0)
        return cached_bring(cached, expert, err);
    cache_hold(cached->cache, slot);
    return 1;
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t old = *a;
    *a = *b;
    *b = old;
}

/* Moves the held experts that are ready to the front of those that are not done. Returns their number and sets `held`. */
static int find_ready(const struct cached *cached, struct expert_union *wanted, const bool *holds,
                      bool (*ready)(const struct cached *cached, int expert))
{
    int end = wanted->done;
    for (int i = wanted->done; i < wanted->count; i++) {
        if (!holds[wanted->expert[i]] || !ready(cached, wanted->expert[i]))
            continue;
        swap(&wanted->expert[end], &wanted->expert[i]);
        swap(&wanted->tokens[end++], &wanted->tokens[i]);
    }
    return wanted->held = end - wanted->done;
}

static int no_slot(int slots, struct err *err)
{
    return err_set(err, ERR_INPUT, "the cache policy keeps all %d experts and gives none for those that are wanted",
                   slots);
}

/* Starts all reads and copies that can start, and waits only if there is nothing to compute with. */
static int gather(struct cached *cached, struct expert_union *wanted, struct err *err)
{
    for (;;) {
        int got;
        if (fetch_wanted(cached, wanted, cached->holds, fetch_to_slot, err) || cached_poll(cached, err) ||
            fetch_wanted(cached, wanted, cached->holds, fetch_to_slot, err))
            return -1;
        if (find_ready(cached, wanted, cached->holds, is_here) || find_ready(cached, wanted, cached->holds, is_here_or_copied))
            return 0;
        if ((got = cached_wait(cached, err)) <= 0)
            return got ? -1 : no_slot(cached->slots, err);
    }
}

static int cached_acquire(struct expert_source *source, struct expert_union *wanted, struct buffer *table, struct err *err)
{
    struct cached *cached = cached_of(source);
    if (cached->fault.code)
        return err_set(err, cached->fault.code, "%s", cached->fault.text);
    if (!wanted->done && !wanted->part && begin_layer(cached, wanted, err))
        return -1;
    if (!wanted->done)
        hold_resident(cached, cached->cache, cached->holds, wanted);
    if (gather(cached, wanted, err) || cached_bring_beforehand(cached, err))
        return -1;
    for (int i = wanted->done; i < wanted->done + wanted->held; i++) {
        const int slot = cache_find(cached->cache, cached->layer, wanted->expert[i]);
        if (cached->staging)
            staging_use(cached->staging, slot);
        cached->address[wanted->expert[i]] = cached->staging ? staging_address(cached->staging, slot)
                                                             : cached->block.address + (uint64_t)slot * cached->slot_bytes;
    }
    queue_upload(cached->device, cached->table, cached->address, (size_t)cached->experts * sizeof *cached->address);
    *table = cached->table;
    return 0;
}

static void cached_release(struct expert_source *source, struct expert_union *wanted)
{
    struct cached *cached = cached_of(source);
    for (int i = wanted->done; i < wanted->done + wanted->held; i++) {
        const int slot = cache_find(cached->cache, cached->layer, wanted->expert[i]);
        if (cached->staging)
            staging_release(cached->staging, slot);
        cache_release(cached->cache, slot);
        cached->holds[wanted->expert[i]] = false;
    }
    wanted->done += wanted->held;
    wanted->held = 0;
}

/* ---- by who computes on the host */

static int gather_host(struct cached *cached, struct expert_union *wanted, struct err *err)
{
    for (;;) {
        int got;
        if (fetch_wanted(cached, wanted, cached->holds_host, cached_bring_host, err) || cached_poll(cached, err) ||
            fetch_wanted(cached, wanted, cached->holds_host, cached_bring_host, err))
            return -1;
        if (find_ready(cached, wanted, cached->holds_host, is_at_host))
            return 0;
        if ((got = cached_wait(cached, err)) <= 0)
            return got ? -1 : no_slot(cached->host ? cached->host_slots : cached->slots, err);
    }
}

/* In place, host and device compute from the same slots. */
static int cached_acquire_host(struct expert_source *source, struct expert_union *wanted, const void **address,
                               struct err *err)
{
    struct cached *cached = cached_of(source);
    struct buffer table;
    if (cached->fault.code)
        return err_set(err, cached->fault.code, "%s", cached->fault.text);
    if (!cached->host && cached_acquire(source, wanted, &table, err))
        return -1;
    if (cached->host && !wanted->done) {
        if (!wanted->part && begin_layer(cached, wanted, err))
            return -1;
        hold_resident(cached, cached->host, cached->holds_host, wanted);
    }
    if (cached->host && (gather_host(cached, wanted, err) || cached_bring_beforehand(cached, err)))
        return -1;
    for (int i = wanted->done; i < wanted->done + wanted->held; i++)
        address[i] = cached->host
            ? staging_data(cached->staging, cache_find(cached->host, cached->layer, wanted->expert[i]))
            : cached->memory + (size_t)cache_find(cached->cache, cached->layer, wanted->expert[i]) * cached->slot_bytes;
    return 0;
}

static void cached_release_host(struct expert_source *source, struct expert_union *wanted)
{
    struct cached *cached = cached_of(source);
    if (!cached->host) {
        cached_release(source, wanted);
        return;
    }
    for (int i = wanted->done; i < wanted->done + wanted->held; i++) {
        cached_release_host_slot(cached, cache_find(cached->host, cached->layer, wanted->expert[i]));
        cached->holds_host[wanted->expert[i]] = false;
    }
    wanted->done += wanted->held;
    wanted->held = 0;
}

/* ---- the rest of a source */

static void cached_begin(struct expert_source *source, int tokens, enum expert_forward forward, bool text)
{
    static const enum cache_forward as[] = {[EXPERTS_VERIFY] = CACHE_VERIFIES, [EXPERTS_PROMPT] = CACHE_PROMPT,
                                            [EXPERTS_DRAFT] = CACHE_DRAFTS};
    struct cached *cached = cached_of(source);
    if (text)
        cache_begin(cached->cache);
    cache_step(cached->cache, tokens, as[forward]);
    if (text && cached->host)
        cache_begin(cached->host);
    if (cached->host)
        cache_step(cached->host, tokens, as[forward]);
    if (end_last(cached, NULL))          /* on failure, the next acquire reports it */
        return;
    cached->layer = -1;
    cached->drafts = forward == EXPERTS_DRAFT;
    pass_near_forecasts(cached);
}

static void cached_keep(struct expert_source *source, int layer)
{
    struct cached *cached = cached_of(source);
    cache_keep(cached->cache, layer < 0 ? -1 : cached->number[layer]);
    if (cached->host)
        cache_keep(cached->host, layer < 0 ? -1 : cached->number[layer]);
}

static int cached_prefetch(struct expert_source *source, int layer, const int32_t *expert, const int32_t *tokens, int count,
                           struct err *err)
{
    struct cached *cached = cached_of(source);
    if (cached->fault.code)
        return err_set(err, cached->fault.code, "%s", cached->fault.text);
    for (int i = 0; i < count; i++)
        expect(cached, cached->number[layer], expert[i], tokens ? tokens[i] : 1);
    pass_near_forecasts(cached);
    cached->facts.forecasts = true;
    return cached_poll(cached, err) || cached_bring_beforehand(cached, err) ? -1 : 0;
}

static void cached_facts(const struct expert_source *source, struct store_facts *out)
{
    const struct cached *cached = (const struct cached *)source;
    const struct cache_counts counts = cache_counts(cached->cache);
    *out = cached->facts;
    out->copies = cached->host != NULL;
    out->named = counts.named;
    out->right = counts.right;
    out->scored = counts.scored;
    out->forecasts |= counts.named > 0;
}

static void cached_free(struct expert_source *source)
{
    struct cached *cached = cached_of(source);
    const bool abandoned = cached->reads && reads_busy(cached->reads) && stop_asked(cached->stop);
    (abandoned ? reads_abandon : reads_close)(&cached->reads);     /* first, because reads write to the memory freed below */
    cache_close(&cached->cache);
    cache_close(&cached->host);
    device_free(cached->device, &cached->table);
    if (!abandoned)
        staging_close(&cached->staging);
    if (cached->memory && !abandoned)
        munmap(cached->memory, cached->memory_bytes);
    mem_free(&cached->extent);
    mem_free(&cached->slot);
    mem_free(&cached->host_slot);
    mem_free(&cached->address);
    mem_free(&cached->holds);
    mem_free(&cached->holds_host);
    mem_free(&cached->forecast);
    mem_free(&cached);
}

/* ---- opening */

static int find_experts(struct cached *cached, const struct model *model, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    cached->experts = shape->router.experts;
    cached->extent = mem_alloc((size_t)hparams_moe_layers(shape), sizeof *cached->extent, err);
    if (!cached->extent)
        return -1;
    for (int n = 0; n < shape->layers; n++) {
        cached->number[n] = -1;
        if (shape->layer[n].ffn != FFN_EXPERTS)
            continue;
        const struct tensor *tensor = model_tensor(model, err, "layers.%d.experts", n);
        if (!tensor)
            return -1;
        cached->number[n] = cached->layers;
        cached->extent[cached->layers++] = (struct cached_extent){tensor->offset, tensor->stride, (size_t)tensor->stride};
        if (tensor->stride > cached->slot_bytes)
            cached->slot_bytes = (size_t)tensor->stride;
    }
    cached->slot_bytes = size_align(cached->slot_bytes, DIRECT_STEP);
    return 0;
}

/* Allocates the slots into which experts are read in place. */
static int make_slots(struct cached *cached, struct err *err)
{
    if (!size_mul((size_t)cached->slots, cached->slot_bytes, &cached->memory_bytes))
        return err_memory(err);
    void *memory = mmap(NULL, cached->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return err_set(err, ERR_MEMORY, "no memory for %d experts of %zu bytes; cache fewer", cached->slots,
                       cached->slot_bytes);
    madvise(memory, cached->memory_bytes, MADV_HUGEPAGE);                /* a hint; failure does not matter */
    cached->memory = memory;
    cached->block = device_map(cached->device, memory, cached->memory_bytes);
    return 0;
}

/* Opens device slots and host slots. Without a host tier: as many host slots as reads need, in LRU order. */
static int make_tiers(struct cached *cached, const struct cache_setup *cache, const struct expert_cache *setup, struct err *err)
{
    const int64_t all = (int64_t)cached->layers * cached->experts;
    struct cache_setup host = *cache;
    cached->tier = setup->host_slots > 0;
    host.kept_out = NULL;
    host.slots = cached->slots < CACHED_DEPTH ? cached->slots : CACHED_DEPTH > cache->top_k ? CACHED_DEPTH : cache->top_k;
    if (cached->tier)
        host.slots = (int)(setup->host_slots < all ? setup->host_slots : all);
    cached->host_slots = host.slots;
    return cache_open(&cached->host, cached->tier ? setup->policy : "lru-global", &host, err) ||
           !(cached->host_slot = mem_alloc((size_t)host.slots + 1, sizeof *cached->host_slot, err)) ||
           !(cached->forecast = mem_alloc((size_t)all, sizeof *cached->forecast, err)) ||
           staging_open(&cached->staging, cached->device, cached->slots, host.slots + 1, cached->slot_bytes, err) ? -1 : 0;
}

static void describe(struct cached *cached, const struct direct_file *file)
{
    const int all = cached->layers * cached->experts;
    char host[64] = "";
    if (cached->tier)
        snprintf(host, sizeof host, ", and that of the host %d", cached->host_slots);
    snprintf(cached->way, sizeof cached->way, "%s%s; memory holds %d of %d%s", reads_method(cached->reads),
             file->direct ? ", past the page cache" : ", through the page cache, as this file system has no other way",
             cached->slots, all, host);
}

/* Marks the experts that a static split leaves to the host, because forecasts and policies name all experts of a layer. */
static int keep_out(bool **out, const struct cached *cached, const struct split_rule *split, struct err *err)
{
    const int all = cached->layers * cached->experts;
    bool *kept_out = mem_alloc((size_t)all, sizeof *kept_out, err);
    for (int key = 0; kept_out && key < all; key++)
        kept_out[key] = !split_rule_on_device(split, cached->layers, cached->experts, cached->slots, key / cached->experts,
                                              key % cached->experts);
    *out = kept_out;
    return kept_out ? 0 : -1;
}

static int open_parts(struct cached *cached, const struct model *model, const struct expert_cache *setup, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    const struct direct_file *file = model_file(model);
    if (find_experts(cached, model, err))
        return -1;
    const int64_t all = (int64_t)cached->layers * cached->experts;
    cached->slots = (int)(setup->slots < all ? setup->slots : all);
    bool *kept_out = NULL;
    if (setup->split.kind == SPLIT_STATIC && keep_out(&kept_out, cached, &setup->split, err))
        return -1;
    const struct cache_setup cache = {.layers = cached->layers, .experts = cached->experts, .slots = cached->slots,
                                      .top_k = shape->router.top_k, .draft_length = setup->draft_length,
                                      .pins = setup->pins, .pin_weight = setup->pin_weight, .pinned = setup->pinned,
                                      .ranked = setup->ranked, .kept_out = kept_out};
    const size_t bytes = (size_t)cached->experts * sizeof *cached->address;
    const int rc = cache_open(&cached->cache, setup->policy, &cache, err);
    mem_free(&kept_out);
    if (rc || !(cached->slot = mem_alloc((size_t)cached->slots, sizeof *cached->slot, err)) ||
        !(cached->address = mem_alloc((size_t)cached->experts, sizeof *cached->address, err)) ||
        !(cached->holds = mem_alloc((size_t)cached->experts, sizeof *cached->holds, err)) ||
        !(cached->holds_host = mem_alloc((size_t)cached->experts, sizeof *cached->holds_host, err)) ||
        device_alloc(cached->device, bytes, &cached->table, err) ||
        (device_info(cached->device)->host_memory ? make_slots(cached, err) : make_tiers(cached, &cache, setup, err)))
        return -1;
    const int max_reads = cached->host ? cached->host_slots + 1 : cached->slots;
    if (reads_open(&cached->reads, file, max_reads < CACHED_DEPTH ? max_reads : CACHED_DEPTH, setup->threads, err))
        return -1;
    describe(cached, file);
    return 0;
}

/* Reads the policy's initial contents before anything is decoded; later, when a layer has been computed, its requests are
 * dropped. */
static int read_first(struct cached *cached, struct err *err)
{
    int got;
    do
        got = cached_bring_beforehand(cached, err) ? -1 : cached_wait(cached, err);
    while (got > 0);
    cached->facts.stall = cached->facts.stall_copies = 0;                /* no forward has waited */
    return got;
}

static const struct expert_source_class cached_class = {
    .name = "cached", .begin = cached_begin, .prefetch = cached_prefetch, .acquire = cached_acquire, .release = cached_release,
    .want = cached_want, .acquire_host = cached_acquire_host, .release_host = cached_release_host, .keep = cached_keep,
    .facts = cached_facts, .free = cached_free};

int expert_source_cached(struct expert_source **out, const struct model *model, struct device *device,
                         const struct expert_cache *setup, struct err *err)
{
    struct cached *cached = mem_alloc(1, sizeof *cached, err);
    if (!cached)
        return -1;
    cached->base.class = &cached_class;
    cached->device = device;
    cached->stop = setup->stop;
    if (open_parts(cached, model, setup, err) || read_first(cached, err)) {
        cached_free(&cached->base);
        return -1;
    }
    *out = &cached->base;
    return 0;
}

bool expert_source_weights(const struct expert_source *source, double *weight)
{
    return source && source->class == &cached_class && cache_weights(((const struct cached *)source)->cache, weight);
}

void expert_source_state(const struct expert_source *source, struct values *out)
{
    if (source && source->class == &cached_class)
        cache_state(((const struct cached *)source)->cache, out);
}

const struct utility_expert *expert_source_utility(const struct expert_source *source)
{
    int K;
    return source && source->class == &cached_class ? cache_utility_states(((const struct cached *)source)->cache, &K) : NULL;
}

const struct utility_expert *expert_source_levels(const struct expert_source *source, int layer, int *K)
{
    const struct cached *cached = (const struct cached *)source;
    const struct utility_expert *all = source->class == &cached_class ? cache_utility_states(cached->cache, K) : NULL;
    return all ? all + (size_t)cached->number[layer] * (size_t)cached->experts : NULL;
}

int expert_source_fetches(const struct expert_source *source, int layer, int32_t *fetches)
{
    const struct cached *cached = (const struct cached *)source;
    int K;
    const struct utility_expert *all = cache_utility_states(cached->cache, &K);
    return balance_fetches(cached->cache, all, K, cached->number[layer], cached->experts, cached->slots, fetches);
}

void expert_source_threshold(struct expert_source *source, int tau)
{
    if (source->class == &cached_class)
        cache_threshold(cached_of(source)->cache, tau);
}

int64_t expert_source_slots(const struct expert_source *source, int64_t all)
{
    return source->class == &cached_class ? ((const struct cached *)source)->slots : all;
}

void expert_source_ask(struct expert_source *source, int layer, const int32_t *expert, int count)
{
    const struct cached *cached = cached_of(source);
    for (int i = 0; i < count && source->class == &cached_class; i++)
        cache_ask(cached->cache, cached->number[layer], expert[i], 1);
}

const char *expert_source_method(const struct expert_source *source)
{
    return source && source->class == &cached_class ? ((const struct cached *)source)->way : NULL;
}
