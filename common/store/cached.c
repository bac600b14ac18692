/* Experts in slots of memory, of all layers together; those that are wanted and not there are read from the model file, each
 * in one read. Who stays and who goes, common/cache decides.
 *
 * Devices that share the host's memory are read for in place. For others a read goes into a buffer of the host, and from there
 * to the device while it computes (staging.h). What has come is computed first; when there is nothing more of it, the device's
 * own queue waits for copies, and the host goes on. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/cache/balance.h"
#include "common/cache/utility.h"
#include "common/store/expert_source.h"
#include "common/store/reads.h"
#include "common/store/staging.h"

/* So many reads at once, and so many of them beforehand: those that are wanted now do not queue after many others. */
enum { DEPTH = 64, DEPTH_BEFOREHAND = 8 };

struct slot {
    bool ready;                          /* all of it has been read */
    bool beforehand;                     /* it is read without being wanted, and held until it has come */
    int buffer;                          /* of staging, where it is read into; -1: in place */
};

/* Where the experts of a layer lie in the file. */
struct extent {
    uint64_t offset, stride;
    size_t bytes;
};

struct cached {
    struct expert_source base;
    struct device *device;
    struct cache *cache;
    struct reads *reads;
    int layers, experts, slots;          /* layers: with experts */
    int32_t number[LAYERS_MAX];          /* of all layers: which of those with experts; -1: it has none */
    struct extent *extent;               /* [layers] */
    size_t slot_bytes;
    char *memory;                        /* slots that are read into in place; NULL: they are the device's own */
    size_t memory_bytes;
    struct buffer block;                 /* `memory` as the device sees it */
    struct staging *staging;             /* NULL: in place */
    struct slot *slot;
    uint64_t *address;                   /* [experts] */
    struct buffer table;
    bool *holds;                         /* [experts] of the union at work, which is of this layer */
    int layer;
    int beforehand;                      /* reads under way */
    struct err fault;                    /* a read has failed: nothing works any more */
    struct store_facts facts;
    char way[320];
};

static struct cached *cached_of(struct expert_source *source) { return (struct cached *)source; }

static const struct extent *extent_of(const struct cached *cached, int slot)
{
    return &cached->extent[cache_key(cached->cache, slot) / cached->experts];
}

/* ---- reads */

/* Whether there is room for one more; *buffer is the staging's to read into, which start_read or end_start must get. */
static bool can_start(struct cached *cached, int *buffer)
{
    *buffer = -1;
    return !reads_full(cached->reads) && (!cached->staging || (*buffer = staging_take(cached->staging)) >= 0);
}

static void end_start(struct cached *cached, int buffer)
{
    if (buffer >= 0)
        staging_give_back(cached->staging, buffer);
}

/* The expert whose slot it is now is read into it; `wasted` says how many that nobody had wanted had gone before. */
static int start_read(struct cached *cached, int slot, int buffer, bool beforehand, int victim, int64_t wasted,
                      struct err *err)
{
    const int key = cache_key(cached->cache, slot);
    const struct extent *extent = extent_of(cached, slot);
    const uint64_t offset = extent->offset + (uint64_t)(key % cached->experts) * extent->stride;
    struct slot *at = &cached->slot[slot];
    if (victim >= 0 && cache_counts(cached->cache).wasted > wasted)
        cached->facts.wasted += (int64_t)cached->extent[victim / cached->experts].bytes;
    *at = (struct slot){.beforehand = beforehand, .buffer = buffer};
    void *to = buffer < 0 ? cached->memory + (size_t)slot * cached->slot_bytes : staging_data(cached->staging, buffer);
    if (reads_start(cached->reads, slot, to, offset, extent->bytes, err)) {
        end_start(cached, buffer);
        cache_drop(cached->cache, slot);
        return -1;
    }
    cached->beforehand += beforehand;
    cached->facts.bytes += (int64_t)extent->bytes;
    cached->facts.prefetched += beforehand ? (int64_t)extent->bytes : 0;
    return 0;
}

