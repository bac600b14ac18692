/* Brings experts into the slots of a cached source. */
#include "common/base/clock.h"
#include "common/store/cached.h"

static const struct cached_extent *extent_of(const struct cached *cached, int key)
{
    return &cached->extent[key / cached->experts];
}

/* Returns the bytes of the evicted expert `victim` if it was prefetched and never requested, else 0. before: the cache's
 * counters before the eviction. */
static int64_t wasted_by(const struct cached *cached, const struct cache *cache, const struct cache_counts *before, int victim)
{
    return victim >= 0 && cache_counts(cache).wasted > before->wasted ? (int64_t)extent_of(cached, victim)->bytes : 0;
}

/* Starts to read an expert. tag: the slot; staged: the host slot. */
static int start_read(struct cached *cached, int tag, int key, void *to, bool beforehand, struct err *err)
{
    const struct cached_extent *extent = extent_of(cached, key);
    const uint64_t offset = extent->offset + (uint64_t)(key % cached->experts) * extent->stride;
    if (reads_start(cached->reads, tag, to, offset, extent->bytes, err))
        return -1;
    cached->beforehand += beforehand;
    cached->facts.bytes += (int64_t)extent->bytes;
    cached->facts.prefetched += beforehand ? (int64_t)extent->bytes : 0;
    return 0;
}

/* ---- the host's slots */

void cached_release_host_slot(struct cached *cached, int host_slot)
{
    if (host_slot == cached->host_slots)
        cached->spare_busy = false;
    else
        cache_release(cached->host, host_slot);
}

/* Collects a completed copy. Returns 1, 0 or -1 like staging_next. */
static int take_copy(struct cached *cached, bool wait, struct err *err)
{
    int from, got = staging_next(cached->staging, wait, &from, err);
    if (got)
        cached_release_host_slot(cached, from);
    return got;
}

/* Queues the copy from a held host slot to a device slot. */
static int start_copy(struct cached *cached, int from, int slot, struct err *err)
{
    const size_t bytes = extent_of(cached, cache_key(cached->cache, slot))->bytes;
    struct cached_slot *at = &cached->slot[slot];
    while (staging_busy(cached->staging) == STAGING_COPIES)
        if (take_copy(cached, true, err) < 0)
            return -1;
    staging_copy(cached->staging, from, slot, bytes);
    cached->facts.copied += (int64_t)bytes;
    cached->facts.copied_early += at->beforehand ? (int64_t)bytes : 0;
    at->ready = true;
    if (at->beforehand)
        cache_release(cached->cache, slot);
    at->beforehand = false;
    return 0;
}

/* Returns a held host slot for an expert that has none; -1: none is available. */
static int insert_host(struct cached *cached, int key, enum cache_reason reason)
{
    const struct cache_counts before = cache_counts(cached->host);
    int victim, slot = cache_insert(cached->host, key / cached->experts, key % cached->experts, reason, &victim);
    cached->facts.wasted += wasted_by(cached, cached->host, &before, victim);
    return slot;
}

/* Starts to read an expert into a host slot, or into the spare buffer. to: device slot that waits for it; -1: none. */
static int read_host(struct cached *cached, int host_slot, int key, int to, bool beforehand, struct err *err)
{
    cached->host_slot[host_slot] = (struct cached_host_slot){.beforehand = beforehand, .alone = beforehand && to < 0,
                                                                 .to = to};
    if (!start_read(cached, host_slot, key, staging_data(cached->staging, host_slot), beforehand, err))
        return 0;
    if (host_slot == cached->host_slots)
        cached->spare_busy = false;
    else
        cache_drop(cached->host, host_slot);
    return -1;
}

int cached_bring_host(struct cached *cached, int expert, struct err *err)
{
    const int key = cached->layer * cached->experts + expert;
    int slot = cache_find(cached->host, cached->layer, expert);
    if (slot >= 0) {
        cache_hold(cached->host, slot);
        return 1;
    }
    if (reads_full(cached->reads) || (slot = insert_host(cached, key, CACHE_DEMAND)) < 0)
        return 0;
    return read_host(cached, slot, key, -1, false, err) ? -1 : 1;
}

/* ---- slots that are computed with */

/* Returns whether an expert that is not in a slot could be brought now: the host has it, or another read can start. */
static bool can_start(const struct cached *cached, int key)
{
    if (!cached->host)
        return !reads_full(cached->reads);
    return cache_find(cached->host, key / cached->experts, key % cached->experts) >= 0 ||
           (!reads_full(cached->reads) && (!cached->spare_busy || cache_has_room(cached->host)));
}

/* Brings an expert into a device slot: queues its copy now, or after a read that is in flight or started here. Returns 1; 0 if
 * no host slot is available; -1. */
static int start_staged(struct cached *cached, int slot, struct err *err)
{
    const int key = cache_key(cached->cache, slot);
    const bool beforehand = cached->slot[slot].beforehand;
    int from = cache_find(cached->host, key / cached->experts, key % cached->experts);
    if (from >= 0) {
        cache_hold(cached->host, from);
        if (cached->host_slot[from].ready)
            return start_copy(cached, from, slot, err) ? -1 : 1;
        cached->host_slot[from].to = slot;
        return 1;
    }
    if ((from = insert_host(cached, key, beforehand ? CACHE_PREFETCH : CACHE_DEMAND)) < 0) {
        if (cached->spare_busy)
            return 0;
        cached->spare_busy = true;
        from = cached->host_slots;
    }
    return read_host(cached, from, key, slot, beforehand, err) ? -1 : 1;
}

