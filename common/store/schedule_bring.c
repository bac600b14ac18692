/* Brings experts into slots. */
#include "common/store/schedule.h"

static int64_t bytes_of(const struct schedule *s, int key) { return (int64_t)s->bytes[key / s->experts]; }

/* Returns the bytes of the evicted expert `victim` if it was prefetched and never requested, else 0. before: the cache's
 * counters before the eviction. */
static int64_t wasted_by(const struct schedule *s, const struct cache *cache, const struct cache_counts *before, int victim)
{
    return victim >= 0 && cache_counts(cache).wasted > before->wasted ? bytes_of(s, victim) : 0;
}

static bool is_full(const struct schedule *s) { return s->transfers->full(s->context); }

/* Starts to read an expert. tag: the slot; staged: the host slot. */
static int start_read(struct schedule *s, int tag, int key, bool prefetch, struct err *err)
{
    if (s->transfers->start(s->context, tag, key, err))
        return -1;
    s->prefetches += prefetch;
    s->facts.bytes += bytes_of(s, key);
    s->facts.prefetched += prefetch ? bytes_of(s, key) : 0;
    return 0;
}

/* ---- the host's slots */

void schedule_release_host_slot(struct schedule *s, int host_slot)
{
    if (host_slot == s->host_slots)
        s->spare_busy = false;
    else
        cache_release(s->host, host_slot);
}

/* Collects a completed copy. Returns 1, 0 or -1 like `next`. */
static int take_copy(struct schedule *s, bool wait, struct err *err)
{
    int from, got = s->transfers->next_copy(s->context, wait, &from, err);
    if (got)
        schedule_release_host_slot(s, from);
    return got;
}

/* Queues the copy from a held host slot to a device slot. */
static int start_copy(struct schedule *s, int from, int slot, struct err *err)
{
    const int key = cache_key(s->cache, slot);
    struct schedule_slot *at = &s->slot[slot];
    while (s->transfers->copies(s->context) == SCHEDULE_COPIES)
        if (take_copy(s, true, err) < 0)
            return -1;
    s->transfers->copy(s->context, from, slot, key);
    s->facts.copied += bytes_of(s, key);
    s->facts.copied_early += at->prefetch ? bytes_of(s, key) : 0;
    at->ready = true;
    if (at->prefetch)
        cache_release(s->cache, slot);
    at->prefetch = false;
    return 0;
}

/* Returns a held host slot for an expert that has none; -1: none is available. */
static int insert_host(struct schedule *s, int key, enum cache_reason reason)
{
    const struct cache_counts before = cache_counts(s->host);
    int victim, slot = cache_insert(s->host, key / s->experts, key % s->experts, reason, &victim);
    s->facts.wasted += wasted_by(s, s->host, &before, victim);
    return slot;
}

/* Starts to read an expert into a host slot, or into the spare buffer. to: device slot that waits for it; -1: none. */
static int read_host(struct schedule *s, int host_slot, int key, int to, bool prefetch, struct err *err)
{
    s->host_slot[host_slot] = (struct schedule_host_slot){.prefetch = prefetch, .alone = prefetch && to < 0,
                                                                 .to = to};
    if (!start_read(s, host_slot, key, prefetch, err))
        return 0;
    if (host_slot == s->host_slots)
        s->spare_busy = false;
    else
        cache_drop(s->host, host_slot);
    return -1;
}

int schedule_bring_host(struct schedule *s, int expert, struct err *err)
{
    const int key = s->layer * s->experts + expert;
    int slot = cache_find(s->host, s->layer, expert);
    if (slot >= 0) {
        cache_hold(s->host, slot);
        return 1;
    }
    if (is_full(s) || (slot = insert_host(s, key, CACHE_DEMAND)) < 0)
        return 0;
    return read_host(s, slot, key, -1, false, err) ? -1 : 1;
}

/* ---- slots for computation */

/* Returns whether an expert that is not in a slot could be brought now: the host has it, or another read can start. */
static bool can_start(const struct schedule *s, int key)
{
    if (!s->host)
        return !is_full(s);
    return cache_find(s->host, key / s->experts, key % s->experts) >= 0 ||
           (!is_full(s) && (!s->spare_busy || cache_has_room(s->host)));
}

/* Brings an expert into a device slot: queues its copy now, or after a read that is in flight or started here. Returns 1; 0 if
 * no host slot is available; -1. */
static int start_staged(struct schedule *s, int slot, struct err *err)
{
    const int key = cache_key(s->cache, slot);
    const bool prefetch = s->slot[slot].prefetch;
    int from = cache_find(s->host, key / s->experts, key % s->experts);
    if (from >= 0) {
        cache_hold(s->host, from);
        if (s->host_slot[from].ready)
            return start_copy(s, from, slot, err) ? -1 : 1;
        s->host_slot[from].to = slot;
        return 1;
    }
    if ((from = insert_host(s, key, prefetch ? CACHE_PREFETCH : CACHE_DEMAND)) < 0) {
        if (s->spare_busy)
            return 0;
        s->spare_busy = true;
        from = s->host_slots;
    }
    return read_host(s, from, key, slot, prefetch, err) ? -1 : 1;
}

