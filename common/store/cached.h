/* Experts in slots, of all layers together: how they get there. Private to store/.
 *
 * IN PLACE, on devices that share the host's memory, a slot is read into. STAGED, on others, there are two tiers, each with a
 * cache of its own (common/cache): slots of the device, and slots of the host's memory that the device can copy from. All
 * that is read goes into a slot of the host, and from there it is copied; what the host still has is copied without being read.
 * So the host keeps what the device lets go as long as its own policy wants, and nothing is ever copied back. One more buffer
 * of the host is in neither: what is wanted on the device gets through it when all slots of the host are held. */
#ifndef MOE_STORE_CACHED_H
#define MOE_STORE_CACHED_H

#include "common/cache/cache.h"
#include "common/store/expert_source.h"
#include "common/store/reads.h"
#include "common/store/staging.h"

/* What is computed with. */
struct cached_slot {
    bool ready;                          /* all of it has been read, or its copy is on the queue for copies */
    bool beforehand;                     /* it is brought without being wanted, and held until then */
};

/* Of the host, where the device has slots of its own. Held by a read into it, each copy from it, and who computes there. */
struct cached_host_slot {
    bool ready;                          /* all of it has been read */
    bool beforehand;                     /* the read under way is one of those that are counted as such */
    bool alone;                          /* and it is for the host's tier alone, which lets go when it has ended */
    int to;                              /* the device's slot that waits for the read; -1: none does */
};

/* Where the experts of a layer lie in the file. */
struct cached_extent {
    uint64_t offset, stride;
    size_t bytes;
};

struct cached {
    struct expert_source base;
    struct device *device;
    struct cache *cache;                 /* of slots that are computed with */
    struct cache *host;                  /* of slots of the host; NULL: in place */
    struct reads *reads;
    const struct stop *stop;             /* ends waiting for reads; NULL: nobody asks */
    int layers, experts, slots;          /* layers: with experts */
    int host_slots;                      /* the number of the buffer that is in neither tier */
    bool tier;                           /* the host's slots are to keep experts, not just to let them through */
    int32_t number[LAYERS_MAX];          /* of all layers: which of those with experts; -1: it has none */
    struct cached_extent *extent;        /* [layers] */
    size_t slot_bytes;
    char *memory;                        /* slots that are read into in place */
    size_t memory_bytes;
    struct buffer block;                 /* `memory` as the device sees it */
    struct staging *staging;
    struct cached_slot *slot;
    struct cached_host_slot *host_slot;  /* [host_slots + 1] */
    bool spare_busy;                     /* the last of them */
    uint64_t *address;                   /* [experts] */
    struct buffer table;
    bool *holds;                         /* [experts] of the layer at work, in slots that are computed with */
    bool *holds_host;                    /* [experts] and by who computes with those of the host */
    uint8_t *forecast;                   /* [layers * experts] tokens that will want it, not said to the device's cache yet */
    int layer;                           /* at work; -1: a forward begins */
    bool drafts;                         /* the forward at work is of a draft */
    int beforehand;                      /* reads under way */
    struct err fault;                    /* a read has failed: nothing works any more */
    struct store_facts facts;
    char way[320];
};

/* Reads at once, and those of them, or copies, beforehand: what is wanted now does not queue after many others. */
enum { CACHED_DEPTH = 64, CACHED_BEFOREHAND = 8 };

/* Starts to bring an expert of the layer at work, which has no slot, to one to compute with, which is held then. 1: it is on
 * its way; 0: there is no slot, or no room for another read. */
int cached_bring(struct cached *cached, int expert, struct err *err);

/* Holds the host's slot of an expert of the layer at work, and has it read where it is not there: 1; 0 and -1 as above. */
int cached_bring_host(struct cached *cached, int expert, struct err *err);

/* Starts what is to be read or copied beforehand, as long as there is room. */
int cached_bring_beforehand(struct cached *cached, struct err *err);

/* Takes note of all reads and copies that have ended. */
int cached_look(struct cached *cached, struct err *err);

/* Waits for a read; when none is under way, for a copy. 1; 0: nothing is under way. */
int cached_wait(struct cached *cached, struct err *err);

/* A slot of the host is held by one less. */
void cached_let_go(struct cached *cached, int host_slot);

#endif
