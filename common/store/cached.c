/* The cached expert source: a requested expert that is not in a slot is read from the model file, in one read, or copied from a
 * host slot. schedule.h decides when and into which slot; this file moves the bytes.
 *
 * When no available expert is left to compute, the device's queue waits for copies in flight, and the host does not wait. */
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/large_pages.h"
#include "common/base/mem.h"
#include "common/store/reads.h"
#include "common/store/schedule.h"
#include "common/store/staging.h"

struct cached {
    struct expert_source base;
    struct schedule schedule;
    struct device *device;
    struct reads *reads;
    const struct stop *stop;             /* a stop request ends waiting for reads; NULL: none */
    int32_t number[LAYERS_MAX];          /* model layer -> MoE layer; -1: a layer without experts */
    uint64_t *offset;                    /* [layers] offset of the layer's first expert in the file; the other experts follow */
    size_t *bytes;                       /* [layers] bytes of an expert */
    size_t slot_bytes;
    char *memory;                        /* in place: the slots */
    size_t memory_bytes;
    struct buffer block;                 /* `memory` as a device buffer */
    struct staging *staging;             /* NULL: in place */
    int *ended, room, oldest, uncollected;       /* `at_once`: a ring [room] of the tags of reads that were waited for */
    uint64_t *address;                   /* [experts] host copy of `table` */
    struct buffer table;
    char way[320];                       /* text of expert_source_method */
};

static struct cached *cached_of(struct expert_source *source) { return (struct cached *)source; }

/* ---- transfers */

static bool is_full(const void *context) { return reads_full(((const struct cached *)context)->reads); }

static int start_read(void *context, int tag, int key, struct err *err)
{
    struct cached *cached = context;
    const int layer = key / cached->schedule.experts, expert = key % cached->schedule.experts;
    void *to = cached->staging ? staging_data(cached->staging, tag) : cached->memory + (size_t)tag * cached->slot_bytes;
    if (reads_start(cached->reads, tag, to, cached->offset[layer] + (uint64_t)expert * cached->bytes[layer],
                    cached->bytes[layer], err))
        return -1;
    if (!cached->ended)
        return 0;
    cached->ended[(cached->oldest + cached->uncollected++) % cached->room] = tag;
    return reads_next(cached->reads, true, &tag, err) > 0 ? 0 : -1;
}

static int pause_for_read(void *context, struct err *err)
{
    const struct cached *cached = context;
    return reads_wait(cached->reads, cached->stop, err);
}

static int next_read(void *context, bool wait, int *tag, struct err *err)
{
    struct cached *cached = context;
    if (!cached->ended)
        return reads_next(cached->reads, wait, tag, err);
    *tag = cached->uncollected ? cached->ended[cached->oldest] : -1;
    if (!cached->uncollected)
        return 0;
    cached->oldest = (cached->oldest + 1) % cached->room;
    cached->uncollected--;
    return 1;
}

static double now(const void *context)
{
    (void)context;
    return clock_seconds();
}

static int copies(const void *context) { return staging_busy(((const struct cached *)context)->staging); }

static void copy(void *context, int from, int slot, int key)
{
    const struct cached *cached = context;
    staging_copy(cached->staging, from, slot, cached->bytes[key / cached->schedule.experts]);
}

static int next_copy(void *context, bool wait, int *from, struct err *err)
{
    return staging_next(((struct cached *)context)->staging, wait, from, err);
}

static bool has(const void *context, int slot) { return staging_has(((const struct cached *)context)->staging, slot); }

_Static_assert((int)SCHEDULE_COPIES <= (int)STAGING_COPIES, "the staging ring holds all copies");

static const struct transfers transfers = {.full = is_full, .start = start_read, .pause = pause_for_read, .next = next_read,
                                           .now = now, .copies = copies, .copy = copy, .next_copy = next_copy, .has = has};

/* ---- methods */

static void cached_begin(struct expert_source *source, int tokens, enum expert_forward forward, bool text)
{
    schedule_begin(&cached_of(source)->schedule, tokens, forward, text);
}

static int cached_prefetch(struct expert_source *source, int layer, const int32_t *expert, const int32_t *tokens, int count,
                           struct err *err)
{
    struct cached *cached = cached_of(source);
    return schedule_prefetch(&cached->schedule, cached->number[layer], expert, tokens, count, err);
}

static int cached_want(struct expert_source *source, const struct expert_union *wanted, enum expert_tier *tier,
                       struct err *err)
{
    struct cached *cached = cached_of(source);
    return schedule_want(&cached->schedule, cached->number[wanted->layer], wanted, tier, err);
}

static int slot_of(const struct cached *cached, const struct cache *cache, int expert)
{
    return cache_find(cache, cached->schedule.layer, expert);
}

