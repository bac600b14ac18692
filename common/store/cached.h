/* The cached expert source: slots for experts of all layers together, and how experts get into them. Private to store/.
 *
 * IN PLACE, on devices that share the host's memory, experts are read from the file directly into the slots.
 *
 * STAGED, on other devices, there are two tiers, each with its own cache (common/cache): device slots, and host slots from
 * which the device can copy. Every read goes into a host slot, and from there to the device; an expert still in a host slot is
 * copied without a read. So an expert evicted from the device stays in host memory as long as the host cache policy keeps it,
 * and nothing is ever copied back. One spare host buffer belongs to neither tier: it lets a requested expert through to the
 * device when all host slots are held. */
#ifndef MOE_STORE_CACHED_H
#define MOE_STORE_CACHED_H

#include "common/cache/cache.h"
#include "common/store/expert_source.h"
#include "common/store/reads.h"
#include "common/store/staging.h"

/* A slot from which the device computes. */
struct cached_slot {
    bool ready;                          /* in place: the read is complete; staged: the copy is queued */
    bool beforehand;                     /* a prefetch is in flight and holds the slot until it is complete */
};

/* A host slot of the staged case. It is held by a read into it, by each copy from it, and by host computation. */
struct cached_host_slot {
    bool ready;                          /* the read is complete */
    bool beforehand;                     /* the read in flight counts as a prefetch */
    bool alone;                          /* the prefetch is for the host tier only and releases the slot when it is complete */
    int to;                              /* device slot that waits for the read; -1: none */
};

/* Where the experts of a layer are in the file, in bytes: `stride` from one expert to the next. */
struct cached_extent {
    uint64_t offset, stride;
    size_t bytes;
};

struct cached {
    struct expert_source base;
    struct device *device;
    struct cache *cache;                 /* of slots from which the device computes */
    struct cache *host;                  /* of host slots; NULL: in place */
    struct reads *reads;
    const struct stop *stop;             /* ends waiting for reads; NULL: none */
    int layers, experts, slots;          /* layers: MoE layers only */
    int host_slots;                      /* number of host slots, and so the number of the spare buffer */
    bool tier;                           /* host slots are a cache; false: just buffers for copies */
    int32_t number[LAYERS_MAX];          /* model layer -> MoE layer; -1: a layer without experts */
    struct cached_extent *extent;        /* [layers] */
    size_t slot_bytes;
    char *memory;                        /* in place: the slots */
    size_t memory_bytes;
    struct buffer block;                 /* `memory` as a device buffer */
    struct staging *staging;
    struct cached_slot *slot;
    struct cached_host_slot *host_slot;  /* [host_slots + 1] */
    bool spare_busy;                     /* the spare buffer is in use */
    uint64_t *address;                   /* [experts] contents of `table` */
    struct buffer table;
    bool *holds;                         /* [experts] slots held for the current layer on the device */
    bool *holds_host;                    /* [experts] and host slots held for it by host computation */
    uint8_t *forecast;     /* [layers * experts] tokens forecast for each expert that the device's cache does not know of yet */
    int layer;                           /* current MoE layer; -1: at the beginning of a forward */
    bool drafts;                         /* the current forward is a draft's */
    int beforehand;                      /* prefetching reads in flight */
    struct err fault;                    /* set once a read has failed; every later call fails with it */
    struct store_facts facts;
    /* text of expert_source_method */
    char way[320];
};

/* Max reads in flight, and max prefetching reads or copies in flight. The second is small so that a requested expert does not
 * queue after many prefetches. */
enum { CACHED_DEPTH = 64, CACHED_BEFOREHAND = 8 };

/* Starts to bring an expert of the current layer, which has no slot, into a slot for computation and holds that slot. Returns
 * 1; 0 if there is no free slot or no room for another read; -1. */
int cached_bring(struct cached *cached, int expert, struct err *err);

/* Holds the host slot of an expert of the current layer and starts to read the expert if necessary. Returns 1, 0, -1 as
 * above. */
int cached_bring_host(struct cached *cached, int expert, struct err *err);

/* Starts prefetches as long as there is room. */
int cached_bring_beforehand(struct cached *cached, struct err *err);

/* Handles all reads and copies that have completed. */
int cached_poll(struct cached *cached, struct err *err);

/* Waits for a read; if none is in flight, for a copy. Returns 1; 0 if nothing is in flight; -1. */
int cached_wait(struct cached *cached, struct err *err);

/* Releases one hold on a host slot or on the spare buffer. */
void cached_release_host_slot(struct cached *cached, int host_slot);

#endif