/* Takes note of a read that has ended, if there is one. 1, 0 or -1 as reads_next. */
static int take_read(struct cached *cached, bool wait, struct err *err)
{
    int slot, got = reads_next(cached->reads, wait, &slot, &cached->fault);
    if (got < 0)
        err_set(err, cached->fault.code, "%s", cached->fault.text);
    if (slot < 0)
        return got;
    struct slot *at = &cached->slot[slot];
    if (at->buffer >= 0 && got > 0)
        staging_copy(cached->staging, at->buffer, slot, extent_of(cached, slot)->bytes);
    else
        end_start(cached, at->buffer);
    at->ready = got > 0;
    if (at->beforehand && got > 0)
        cache_release(cached->cache, slot);
    cached->beforehand -= at->beforehand;
    at->beforehand = false;
    return got;
}

/* Waits for a read; when none is under way, for a copy, after which its buffer can be read into. */
static int take_any(struct cached *cached, struct err *err)
{
    const int got = take_read(cached, true, err);
    return got || !cached->staging ? got : staging_wait(cached->staging, err);
}

/* Reads beforehand as long as there is room, and something to read. Once all slots are taken, half of them at most are for what
 * nobody has wanted yet: more of it would drive out itself, before its layer's turn. */
static int read_beforehand(struct cached *cached, struct err *err)
{
    int slot, key, victim, buffer;
    while (cached->beforehand < DEPTH_BEFOREHAND && can_start(cached, &buffer)) {
        const struct cache_counts counts = cache_counts(cached->cache);
        const int64_t wasted = counts.wasted;
        const bool enough = cache_is_full(cached->cache) &&
                            2 * (counts.prefetched - counts.useful - wasted) >= cached->slots;
        if (enough || (slot = cache_fetch(cached->cache, &key, &victim)) < 0) {
            end_start(cached, buffer);
            return 0;
        }
        if (start_read(cached, slot, buffer, true, victim, wasted, err))
            return -1;
    }
    return 0;
}

/* Starts reads of experts of the union that are not done, as far as there are slots for them. */
static int read_wanted(struct cached *cached, const struct expert_union *wanted, struct err *err)
{
    for (int i = wanted->done; i < wanted->count; i++) {
        const int expert = wanted->expert[i];
        int victim, slot, buffer;
        if (cached->holds[expert])
            continue;
        int64_t wasted = cache_counts(cached->cache).wasted;
        if ((slot = cache_find(cached->cache, cached->layer, expert)) >= 0) {       /* it came beforehand */
            cache_hold(cached->cache, slot);
        } else {
            if (!can_start(cached, &buffer))
                break;
            if ((slot = cache_insert(cached->cache, cached->layer, expert, CACHE_DEMAND, &victim)) < 0) {
                end_start(cached, buffer);
                break;
            }
            if (start_read(cached, slot, buffer, false, victim, wasted, err))
                return -1;
        }
        cached->holds[expert] = true;
    }
    return 0;
}

/* ---- a union */

/* Lets go what a union holds whose forward has failed: not before all that is read for it is there. */
static int end_last(struct cached *cached, struct err *err)
{
    for (int e = 0; e < cached->experts; e++) {
        if (!cached->holds[e])
            continue;
        const int slot = cache_find(cached->cache, cached->layer, e);
        while (!cached->slot[slot].ready)
            if (take_read(cached, true, err) < 0)
                return -1;
        cache_release(cached->cache, slot);
        cached->holds[e] = false;
    }
    return 0;
}

/* What is there stays for the union: so nothing that comes for it drives it out. */
static int begin_union(struct cached *cached, const struct expert_union *wanted, struct err *err)
{
    if (end_last(cached, err))
        return -1;
    cached->layer = cached->number[wanted->layer];
    struct cache_counts before = cache_counts(cached->cache);
    cache_want(cached->cache, cached->layer, wanted->expert, wanted->tokens, wanted->count);
    struct cache_counts now = cache_counts(cached->cache);
    cached->facts.hits += now.hits - before.hits;
    cached->facts.misses += wanted->count - (now.hits - before.hits);
    for (int i = 0; i < wanted->count; i++) {
        int slot = cache_find(cached->cache, cached->layer, wanted->expert[i]);
        if (slot < 0)
            continue;
        cache_hold(cached->cache, slot);
        cached->holds[wanted->expert[i]] = true;
    }
    return 0;
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t old = *a;
    *a = *b;
    *b = old;
}

