/* Where the bytes of experts are, and how they get to where a device can read them. The engine reaches experts through this
 * alone: it says which ones a layer wants, gets them in one piece or in several, computes with each piece, and releases it.
 *
 * MAPPED: the model file as it lies in memory (devices that share the host's memory). UPLOADED: all experts copied to the
 * device once. Both are `fixed`: every expert is in place all the time, so that the engine need not wait to learn which ones
 * are wanted. CACHED: some of the experts, of all layers together, in slots of memory; the others are read from the model file
 * when they are wanted, or before. On a device with memory of its own there are two tiers: slots on the device, and slots of
 * the host, which it copies from. */
#ifndef MOE_STORE_EXPERT_SOURCE_H
#define MOE_STORE_EXPERT_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/stop.h"
#include "common/cache/split.h"
#include "common/model/model.h"
#include "common/stream/values.h"
#include "common/tensor/device.h"

struct expert_source;
struct utility_expert;

/* The distinct experts that a layer wants in a forward, and how far it has come with them. The caller sets the first four; the
 * arrays are its own, stay until all are done, and are reordered. */
struct expert_union {
    int layer;                           /* of all layers of the model */
    int32_t *expert;                     /* [count]; NULL: fixed sources are not known */
    int32_t *tokens;                     /* [count] how many tokens of the forward want each */
    int count;
    int held, done;                      /* expert[done .. done + held) are in place; those before have been released */
    bool part;                           /* some of those of the layer: `want` has been called with all */
};

/* Where an expert is, the fastest place first. COMING: its copy to the device has begun. HOST: memory of the host that is not
 * the device's. DISK: also an expert that is being read. */
enum expert_tier { EXPERT_ON_DEVICE, EXPERT_COMING, EXPERT_ON_HOST, EXPERT_ON_DISK };

/* What a source has done since it was opened. An expert is wanted once by a layer of a forward, however many tokens want it. */
struct store_facts {
    int64_t hits, misses;                /* wanted experts that were where they are computed, or on their way; and others */
    int64_t bytes;                       /* read */
    int64_t prefetched, wasted;          /* bytes of those read before they were wanted, and of those gone without being so */
    /* Of a device with memory of its own. In bytes: all that was copied there, what before it was wanted, and of that what went
     * without being so. */
    bool copies;
    int64_t host_hits;                   /* misses that were in slots of the host, or on their way there */
    int64_t copied, copied_early, copied_wasted;
    /* Of verifications: experts that were forecast, of them wanted, and all that were wanted. forecasts: ever since it was open
     * somebody, or the policy itself, has made a forecast. */
    int64_t named, right, scored;
    bool forecasts;
    /* Seconds in which the host had nothing to put on the device's queue; not those in which a device waits for copies. And
     * those of them in which no read was under way: the host waited until a copy left a slot. */
    double stall, stall_copies;
};

/* What it has done between the two. */
struct store_facts store_facts_since(const struct store_facts *now, const struct store_facts *then);

/* What a cache of experts is asked to be. */
struct expert_cache {
    int64_t slots;                       /* experts of all layers together; not more than there are */
    int64_t host_slots;                  /* the same of the host, for a device with memory of its own; 0: as reads need */
    const char *policy;                  /* NULL: lru */
    const int32_t *pins;                 /* [pinned] what it is to begin with, as cache_setup has it; NULL: nothing */
    const double *pin_weight;            /* [pinned] */
    int pinned;
    bool ranked;                         /* they are those of the rank stream that the policy names */
    int draft_length;                    /* the longest draft, for policies that ask */
    bool threads;                        /* reads are by threads, not by io_uring */
    const struct stop *stop;             /* when it is asked for, waiting for reads fails with ERR_SIGNAL; NULL: none */
    struct split_rule split;             /* what another processor computes at all times never comes to the device beforehand */
};

/* What a forward is for: those of a draft want other experts than the verification after them, which they forecast. */
enum expert_forward { EXPERTS_VERIFY, EXPERTS_PROMPT, EXPERTS_DRAFT };