/* Brings the slot's new expert into it. Returns 1, 0, -1 as above; unless 1, the slot is free again. */
static int start_slot(struct cached *cached, int slot, bool beforehand, struct err *err)
{
    const int key = cache_key(cached->cache, slot);
    int rc;
    cached->slot[slot] = (struct cached_slot){.beforehand = beforehand};
    if (cached->host)
        rc = start_staged(cached, slot, err);
    else
        rc = start_read(cached, slot, key, cached->memory + (size_t)slot * cached->slot_bytes, beforehand, err) ? -1 : 1;
    if (rc <= 0)
        cache_drop(cached->cache, slot);
    return rc;
}

/* Counts an evicted expert that was prefetched in vain. */
static void count_victim(struct cached *cached, const struct cache_counts *before, int victim)
{
    *(cached->host ? &cached->facts.copied_wasted : &cached->facts.wasted) += wasted_by(cached, cached->cache, before, victim);
}

int cached_bring(struct cached *cached, int expert, struct err *err)
{
    const struct cache_counts before = cache_counts(cached->cache);
    int victim, slot;
    if (!can_start(cached, cached->layer * cached->experts + expert) ||
        (slot = cache_insert(cached->cache, cached->layer, expert, CACHE_DEMAND, &victim)) < 0)
        return 0;
    count_victim(cached, &before, victim);
    return start_slot(cached, slot, false, err);
}

/* ---- beforehand */

/* Returns whether enough slots contain prefetched experts without a request so far: once all slots are in use, half of them.
 * Further prefetches would evict each other before their layer's turn. */
static bool has_enough(const struct cache *cache, int slots)
{
    const struct cache_counts counts = cache_counts(cache);
    return cache_is_full(cache) && 2 * (counts.prefetched - counts.useful - counts.wasted) >= slots;
}

/* Starts prefetches into the slots for computation. */
static int start_prefetches(struct cached *cached, struct err *err)
{
    for (int rc = 1; rc > 0;) {
        const struct cache_counts before = cache_counts(cached->cache);
        const int asked = cache_asked(cached->cache);
        int slot, key, victim;
        if (asked < 0 || cached->beforehand >= CACHED_BEFOREHAND || !can_start(cached, asked) ||
            (cached->host && staging_busy(cached->staging) >= CACHED_BEFOREHAND) || has_enough(cached->cache, cached->slots) ||
            (slot = cache_fetch(cached->cache, &key, &victim)) < 0)
            return 0;
        count_victim(cached, &before, victim);
        if ((rc = start_slot(cached, slot, true, err)) < 0)
            return -1;
    }
    return 0;
}

/* Starts prefetches into the host tier, except for experts that the device already has. */
static int bring_host_requests(struct cached *cached, struct err *err)
{
    while (cached->tier && cached->beforehand < CACHED_BEFOREHAND && !reads_full(cached->reads)) {
        const struct cache_counts before = cache_counts(cached->host);
        const int asked = cache_asked(cached->host);
        int slot, key, victim;
        if (asked >= 0 && cache_find(cached->cache, asked / cached->experts, asked % cached->experts) >= 0) {
            cache_unask(cached->host, asked);
            continue;
        }
        if (asked < 0 || has_enough(cached->host, cached->host_slots) || (slot = cache_fetch(cached->host, &key, &victim)) < 0)
            return 0;
        cached->facts.wasted += wasted_by(cached, cached->host, &before, victim);
        if (read_host(cached, slot, key, -1, true, err))
            return -1;
    }
    return 0;
}

int cached_bring_beforehand(struct cached *cached, struct err *err)
{
    return start_prefetches(cached, err) || bring_host_requests(cached, err) ? -1 : 0;
}

/* ---- what has ended */

static void end_read(struct cached *cached, int slot, bool good)
{
    struct cached_slot *at = &cached->slot[slot];
    at->ready = good;
    if (at->beforehand && good)
        cache_release(cached->cache, slot);
    cached->beforehand -= at->beforehand;
    at->beforehand = false;
}

static int end_read_host(struct cached *cached, int host_slot, bool good, struct err *err)
{
    struct cached_host_slot *at = &cached->host_slot[host_slot];
    const struct cached_host_slot was = *at;
    *at = (struct cached_host_slot){.ready = good, .to = -1};
    cached->beforehand -= was.beforehand;
    if (was.alone)
        cached_release_host_slot(cached, host_slot);
    return was.to >= 0 && good ? start_copy(cached, host_slot, was.to, err) : 0;
}

/* Collects a completed read. Returns 1, 0 or -1 like reads_next. */
static int take_read(struct cached *cached, bool wait, struct err *err)
{
    int slot, got = reads_next(cached->reads, wait, &slot, &cached->fault);
    if (slot >= 0 && cached->host)
        got = end_read_host(cached, slot, got > 0, &cached->fault) ? -1 : got;
    else if (slot >= 0)
        end_read(cached, slot, got > 0);
    return got < 0 ? err_set(err, cached->fault.code, "%s", cached->fault.text) : got;
}

int cached_poll(struct cached *cached, struct err *err)
{
    int got;
    while ((got = take_read(cached, false, err)) > 0)
        continue;
    while (!got && cached->host && (got = take_copy(cached, false, err)) > 0)
        got = 0;
    return got;
}

int cached_wait(struct cached *cached, struct err *err)
{
    const double start = clock_seconds();
    if (reads_wait(cached->reads, cached->stop, err))
        return -1;
    int got = take_read(cached, true, err);
    if (!got && cached->host) {
        got = take_copy(cached, true, err);
        cached->facts.stall_copies += clock_seconds() - start;
    }
    cached->facts.stall += clock_seconds() - start;
    return got;
}