/* Moves those that are there to the front of those that are not done, or also those that a copy brings; answers how many. */
static int find_ready(const struct cached *cached, const struct expert_union *wanted, bool copies)
{
    int end = wanted->done;
    for (int i = wanted->done; i < wanted->count; i++) {
        const int expert = wanted->expert[i];
        if (!cached->holds[expert])
            continue;
        const int slot = cache_find(cached->cache, cached->layer, expert);
        if (!cached->slot[slot].ready || (cached->staging && !copies && !staging_has(cached->staging, slot)))
            continue;
        swap(&wanted->expert[end], &wanted->expert[i]);
        swap(&wanted->tokens[end++], &wanted->tokens[i]);
    }
    return end - wanted->done;
}

/* Starts what reads can be started, and waits if there is nothing to compute with. */
static int gather(struct cached *cached, struct expert_union *wanted, struct err *err)
{
    for (;;) {
        int got;
        if (read_wanted(cached, wanted, err))
            return -1;
        while ((got = take_read(cached, false, err)) > 0)
            continue;
        if (got < 0 || read_wanted(cached, wanted, err))
            return -1;
        if (cached->staging)
            staging_look(cached->staging);
        if ((wanted->held = find_ready(cached, wanted, false)) > 0 || (wanted->held = find_ready(cached, wanted, true)) > 0)
            return 0;
        const double start = clock_seconds();
        got = take_any(cached, err);
        cached->facts.stall += clock_seconds() - start;
        if (got < 0)
            return -1;
        if (!got)
            return err_set(err, ERR_INPUT, "the cache policy keeps all %d experts and gives none for those that are wanted",
                           cached->slots);
    }
}

static int cached_acquire(struct expert_source *source, struct expert_union *wanted, struct buffer *table, struct err *err)
{
    struct cached *cached = cached_of(source);
    if (cached->fault.code)
        return err_set(err, cached->fault.code, "%s", cached->fault.text);
    if ((!wanted->done && begin_union(cached, wanted, err)) || gather(cached, wanted, err) || read_beforehand(cached, err))
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

/* ---- the rest of a source */

static void cached_begin(struct expert_source *source, int tokens, enum expert_forward forward, bool text)
{
    static const enum cache_forward as[] = {[EXPERTS_VERIFY] = CACHE_VERIFIES, [EXPERTS_PROMPT] = CACHE_PROMPT,
                                            [EXPERTS_DRAFT] = CACHE_DRAFTS};
    struct cached *cached = cached_of(source);
    if (text)
        cache_begin(cached->cache);
    cache_step(cached->cache, tokens, as[forward]);
}

static int cached_prefetch(struct expert_source *source, int layer, const int32_t *expert, const int32_t *tokens, int count,
                           struct err *err)
{
    struct cached *cached = cached_of(source);
    int got;
    if (cached->fault.code)
        return err_set(err, cached->fault.code, "%s", cached->fault.text);
    for (int i = 0; i < count; i++)
        cache_expect(cached->cache, cached->number[layer], expert[i], tokens ? tokens[i] : 1);
    cached->facts.forecasts = true;
    while ((got = take_read(cached, false, err)) > 0)
        continue;
    return got < 0 ? -1 : read_beforehand(cached, err);
}

static void cached_facts(const struct expert_source *source, struct store_facts *out)
{
    const struct cached *cached = (const struct cached *)source;
    const struct cache_counts counts = cache_counts(cached->cache);
    *out = cached->facts;
    out->named = counts.named;
    out->right = counts.right;
    out->scored = counts.scored;
    out->forecasts |= counts.named > 0;
}

static void cached_free(struct expert_source *source)
{
    struct cached *cached = cached_of(source);
    reads_close(&cached->reads);                       /* first: reads write into memory */
    cache_close(&cached->cache);
    device_free(cached->device, &cached->table);
    staging_close(&cached->staging);
    if (cached->memory)
        munmap(cached->memory, cached->memory_bytes);
    mem_free(&cached->extent);
    mem_free(&cached->slot);
    mem_free(&cached->address);
    mem_free(&cached->holds);
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
        cached->extent[cached->layers++] = (struct extent){tensor->offset, tensor->stride, (size_t)tensor->stride};
        if (tensor->stride > cached->slot_bytes)
            cached->slot_bytes = (size_t)tensor->stride;
    }
    cached->slot_bytes = size_align(cached->slot_bytes, DIRECT_STEP);
    return 0;
}

