#include "common/bench/simulated_store.h"

#include <math.h>

#include "common/base/mem.h"

/* ---- the link */

static bool is_transferring(const struct simulated_link_read *read) { return read->end >= 0; }

/* Returns the read whose next event is earliest (the first of simultaneous ones) and its time; -1: nothing in flight. */
static int next_event(const struct simulated_link *link, double *when)
{
    int next = -1;
    *when = INFINITY;
    for (int i = 0; i < link->reads; i++) {
        const struct simulated_link_read *read = &link->read[i];
        const double at = is_transferring(read) ? link->now + (read->end - link->moved) * link->all_s[link->moving]
                                                : read->from;
        if (at < *when) {
            next = i;
            *when = at;
        }
    }
    return next;
}

static void pass(struct simulated_link *link, double until)
{
    if (link->moving && until > link->now)
        link->moved += (until - link->now) / link->all_s[link->moving];
    link->now = fmax(link->now, until);
}

/* Processes an event of a read: its transfer begins after its latency, or ends. */
static void process_event(struct simulated_link *link, int number, double when)
{
    struct simulated_link_read *read = &link->read[number];
    if (!is_transferring(read)) {
        pass(link, when);
        read->end = link->moved + 1;
        link->moving++;
        return;
    }
    link->now = fmax(link->now, when);
    link->moved = read->end;                    /* assigned, not accumulated, so that reads that began together end together */
    link->done[link->ended] = *read;
    link->done[link->ended++].end = link->now;
    link->moving--;
    link->reads--;
    for (int i = number; i < link->reads; i++)
        link->read[i] = link->read[i + 1];
}

static void advance_link(struct simulated_link *link, double until)
{
    double when;
    for (int next; (next = next_event(link, &when)) >= 0 && when <= until;)
        process_event(link, next, when);
    pass(link, until);
}

static bool is_full(const struct simulated_link *link) { return link->reads + link->ended == SIMULATED_READS; }

static void start_read(struct simulated_link *link, int slot, double now)
{
    advance_link(link, now);
    link->read[link->reads++] = (struct simulated_link_read){
        .slot = slot, .began = now, .from = now + link->latency_s, .end = -1};
}

/* ---- slots */

int simulated_store_open(struct simulated_store *out, struct cache *cache, int slots, int experts, struct err *err)
{
    struct simulated_store store = {.cache = cache, .slots = slots, .experts = experts};
    store.ready = mem_alloc((size_t)slots, sizeof *store.ready, err);
    store.beforehand = mem_alloc((size_t)slots, sizeof *store.beforehand, err);
    store.holds = mem_alloc((size_t)experts, sizeof *store.holds, err);
    if (!store.ready || !store.beforehand || !store.holds) {
        simulated_store_free(&store);
        return -1;
    }
    *out = store;
    return 0;
}

void simulated_store_free(struct simulated_store *store)
{
    mem_free(&store->ready);
    mem_free(&store->beforehand);
    mem_free(&store->holds);
}

static void start_transfer(struct simulated_store *store, int slot, bool beforehand, double now)
{
    store->ready[slot] = false;
    store->beforehand[slot] = beforehand;
    store->reads_beforehand += beforehand;
    *(beforehand ? &store->prefetched : &store->fetched) += 1;
    start_read(&store->link, slot, now);
}

static void take_first(struct simulated_store *store)
{
    struct simulated_link *link = &store->link;
    const struct simulated_link_read read = link->done[0];
    const int slot = read.slot;
    if (store->ended)
        store->ended(store->context, cache_key(store->cache, slot), read.began, read.end);
    link->ended--;
    for (int i = 0; i < link->ended; i++)
        link->done[i] = link->done[i + 1];
    store->ready[slot] = true;
    store->reads_beforehand -= store->beforehand[slot];
    if (store->beforehand[slot])
        cache_release(store->cache, slot);
    store->beforehand[slot] = false;
}