static int cached_acquire(struct expert_source *source, struct expert_union *wanted, struct buffer *table, struct err *err)
{
    struct cached *cached = cached_of(source);
    if (schedule_acquire(&cached->schedule, cached->number[wanted->layer], wanted, err))
        return -1;
    for (int i = wanted->done; i < wanted->done + wanted->held; i++) {
        const int slot = slot_of(cached, cached->schedule.cache, wanted->expert[i]);
        if (cached->staging)
            staging_use(cached->staging, slot);
        cached->address[wanted->expert[i]] = cached->staging ? staging_address(cached->staging, slot)
                                                             : cached->block.address + (uint64_t)slot * cached->slot_bytes;
    }
    queue_upload(cached->device, cached->table, cached->address, (size_t)cached->schedule.experts * sizeof *cached->address);
    *table = cached->table;
    return 0;
}

static void cached_release(struct expert_source *source, struct expert_union *wanted)
{
    struct cached *cached = cached_of(source);
    for (int i = wanted->done; i < wanted->done + wanted->held && cached->staging; i++)
        staging_release(cached->staging, slot_of(cached, cached->schedule.cache, wanted->expert[i]));
    schedule_release(&cached->schedule, wanted);
}

static int cached_acquire_host(struct expert_source *source, struct expert_union *wanted, const void **address,
                               struct err *err)
{
    struct cached *cached = cached_of(source);
    if (schedule_acquire_host(&cached->schedule, cached->number[wanted->layer], wanted, err))
        return -1;
    for (int i = wanted->done; i < wanted->done + wanted->held; i++)
        address[i] = cached->staging
            ? staging_data(cached->staging, slot_of(cached, cached->schedule.host, wanted->expert[i]))
            : cached->memory + (size_t)slot_of(cached, cached->schedule.cache, wanted->expert[i]) * cached->slot_bytes;
    return 0;
}

static void cached_release_host(struct expert_source *source, struct expert_union *wanted)
{
    schedule_release_host(&cached_of(source)->schedule, wanted);
}

static void cached_keep(struct expert_source *source, int layer)
{
    struct cached *cached = cached_of(source);
    schedule_keep(&cached->schedule, layer < 0 ? -1 : cached->number[layer]);
}

static void cached_facts(const struct expert_source *source, struct store_facts *out)
{
    *out = schedule_facts(&((const struct cached *)source)->schedule);
}

static struct cache *cached_cache(const struct expert_source *source)
{
    return ((const struct cached *)source)->schedule.cache;
}

static const char *cached_method(const struct expert_source *source) { return ((const struct cached *)source)->way; }

static void cached_free(struct expert_source *source)
{
    struct cached *cached = cached_of(source);
    const bool abandoned = cached->reads && reads_busy(cached->reads) && stop_asked(cached->stop);
    (abandoned ? reads_abandon : reads_close)(&cached->reads);     /* first, because reads in flight write to the memory
                                                                    * freed below */
    cache_close(&cached->schedule.cache);
    cache_close(&cached->schedule.host);
    device_free(cached->device, &cached->table);
    if (!abandoned)
        staging_close(&cached->staging);
    if (!abandoned)
        large_pages_free(&cached->memory, cached->memory_bytes);
    schedule_free(&cached->schedule);
    mem_free(&cached->offset);
    mem_free(&cached->bytes);
    mem_free(&cached->address);
    mem_free(&cached->ended);
    mem_free(&cached);
}

/* ---- opening */

static int find_experts(struct cached *cached, const struct model *model, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    const size_t layers = (size_t)hparams_moe_layers(shape);
    struct schedule *s = &cached->schedule;
    s->experts = shape->router.experts;
    if (!(cached->offset = mem_alloc(layers, sizeof *cached->offset, err)) ||
        !(cached->bytes = mem_alloc(layers, sizeof *cached->bytes, err)))
        return -1;
    s->bytes = cached->bytes;
    for (int n = 0; n < shape->layers; n++) {
        cached->number[n] = -1;
        if (shape->layer[n].ffn != FFN_EXPERTS)
            continue;
        const struct tensor *tensor = model_tensor(model, err, "layers.%d.experts", n);
        if (!tensor)
            return -1;
        cached->number[n] = s->layers;
        cached->offset[s->layers] = tensor->offset;
        cached->bytes[s->layers++] = (size_t)tensor->stride;
        if (tensor->stride > cached->slot_bytes)
            cached->slot_bytes = (size_t)tensor->stride;
    }
    cached->slot_bytes = size_align(cached->slot_bytes, DIRECT_STEP);
    return 0;
}

/* Allocates the slots into which experts are read in place. */
static int make_slots(struct cached *cached, struct err *err)
{
    const struct schedule *s = &cached->schedule;
    if (!size_mul((size_t)s->slots, cached->slot_bytes, &cached->memory_bytes))
        return err_memory(err);
    cached->memory = large_pages_alloc(cached->memory_bytes);
    if (!cached->memory)
        return err_set(err, ERR_MEMORY, "there is not enough memory for %d experts of %zu bytes each; give a smaller "
                       "--cache-experts", s->slots,
                       cached->slot_bytes);
    cached->block = device_map(cached->device, cached->memory, cached->memory_bytes);
    return 0;
}

