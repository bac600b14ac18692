/* The schedule of a cached expert source: which experts are read and copied, in which order, and into which slots. Decisions
 * and bookkeeping only: the bytes are moved by the methods of `struct transfers`. The store (cached.c) moves them by io_uring
 * and a device's copy queue, the simulator (common/bench/simulated_store.c) on a virtual clock, so live and simulated runs
 * follow one rule. common/cache decides which experts stay.
 *
 *   - missing experts of a layer are read at once while slots and reads are free; the others when some of these have been
 *     computed
 *   - available experts are computed first; only if there is none, the caller waits for the next read or copy
 *   - prefetches start after that, whenever a layer has acquired experts or a forecast was made; at most SCHEDULE_PREFETCHES
 *     are in flight. A prefetch is never cancelled, and does not wait for requested reads
 *   - once all slots are in use, at most half of them contain prefetched experts without a request so far
 *
 * IN PLACE, on devices that share the host's memory, experts are read from the file directly into the slots.
 *
 * STAGED, on other devices, there are two tiers, each with its own cache (common/cache): device slots, and host slots from
 * which the device can copy. Every read goes into a host slot, and from there to the device; an expert still in a host slot is
 * copied without a read. So an expert evicted from the device stays in host memory as long as the host cache policy keeps it,
 * and nothing is ever copied back. One spare host buffer belongs to neither tier: it lets a requested expert through to the
 * device when all host slots are held.
 *
 * Layers are counted among layers with experts. Functions return 0, or -1 with err set, unless they say otherwise. */
#ifndef MOE_STORE_SCHEDULE_H
#define MOE_STORE_SCHEDULE_H

#include "common/cache/cache.h"
#include "common/store/expert_source.h"

/* Max reads in flight, and max prefetching reads or copies in flight. The latter is small so that a requested expert does not
 * queue after many prefetches. SCHEDULE_COPIES: max copies in flight. */
enum { SCHEDULE_READS = 64, SCHEDULE_PREFETCHES = 8, SCHEDULE_COPIES = 64 };

struct transfers {
    bool (*full)(const void *context);          /* whether no further read can start */
    /* Starts to read the expert `key` into slot `tag`; STAGED: into host slot or spare buffer `tag`. */
    int (*start)(void *context, int tag, int key, struct err *err);
    /* Waits until some read has completed, if one is in flight. Fails if the user interrupts. NULL: `next` waits. */
    int (*pause)(void *context, struct err *err);
    /* Collects a completed read. Returns 1 with its tag; 0 if none has completed, or, with `wait`, if none is in flight; -1 if
     * the read with this tag has failed, or, with *tag -1, if reading itself has failed. */
    int (*next)(void *context, bool wait, int *tag, struct err *err);
    double (*now)(const void *context);         /* seconds */
    /* STAGED only, else NULL. Copies complete in their order. */
    int (*copies)(const void *context);         /* number of copies in flight */
    void (*copy)(void *context, int from, int slot, int key);           /* queues a copy from a host slot to a device slot */
    /* Collects the oldest copy like `next`, with its host slot; on failure *from is set, too. */
    int (*next_copy)(void *context, bool wait, int *from, struct err *err);
    bool (*has)(const void *context, int slot); /* whether the last copy to the device slot was collected */
};

/* A slot from which the device computes. */
struct schedule_slot {
    bool ready;                          /* in place: the read is complete; staged: the copy is queued */
    bool prefetch;                       /* a prefetch is in flight and holds the slot until it is complete */
};

/* A host slot of the staged case. It is held by a read into it, by each copy from it, and by host computation. */
struct schedule_host_slot {
    bool ready;                          /* the read is complete */
    bool prefetch;                       /* the read in flight counts as a prefetch */
    bool alone;                          /* the prefetch is for the host tier only and releases the slot when it is complete */
    int to;                              /* device slot that waits for the read; -1: none */
};

/* The caller sets the members before schedule_open, and owns what they point to. */
struct schedule {
    const struct transfers *transfers;
    void *context;                       /* context of the transfers */
    struct cache *cache;                 /* cache of the slots from which the device computes */
    struct cache *host;                  /* cache of the host slots; NULL: in place */
    int layers, experts, slots;
    int host_slots;                      /* number of host slots, and so the number of the spare buffer */
    bool tier;                           /* host slots are a cache; false: just buffers for copies */
    int prefetches_max;                  /* max prefetching reads, or copies, in flight: SCHEDULE_PREFETCHES; 0: no
                                          * prefetches */
    const size_t *bytes;                 /* [layers] bytes of an expert */
    /* schedule_open and the functions below set the rest. */
    struct schedule_slot *slot;
    struct schedule_host_slot *host_slot;       /* [host_slots + 1] */
    bool spare_busy;                     /* the spare buffer is in use */
    bool *holds;                         /* [experts] slots held for the current layer on the device */
    bool *holds_host;                    /* [experts] host slots held for the current layer on the host */
    uint8_t *forecast;     /* [layers * experts] tokens forecast for each expert, not yet passed to the device's cache */
    int layer;                           /* current layer; -1: at the beginning of a forward */
    bool drafts;                         /* the current forward is a draft's */
    int prefetches;                      /* prefetching reads in flight */
    struct err fault;                    /* set once a read has failed; every later call fails with it */
    struct store_facts facts;
};

int schedule_open(struct schedule *schedule, struct err *err);
void schedule_free(struct schedule *schedule);

/* Reads the policies' initial contents and waits until they have arrived. Must be called after schedule_open, before anything
 * is decoded. */
int schedule_first(struct schedule *schedule, struct err *err);

/* The following functions work like the methods of struct expert_source_class. */
void schedule_begin(struct schedule *schedule, int tokens, enum expert_forward forward, bool text);
int schedule_prefetch(struct schedule *schedule, int layer, const int32_t *expert, const int32_t *tokens, int count,
                      struct err *err);
int schedule_want(struct schedule *schedule, int layer, const struct expert_union *wanted, enum expert_tier *tier,
                  struct err *err);
int schedule_acquire(struct schedule *schedule, int layer, struct expert_union *wanted, struct err *err);
void schedule_release(struct schedule *schedule, struct expert_union *wanted);
int schedule_acquire_host(struct schedule *schedule, int layer, struct expert_union *wanted, struct err *err);
void schedule_release_host(struct schedule *schedule, struct expert_union *wanted);
void schedule_keep(struct schedule *schedule, int layer);
struct store_facts schedule_facts(const struct schedule *schedule);

/* The rest is shared by the two files of the schedule. */

/* Starts to bring an expert of the current layer, which has no slot, into a slot for computation and holds that slot. Returns
 * 1; 0 if there is no free slot or no room for another read; -1. */
int schedule_bring(struct schedule *schedule, int expert, struct err *err);

/* Holds the host slot of an expert of the current layer and starts to read the expert if necessary. Returns 1, 0, -1 as
 * above. */
int schedule_bring_host(struct schedule *schedule, int expert, struct err *err);

/* Starts prefetches as long as there is room. */
int schedule_start_prefetches(struct schedule *schedule, struct err *err);

/* Handles all reads and copies that have completed. */
int schedule_poll(struct schedule *schedule, struct err *err);

/* Waits for a read; if none is in flight, for a copy. Returns 1; 0 if nothing is in flight; -1. */
int schedule_wait(struct schedule *schedule, struct err *err);

/* Releases one hold on a host slot or on the spare buffer. */
void schedule_release_host_slot(struct schedule *schedule, int host_slot);

#endif