/* Registers all reads that have ended. */
static void take_finished(struct simulated_store *store, double now)
{
    advance_link(&store->link, now);
    while (store->link.ended)
        take_first(store);
}

/* Waits for the next read to end; false: none is in flight. */
static bool wait(struct simulated_store *store, double *now)
{
    double when;
    for (int next; !store->link.ended && (next = next_event(&store->link, &when)) >= 0;)
        process_event(&store->link, next, when);
    if (!store->link.ended)
        return false;
    *now = fmax(*now, store->link.now);
    take_first(store);
    return true;
}

static bool has_enough(const struct simulated_store *store)
{
    const struct cache_counts counts = cache_counts(store->cache);
    return cache_is_full(store->cache) && 2 * (counts.prefetched - counts.useful - counts.wasted) >= store->slots;
}

static void start_prefetches(struct simulated_store *store, double now)
{
    int slot, key, victim;
    while (cache_asked(store->cache) >= 0 && store->reads_beforehand < SIMULATED_BEFOREHAND && !is_full(&store->link) &&
           !has_enough(store) && (slot = cache_fetch(store->cache, &key, &victim)) >= 0)
        start_transfer(store, slot, true, now);
}

void simulated_store_bring(struct simulated_store *store, double now)
{
    take_finished(store, now);
    start_prefetches(store, now);
}

/* ---- a layer */

static void hold_resident(struct simulated_store *store, const struct simulated_union *wanted)
{
    for (int i = 0; i < wanted->count; i++) {
        const int slot = cache_find(store->cache, wanted->layer, wanted->expert[i]);
        if (slot < 0)
            continue;
        cache_hold(store->cache, slot);
        store->holds[wanted->expert[i]] = true;
    }
}

static void fetch_wanted(struct simulated_store *store, const struct simulated_union *wanted, double now)
{
    int victim;
    for (int i = wanted->done; i < wanted->count; i++) {
        const int expert = wanted->expert[i];
        int slot = cache_find(store->cache, wanted->layer, expert);
        if (store->holds[expert])
            continue;
        if (slot >= 0)                          /* arrived as a prefetch since the layer began */
            cache_hold(store->cache, slot);
        else if (is_full(&store->link) || (slot = cache_insert(store->cache, wanted->layer, expert, CACHE_DEMAND, &victim)) < 0)
            continue;
        else
            start_transfer(store, slot, false, now);
        store->holds[expert] = true;
    }
}

static void swap(int32_t *a, int32_t *b)
{
    const int32_t old = *a;
    *a = *b;
    *b = old;
}

static int find_ready(const struct simulated_store *store, struct simulated_union *wanted)
{
    int end = wanted->done;
    for (int i = wanted->done; i < wanted->count; i++) {
        const int slot = cache_find(store->cache, wanted->layer, wanted->expert[i]);
        if (!store->holds[wanted->expert[i]] || !store->ready[slot])
            continue;
        swap(&wanted->expert[end], &wanted->expert[i]);
        swap(&wanted->tokens[end++], &wanted->tokens[i]);
    }
    return wanted->held = end - wanted->done;
}

int simulated_store_acquire(struct simulated_store *store, struct simulated_union *wanted, double *now, struct err *err)
{
    if (!wanted->done)
        hold_resident(store, wanted);
    for (;;) {
        fetch_wanted(store, wanted, *now);
        take_finished(store, *now);
        fetch_wanted(store, wanted, *now);
        if (find_ready(store, wanted))
            break;
        if (!wait(store, now))
            return err_set(err, ERR_INPUT, "the cache policy keeps all %d experts and gives none for those that are wanted",
                           store->slots);
    }
    start_prefetches(store, *now);
    return 0;
}

void simulated_store_release(struct simulated_store *store, struct simulated_union *wanted)
{
    for (int i = wanted->done; i < wanted->done + wanted->held; i++) {
        cache_release(store->cache, cache_find(store->cache, wanted->layer, wanted->expert[i]));
        store->holds[wanted->expert[i]] = false;
    }
    wanted->done += wanted->held;
    wanted->held = 0;
}