/* Opens device slots and host slots. Without a host tier: as many host slots as reads need, in LRU order. */
static int make_tiers(struct cached *cached, const struct cache_setup *cache, const struct expert_cache *setup, struct err *err)
{
    struct schedule *s = &cached->schedule;
    const int64_t all = (int64_t)s->layers * s->experts;
    struct cache_setup host = *cache;
    s->tier = setup->host_slots > 0;
    host.kept_out = NULL;
    host.slots = s->slots < SCHEDULE_READS ? s->slots : SCHEDULE_READS > cache->top_k ? SCHEDULE_READS : cache->top_k;
    if (s->tier)
        host.slots = (int)(setup->host_slots < all ? setup->host_slots : all);
    s->host_slots = host.slots;
    return cache_open(&s->host, s->tier ? setup->policy : "lru-global", &host, err) ||
           staging_open(&cached->staging, cached->device, s->slots, host.slots + 1, cached->slot_bytes, err) ? -1 : 0;
}

static void describe(struct cached *cached, const struct direct_file *file)
{
    const struct schedule *s = &cached->schedule;
    const int all = s->layers * s->experts;
    char host[64] = "";
    if (s->tier)
        snprintf(host, sizeof host, ", and that of the host %d", s->host_slots);
    snprintf(cached->way, sizeof cached->way, "%s%s; memory holds %d of %d%s", reads_method(cached->reads),
             file->direct ? ", past the page cache" : ", through the page cache, as this file system has no other way",
             s->slots, all, host);
}

/* Marks the experts that a static split leaves to the host, because forecasts and policies name all experts of a layer. */
static int keep_out(bool **out, const struct schedule *s, const struct split_rule *split, struct err *err)
{
    const int all = s->layers * s->experts;
    bool *kept_out = mem_alloc((size_t)all, sizeof *kept_out, err);
    for (int key = 0; kept_out && key < all; key++)
        kept_out[key] = !split_rule_on_device(split, s->layers, s->experts, s->slots, key / s->experts,
                                              key % s->experts);
    *out = kept_out;
    return kept_out ? 0 : -1;
}

static int open_parts(struct cached *cached, const struct model *model, const struct expert_cache *setup, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    const struct direct_file *file = model_file(model);
    struct schedule *s = &cached->schedule;
    s->transfers = &transfers;
    s->context = cached;
    s->prefetches_max = SCHEDULE_PREFETCHES;
    if (find_experts(cached, model, err))
        return -1;
    const int64_t all = (int64_t)s->layers * s->experts;
    s->slots = (int)(setup->slots < all ? setup->slots : all);
    bool *kept_out = NULL;
    if (setup->split.kind == SPLIT_STATIC && keep_out(&kept_out, s, &setup->split, err))
        return -1;
    const struct cache_setup cache = {.layers = s->layers, .experts = s->experts, .slots = s->slots,
                                      .top_k = shape->router.top_k, .draft_length = setup->draft_length,
                                      .pins = setup->pins, .pin_weight = setup->pin_weight, .pinned = setup->pinned,
                                      .ranked = setup->ranked, .kept_out = kept_out};
    const size_t bytes = (size_t)s->experts * sizeof *cached->address;
    const int rc = cache_open(&s->cache, setup->policy, &cache, err);
    mem_free(&kept_out);
    if (rc || !(cached->address = mem_alloc((size_t)s->experts, sizeof *cached->address, err)) ||
        device_alloc(cached->device, bytes, &cached->table, err) ||
        (device_info(cached->device)->host_memory ? make_slots(cached, err) : make_tiers(cached, &cache, setup, err)) ||
        schedule_open(s, err))
        return -1;
    const int max_reads = s->host ? s->host_slots + 1 : s->slots;
    cached->room = max_reads;
    if (setup->at_once && !(cached->ended = mem_alloc((size_t)max_reads, sizeof *cached->ended, err)))
        return -1;
    if (reads_open(&cached->reads, file, max_reads < SCHEDULE_READS ? max_reads : SCHEDULE_READS, setup->threads, err))
        return -1;
    describe(cached, file);
    return 0;
}

static const struct expert_source_class cached_class = {
    .name = "cached", .begin = cached_begin, .prefetch = cached_prefetch, .acquire = cached_acquire, .release = cached_release,
    .want = cached_want, .acquire_host = cached_acquire_host, .release_host = cached_release_host, .keep = cached_keep,
    .facts = cached_facts, .cache = cached_cache, .method = cached_method, .free = cached_free};

int expert_source_cached(struct expert_source **out, const struct model *model, struct device *device,
                         const struct expert_cache *setup, struct err *err)
{
    struct cached *cached = mem_alloc(1, sizeof *cached, err);
    if (!cached)
        return -1;
    cached->base.class = &cached_class;
    cached->device = device;
    cached->stop = setup->stop;
    if (open_parts(cached, model, setup, err) || schedule_first(&cached->schedule, err)) {
        cached_free(&cached->base);
        return -1;
    }
    *out = &cached->base;
    return 0;
}
