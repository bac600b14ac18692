/* Expert sources: they bring the weights of experts to memory that a device can read. The engine uses experts only through this
 * interface: it requests the experts of a layer, acquires them all at once or in several groups, computes with each group, and
 * releases it.
 *
 * MAPPED: the memory-mapped model file, for devices that share the host's memory. UPLOADED: all experts are copied to the
 * device once. Both are `fixed`: every expert is always available, so the engine need not wait to learn which ones a layer
 * requests. CACHED: slots of memory keep some experts of all layers together; other experts are read from the model file when
 * they are requested, or prefetched. A device with its own memory has two tiers of slots: on the device, and on the host, from
 * where experts are copied.
 *
 * Functions return 0, or -1 with err set, unless they say otherwise. All functions of a source are called by one thread. */
#ifndef MOE_STORE_EXPERT_SOURCE_H
#define MOE_STORE_EXPERT_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/stop.h"
#include "common/cache/split.h"
#include "common/model/model.h"
#include "common/tensor/device.h"

struct cache;
struct expert_source;

/* The distinct experts that a layer requests in a forward, and the progress of their computation. The caller sets the first
 * four members. It owns the arrays, which must stay valid until all experts are done; the source reorders them. */
struct expert_union {
    int layer;                           /* index among all layers of the model */
    int32_t *expert;                     /* [count]; NULL: unknown, which only fixed sources accept */
    int32_t *tokens;                     /* [count] number of tokens that request each expert */
    int count;
    int held, done;                      /* expert[done .. done + held) are acquired; those before have been released */
    bool part;                           /* the union contains only some of the layer's experts; `want` was called with all
                                          * of them */
};

/* Where an expert is, fastest place first. COMING: its copy to the device is queued. HOST: in host memory that the device does
 * not share. DISK: also an expert whose read is in flight. */
enum expert_tier { EXPERT_ON_DEVICE, EXPERT_COMING, EXPERT_ON_HOST, EXPERT_ON_DISK };

/* Counters since the source was opened. A layer of a forward requests an expert once, however many tokens use it. */
struct store_facts {
    int64_t hits, misses;          /* requests whose expert was where it is computed, or on its way there; all other requests */
    int64_t bytes;                       /* bytes read */
    int64_t prefetched, wasted;          /* bytes of prefetching reads; of those, bytes evicted without a request */
    /* Only for a device with its own memory. In bytes: copied to the device, copied before a request, and of the latter evicted
     * without one. */
    bool copies;
    int64_t host_hits;                   /* misses whose expert was in a host slot, or on its way there */
    int64_t copied, copied_early, copied_wasted;
    /* In verifications: experts that were forecast, of those the requested ones, and all requested ones. forecasts: some
     * forecaster, or the policy itself, has ever made a forecast. */
    int64_t named, right, scored;
    bool forecasts;
    /* Seconds that the host waited without work for the device's queue; waits of the device for copies do not count.
     * stall_copies: of those, seconds with no read in flight, when the host waited for a copy to leave a slot. */
    double stall, stall_copies;
};

/* Returns the difference between two states of the counters. */
struct store_facts store_facts_since(const struct store_facts *now, const struct store_facts *then);

void store_facts_add(struct store_facts *sum, const struct store_facts *more);

/* Returns the share of rows first .. first + rows among all_rows, in proportion; the shares of all rows add up to the total. */
struct store_facts store_facts_share(const struct store_facts *total, int first, int rows, int all_rows);

/* Settings of a cached source. */
struct expert_cache {
    int64_t slots;          /* number of slots, for experts of all layers together; more than there are experts: one for each */
    int64_t host_slots;                  /* number of host slots, for a device with its own memory; 0: as many as reads need */
    const char *policy;                  /* name of the policy; NULL: lru */
    const int32_t *pins;                 /* [pinned] initial contents, as in cache_setup; NULL: none */
    const double *pin_weight;            /* [pinned] */
    int pinned;
    bool ranked;                         /* pins come from the rank stream that the policy requires */
    int draft_length;                    /* max draft length, for policies that use it */
    bool threads;                        /* read with threads instead of io_uring */
    bool at_once;                        /* wait for each read where it starts, so that no decision depends on the disk */
    const struct stop *stop;             /* after a stop request, waiting for reads fails with ERR_SIGNAL; NULL: none */
    struct split_rule split;    /* experts that a static split always computes on the host are never prefetched to the device */
};

/* The purpose of a forward. Drafts request other experts than the verification after them, which they forecast. */
enum expert_forward { EXPERTS_VERIFY, EXPERTS_PROMPT, EXPERTS_DRAFT };