/* Brings the slot's new expert into it. Returns 1, 0, -1 as above; unless 1, the slot is free again. */
static int start_slot(struct schedule *s, int slot, bool prefetch, struct err *err)
{
    const int key = cache_key(s->cache, slot);
    int rc;
    s->slot[slot] = (struct schedule_slot){.prefetch = prefetch};
    if (s->host)
        rc = start_staged(s, slot, err);
    else
        rc = start_read(s, slot, key, prefetch, err) ? -1 : 1;
    if (rc <= 0)
        cache_drop(s->cache, slot);
    return rc;
}

/* Counts an evicted expert that was prefetched in vain. */
static void count_victim(struct schedule *s, const struct cache_counts *before, int victim)
{
    *(s->host ? &s->facts.copied_wasted : &s->facts.wasted) += wasted_by(s, s->cache, before, victim);
}

int schedule_bring(struct schedule *s, int expert, struct err *err)
{
    const struct cache_counts before = cache_counts(s->cache);
    int victim, slot;
    if (!can_start(s, s->layer * s->experts + expert) ||
        (slot = cache_insert(s->cache, s->layer, expert, CACHE_DEMAND, &victim)) < 0)
        return 0;
    count_victim(s, &before, victim);
    return start_slot(s, slot, false, err);
}

/* ---- prefetches */

/* Returns whether enough slots contain prefetched experts without a request so far: once all slots are in use, half of them.
 * Further prefetches would evict each other before their layer's turn. */
static bool has_enough(const struct cache *cache, int slots)
{
    const struct cache_counts counts = cache_counts(cache);
    return cache_is_full(cache) && 2 * (counts.prefetched - counts.useful - counts.wasted) >= slots;
}

/* Starts prefetches into the slots for computation. */
static int start_prefetches(struct schedule *s, struct err *err)
{
    for (int rc = 1; rc > 0;) {
        const struct cache_counts before = cache_counts(s->cache);
        const int asked = cache_asked(s->cache);
        int slot, key, victim;
        if (asked < 0 || s->prefetches >= s->prefetches_max || !can_start(s, asked) ||
            (s->host && s->transfers->copies(s->context) >= s->prefetches_max) || has_enough(s->cache, s->slots) ||
            (slot = cache_fetch(s->cache, &key, &victim)) < 0)
            return 0;
        count_victim(s, &before, victim);
        if ((rc = start_slot(s, slot, true, err)) < 0)
            return -1;
    }
    return 0;
}

/* Starts prefetches into the host tier, except for experts that the device already has. */
static int bring_host_requests(struct schedule *s, struct err *err)
{
    while (s->tier && s->prefetches < s->prefetches_max && !is_full(s)) {
        const struct cache_counts before = cache_counts(s->host);
        const int asked = cache_asked(s->host);
        int slot, key, victim;
        if (asked >= 0 && cache_find(s->cache, asked / s->experts, asked % s->experts) >= 0) {
            cache_cancel(s->host, asked);
            continue;
        }
        if (asked < 0 || has_enough(s->host, s->host_slots) || (slot = cache_fetch(s->host, &key, &victim)) < 0)
            return 0;
        s->facts.wasted += wasted_by(s, s->host, &before, victim);
        if (read_host(s, slot, key, -1, true, err))
            return -1;
    }
    return 0;
}

int schedule_start_prefetches(struct schedule *s, struct err *err)
{
    return start_prefetches(s, err) || bring_host_requests(s, err) ? -1 : 0;
}

/* ---- completed reads and copies */

static void end_read(struct schedule *s, int slot, bool good)
{
    struct schedule_slot *at = &s->slot[slot];
    at->ready = good;
    if (at->prefetch && good)
        cache_release(s->cache, slot);
    s->prefetches -= at->prefetch;
    at->prefetch = false;
}

static int end_read_host(struct schedule *s, int host_slot, bool good, struct err *err)
{
    struct schedule_host_slot *at = &s->host_slot[host_slot];
    const struct schedule_host_slot was = *at;
    *at = (struct schedule_host_slot){.ready = good, .to = -1};
    s->prefetches -= was.prefetch;
    if (was.alone)
        schedule_release_host_slot(s, host_slot);
    return was.to >= 0 && good ? start_copy(s, host_slot, was.to, err) : 0;
}

/* Collects a completed read. Returns 1, 0 or -1 like `next`. */
static int take_read(struct schedule *s, bool wait, struct err *err)
{
    int slot, got = s->transfers->next(s->context, wait, &slot, &s->fault);
    if (slot >= 0 && s->host)
        got = end_read_host(s, slot, got > 0, &s->fault) ? -1 : got;
    else if (slot >= 0)
        end_read(s, slot, got > 0);
    return got < 0 ? err_set(err, s->fault.code, "%s", s->fault.text) : got;
}

int schedule_poll(struct schedule *s, struct err *err)
{
    int got;
    while ((got = take_read(s, false, err)) > 0)
        continue;
    while (!got && s->host && (got = take_copy(s, false, err)) > 0)
        got = 0;
    return got;
}

int schedule_wait(struct schedule *s, struct err *err)
{
    const double start = s->transfers->now(s->context);
    if (s->transfers->pause && s->transfers->pause(s->context, err))
        return -1;
    int got = take_read(s, true, err);
    if (!got && s->host) {
        got = take_copy(s, true, err);
        s->facts.stall_copies += s->transfers->now(s->context) - start;
    }
    s->facts.stall += s->transfers->now(s->context) - start;
    return got;
}