struct expert_source_class {
    const char *name;
    bool fixed;
    /* A forward of so many tokens begins; `text`: and with it the prompt of another text. NULL: all the same to it. */
    void (*begin)(struct expert_source *source, int tokens, enum expert_forward forward, bool text);
    /* These experts of a layer are likely to be wanted by the next verification: expert[i] by tokens[i] more tokens than was
     * said before; tokens NULL: by one. NULL: all the same to it. */
    int (*prefetch)(struct expert_source *source, int layer, const int32_t *expert, const int32_t *tokens, int count,
                    struct err *err);
    /* Puts some of the experts in place that are not done, at least one, and all if they are all there; `held` says how many.
     * *table is a device buffer of u64 [experts] addresses, right for these until they are released. */
    int (*acquire)(struct expert_source *source, struct expert_union *wanted, struct buffer *table, struct err *err);
    /* What is computed with those held is on the device's queue. */
    void (*release)(struct expert_source *source, struct expert_union *wanted);
    /* Where the host computes some experts of a layer while the device computes the others: `want` is called with all, in front
     * of everything else, and says where each is now, tier[i] expert[i]; then come parts, in any order and by turns. NULL: all
     * are on the device. */
    int (*want)(struct expert_source *source, const struct expert_union *wanted, enum expert_tier *tier, struct err *err);
    /* As acquire and release, for who computes on the host: address[i] is where the bytes of expert[i] are for those held; they
     * stay until they are released there. Nothing goes to the device. Where device and host compute from the same slots, what
     * one of the two holds is missing to the other. NULL: the source has no experts there. */
    int (*acquire_host)(struct expert_source *source, struct expert_union *wanted, const void **address, struct err *err);
    void (*release_host)(struct expert_source *source, struct expert_union *wanted);
    /* Experts of this layer are evicted last until the next call, as several forwards run the layer one after another; -1: no
     * layer. NULL: nothing is evicted. */
    void (*keep)(struct expert_source *source, int layer);
    void (*facts)(const struct expert_source *source, struct store_facts *out);          /* NULL: nothing to tell */
    void (*free)(struct expert_source *source);
};

/* What all sources begin with. `layer` above and here counts all layers of the model. */
struct expert_source {
    const struct expert_source_class *class;
};

int expert_source_mapped(struct expert_source **out, const struct model *model, struct device *device, struct err *err);
int expert_source_uploaded(struct expert_source **out, const struct model *model, struct device *device, struct err *err);
/* The one of these two that fits the device. */
int expert_source_open(struct expert_source **out, const struct model *model, struct device *device, struct err *err);
/* The model must be open by model_open_dense. */
int expert_source_cached(struct expert_source **out, const struct model *model, struct device *device,
                         const struct expert_cache *setup, struct err *err);
/* How much each expert is wanted by the measure of a cache's policy, [layers with experts * experts]. False: there is none. */
bool expert_source_weights(const struct expert_source *source, double *weight);
/* What the decisions of a cache's policy rest on: nothing is added where there is none. */
void expert_source_state(const struct expert_source *source, struct values *out);

/* The states of MoE-SpAc's Algorithm 1, [layers with experts * experts]; NULL: the policy has none. */
const struct utility_expert *expert_source_utility(const struct expert_source *source);

/* Of a cache of experts, for who splits them between processors (cache/split.h): the states of a layer [experts] and the
 * highest level, NULL: it has none; balance_look of the layer; the threshold of its policy; slots, all experts where none are
 * cached. */
const struct utility_expert *expert_source_levels(const struct expert_source *source, int layer, int *K);
int expert_source_look(const struct expert_source *source, int layer, int32_t *fetches);
void expert_source_threshold(struct expert_source *source, int tau);
int64_t expert_source_slots(const struct expert_source *source, int64_t all);
/* These of a layer shall be there for the next time. Nothing where none are cached. */
void expert_source_ask(struct expert_source *source, int layer, const int32_t *expert, int count);
void expert_source_close(struct expert_source **source);

/* These do nothing where the source has nothing to do. */
void expert_source_begin(struct expert_source *source, int tokens, enum expert_forward forward, bool text);
int expert_source_prefetch(struct expert_source *source, int layer, const int32_t *expert, const int32_t *tokens, int count,
                           struct err *err);
void expert_source_keep(struct expert_source *source, int layer);
bool expert_source_facts(const struct expert_source *source, struct store_facts *out);   /* false: it has none */

/* Whether acquire_host can be called; and the three as in the class. One thread calls all of them; others may compute with what
 * is held meanwhile. */
bool expert_source_has_host(const struct expert_source *source);
int expert_source_want(struct expert_source *source, const struct expert_union *wanted, enum expert_tier *tier,
                       struct err *err);
int expert_source_acquire_host(struct expert_source *source, struct expert_union *wanted, const void **address,
                               struct err *err);
void expert_source_release_host(struct expert_source *source, struct expert_union *wanted);

/* How a cached source reads: "io_uring, past the page cache; memory holds 96 of 192"; NULL: it is another one. */
const char *expert_source_way(const struct expert_source *source);

#endif