/* The methods of a source. A method may be NULL where its comment says so. */
struct expert_source_class {
    const char *name;
    bool fixed;
    /* Begins a forward of `tokens` tokens; text: also the prompt of a new text. NULL: no effect. */
    void (*begin)(struct expert_source *source, int tokens, enum expert_forward forward, bool text);
    /* Forecasts that the next verification will request these experts of a layer: expert[i] by tokens[i] tokens in addition to
     * earlier forecasts; tokens NULL: by one each. NULL: no effect. */
    int (*prefetch)(struct expert_source *source, int layer, const int32_t *expert, const int32_t *tokens, int count,
                    struct err *err);
    /* Acquires some of the experts that are not done: at least one, or all if all are available. Sets `held` to their number.
     * *table is a device buffer u64 [experts] of addresses, valid for the acquired experts until they are released. */
    int (*acquire)(struct expert_source *source, struct expert_union *wanted, struct buffer *table, struct err *err);
    /* Releases the acquired experts. All computation with them must already be on the device's queue. */
    void (*release)(struct expert_source *source, struct expert_union *wanted);
    /* Used when the host computes some experts of a layer and the device the others. Must be called before any other function
     * for the layer, with all its experts; sets tier[i] to the place of expert[i]. Unions with `part` set follow, for host and
     * device in any order. NULL: all experts are on the device. */
    int (*want)(struct expert_source *source, const struct expert_union *wanted, enum expert_tier *tier, struct err *err);
    /* Like acquire and release, for computation on the host: sets address[i] to the weights of the acquired expert[i], valid
     * until released. Uploads nothing to the device. Where device and host compute from the same slots, slots held by one are
     * not available to the other. NULL: the source has no experts in host memory. */
    int (*acquire_host)(struct expert_source *source, struct expert_union *wanted, const void **address, struct err *err);
    void (*release_host)(struct expert_source *source, struct expert_union *wanted);
    /* Evicts experts of this layer last until the next call, because several forwards will run the layer one after another; -1:
     * no layer. NULL: the source evicts nothing. */
    void (*keep)(struct expert_source *source, int layer);
    void (*facts)(const struct expert_source *source, struct store_facts *out);          /* NULL: the source has no counters */
    struct cache *(*cache)(const struct expert_source *source);          /* NULL: every expert is always available */
    const char *(*method)(const struct expert_source *source);           /* NULL: the source reads nothing later */
    void (*free)(struct expert_source *source);
};

/* The first member of every source. `layer` above and below counts all layers of the model. */
struct expert_source {
    const struct expert_source_class *class;
};

/* Opens a mapped source, and an uploaded source. Model and device must outlive the source. */
int expert_source_mapped(struct expert_source **out, const struct model *model, struct device *device, struct err *err);
int expert_source_uploaded(struct expert_source **out, const struct model *model, struct device *device, struct err *err);
/* Opens the one of these two that fits the device. */
int expert_source_open(struct expert_source **out, const struct model *model, struct device *device, struct err *err);
/* Opens a cached source. The model must have been opened with model_open_dense. */
int expert_source_cached(struct expert_source **out, const struct model *model, struct device *device,
                         const struct expert_cache *setup, struct err *err);
void expert_source_close(struct expert_source **source);

/* Calls the method of the class; no-op if the method is NULL. */
void expert_source_begin(struct expert_source *source, int tokens, enum expert_forward forward, bool text);
int expert_source_prefetch(struct expert_source *source, int layer, const int32_t *expert, const int32_t *tokens, int count,
                           struct err *err);
void expert_source_keep(struct expert_source *source, int layer);
/* Returns false if the source has no counters. */
bool expert_source_facts(const struct expert_source *source, struct store_facts *out);

/* Returns whether acquire_host can be called; call the three methods of the class. Other threads may compute with acquired
 * experts meanwhile. */
bool expert_source_has_host(const struct expert_source *source);
int expert_source_want(struct expert_source *source, const struct expert_union *wanted, enum expert_tier *tier,
                       struct err *err);
int expert_source_acquire_host(struct expert_source *source, struct expert_union *wanted, const void **address,
                               struct err *err);
void expert_source_release_host(struct expert_source *source, struct expert_union *wanted);

/* Returns the cache of the slots from which the device computes, owned by the source. Its layers are layers with experts. Only
 * the source inserts, holds and releases. NULL: every expert is always available, or source is NULL. */
struct cache *expert_source_cache(const struct expert_source *source);

/* Returns how a cached source reads, for people: "io_uring, past the page cache; memory holds 96 of 192"; NULL: another kind of
 * source, or none. */
const char *expert_source_method(const struct expert_source *source);

#endif