/* Slots in memory that reads go to; or on the device, and buffers for reads besides. */
static int make_slots(struct cached *cached, struct err *err)
{
    if (!device_info(cached->device)->host_memory)
        return staging_open(&cached->staging, cached->device, cached->slots, cached->slots < DEPTH ? cached->slots : DEPTH,
                            cached->slot_bytes, err);
    if (!size_mul((size_t)cached->slots, cached->slot_bytes, &cached->memory_bytes))
        return err_memory(err);
    void *memory = mmap(NULL, cached->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return err_set(err, ERR_MEMORY, "no memory for %d experts of %zu bytes; let fewer be cached", cached->slots,
                       cached->slot_bytes);
    madvise(memory, cached->memory_bytes, MADV_HUGEPAGE);                /* a wish */
    cached->memory = memory;
    cached->block = device_map(cached->device, memory, cached->memory_bytes);
    return 0;
}

static int open_parts(struct cached *cached, const struct model *model, const struct expert_cache *setup, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    const struct direct_file *file = model_file(model);
    if (find_experts(cached, model, err))
        return -1;
    const int64_t all = (int64_t)cached->layers * cached->experts;
    cached->slots = (int)(setup->slots < all ? setup->slots : all);
    const struct cache_setup cache = {.layers = cached->layers, .experts = cached->experts, .slots = cached->slots,
                                      .top_k = shape->router.top_k, .draft_length = setup->draft_length,
                                      .pins = setup->pins, .pin_weight = setup->pin_weight, .pinned = setup->pinned,
                                      .ranked = setup->ranked};
    const size_t bytes = (size_t)cached->experts * sizeof *cached->address;
    if (cache_open(&cached->cache, setup->policy, &cache, err) ||
        !(cached->slot = mem_alloc((size_t)cached->slots, sizeof *cached->slot, err)) ||
        !(cached->address = mem_alloc((size_t)cached->experts, sizeof *cached->address, err)) ||
        !(cached->holds = mem_alloc((size_t)cached->experts, sizeof *cached->holds, err)) ||
        device_alloc(cached->device, bytes, &cached->table, err) || make_slots(cached, err) ||
        reads_open(&cached->reads, file, cached->slots < DEPTH ? cached->slots : DEPTH, setup->threads, err))
        return -1;
    snprintf(cached->way, sizeof cached->way, "%s%s; memory holds %d of %d", reads_way(cached->reads),
             file->direct ? ", past the page cache" : ", through the page cache, as this file system has no other way",
             cached->slots, (int)all);
    return 0;
}

/* What the policy wants to begin with is there before anything is decoded: once a layer has had its turn, what was not read for
 * it is no more asked for. */
static int read_first(struct cached *cached, struct err *err)
{
    int got;
    do
        got = read_beforehand(cached, err) ? -1 : take_any(cached, err);
    while (got > 0);
    return got;
}

static const struct expert_source_class cached_class = {
    .name = "cached", .begin = cached_begin, .prefetch = cached_prefetch, .acquire = cached_acquire, .release = cached_release,
    .facts = cached_facts, .free = cached_free};

int expert_source_cached(struct expert_source **out, const struct model *model, struct device *device,
                         const struct expert_cache *setup, struct err *err)
{
    struct cached *cached = mem_alloc(1, sizeof *cached, err);
    if (!cached)
        return -1;
    cached->base.class = &cached_class;
    cached->device = device;
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

int expert_source_look(const struct expert_source *source, int layer, int32_t *fetches)
{
    const struct cached *cached = (const struct cached *)source;
    int K;
    const struct utility_expert *all = cache_utility_states(cached->cache, &K);
    return balance_look(cached->cache, all, K, cached->number[layer], cached->experts, cached->slots, fetches);
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

const char *expert_source_way(const struct expert_source *source)
{
    return source && source->class == &cached_class ? ((const struct cached *)source)->way : NULL;
}
