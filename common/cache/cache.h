/* A cache of experts in a tier that cannot hold all of them: decides which expert has which slot, which one is evicted for a
 * new one, and which ones are prefetched. Bookkeeping and decisions only: no clock, no tensors, no files, so that recorded
 * routes can be replayed through a cache, and so that store and simulator decide alike.
 *
 * A slot can have any expert of any layer. `layer` counts layers with experts, from 0; key = layer * experts + expert. A
 * slot is HELD while its expert is read or computed; holds are counted. Only a slot without a hold can be given to another
 * expert.
 *
 * One layer of one forward:
 *
 *     cache_want(cache, layer, expert, tokens, count);            once the router has chosen; counts hits and misses
 *     for each:  slot = cache_find(cache, layer, expert);         hits are held first, because insertions evict
 *                if (slot >= 0) cache_hold(cache, slot);
 *     for each miss:
 *                slot = cache_insert(cache, layer, expert, CACHE_DEMAND, &victim);        held; -1: nothing can be evicted
 *                ... read it; compute; cache_release(cache, slot);
 *     when a transfer is free:
 *                slot = cache_fetch(cache, &key, &victim);       the next prefetch; held until it has arrived; -1: none
 *
 * Not thread-safe. Every function is in O(log slots), except those that say otherwise; cache_want is in O(experts log
 * slots). */
#ifndef MOE_CACHE_CACHE_H
#define MOE_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "common/stream/values.h"

enum { CACHE_LEVELS = 64 };             /* levels of requests are 1 .. CACHE_LEVELS, the highest first */
enum { CACHE_KEYS_MAX = 1 << 22 };      /* maximum of layers x experts */

/* The purpose of a forward. A prompt has no draft, so policies learn nothing of drafts from it. Requests made during drafting
 * are for the verification that follows: the forwards of a draft leave them in the queue. */
enum cache_forward { CACHE_VERIFIES, CACHE_PROMPT, CACHE_DRAFTS };

enum cache_reason { CACHE_DEMAND, CACHE_PREFETCH };

/* All keys in the order in which they will be wanted, one cache_want after the other: what Belady's policy must know. */
struct cache_future {
    const int32_t *key;         /* [count] */
    size_t count;
};

struct cache_setup {
    int layers, experts;        /* number of layers with experts; number of experts in each */
    int slots;                  /* total of all layers; at least top_k */
    int top_k;                  /* experts that a token wants in a layer */
    int draft_length;           /* the longest draft, gamma: a forward of decoding has at most gamma + 1 tokens */
    bool elsewhere; /* an expert without a slot can be computed elsewhere, so that a policy may refuse to insert it */
    const int32_t *pins;        /* [pinned] keys of a rank stream or of a hot set, best first; NULL: none */
    const double *pin_weight;   /* [pinned] how much each pin was wanted in earlier runs; NULL: not known */
    int pinned;
    bool ranked;                /* `pins` come from the rank stream that the policy's settings name */
    const struct cache_future *future;          /* NULL: not known. Must outlive the cache */
    const bool *kept_out; /* [layers * experts] experts that are always computed elsewhere, so never prefetched; NULL: none */
};

struct cache_counts {           /* since the cache was opened */
    int64_t wanted;             /* distinct experts, summed over layers and forwards */
    int64_t hits;               /* wanted experts that were resident, or whose prefetch was in flight */
    int64_t inserted, prefetched; /* insertions on demand; prefetches */
    int64_t useful;             /* prefetched experts that were wanted before their eviction */
    int64_t wasted;             /* prefetched experts that were evicted without having been wanted */
    /* In verifications only: number of experts requested before their layer had its turn; wanted ones among these; all
     * wanted experts. */
    int64_t named, right, scored;
};

struct cache;

/* Opens a cache. `text` is a policy with its settings; NULL: lru. */
int cache_open(struct cache **out, const char *text, const struct cache_setup *setup, struct err *err);
void cache_close(struct cache **cache);

/* Begins a new text. Residents stay. */
void cache_begin(struct cache *cache);

/* Begins a forward of `tokens` tokens. */
void cache_step(struct cache *cache, int tokens, enum cache_forward forward);

/* Records that tokens[i] tokens of this forward want expert[i] of a layer; the experts are distinct. Drops the requests for
 * the layer that were not fetched yet, unless the forward is a draft's. */
void cache_want(struct cache *cache, int layer, const int32_t *expert, const int32_t *tokens, int count);

int cache_find(const struct cache *cache, int layer, int expert);           /* the expert's slot; -1: not resident */
int cache_slots(const struct cache *cache);
bool cache_is_full(const struct cache *cache);                              /* no slot is empty */
bool cache_has_room(const struct cache *cache); /* a slot is empty, or has an expert without a hold */
int cache_key(const struct cache *cache, int slot);                         /* the expert in a slot; -1: empty */
void cache_hold(struct cache *cache, int slot);
void cache_release(struct cache *cache, int slot);

/* Inserts an expert that is not resident, and returns its slot, held. *victim is the key of the evicted expert, -1: none.
 * Returns -1 if all slots are held, or if the policy keeps the experts of the others. */
int cache_insert(struct cache *cache, int layer, int expert, enum cache_reason reason, int *victim);

/* Protects a layer: until the next call, its residents are evicted after those of all other layers, and never for a
 * prefetch; -1: no layer. In O(slots). */
void cache_keep(struct cache *cache, int layer);

/* Undoes an insertion whose read failed: the slot is empty again, and the counts exclude it. The slot must have
 * one hold. */
void cache_drop(struct cache *cache, int slot);

/* Requests an expert before it is wanted. Requests are served from high levels to low, first in first out. A second request
 * moves the expert to the new level. An expert that is resident when its request is served is not inserted again, but the
 * policy is notified (`inserted`); one of kept_out is counted as requested and not queued. Policies make requests themselves
 * (utility, pins), and callers may (forecasts). */
void cache_ask(struct cache *cache, int layer, int expert, int level);

/* Adds `tokens` to the number of tokens expected to want an expert since its layer's last turn, and requests the expert with
 * that number as its level. */
void cache_expect(struct cache *cache, int layer, int expert, int tokens);

/* Inserts the first request whose level the policy fetches, as cache_insert does; *key is the requested expert. Returns -1 if
 * there is none, or no slot for it: then the request stays. */
int cache_fetch(struct cache *cache, int *key, int *victim);

/* cache_asked returns the key of the first request, -1: none; cache_cancel cancels a request. */
int cache_asked(const struct cache *cache);
void cache_cancel(struct cache *cache, int key);

/* Makes residents and requests of a level below `tau` cold: they are not fetched, and are evicted first (MoE-SpAc eq. 9).
 * Initially 1. No-op for policies without levels. */
void cache_threshold(struct cache *cache, int tau);

struct cache_counts cache_counts(const struct cache *cache);
void cache_state(const struct cache *cache, struct values *out); /* the figures on which the policy bases its decisions, for
                                                                  * records */

/* Writes weight[layers * experts], how much each expert is wanted by the policy's own measure, for a hot set. False: the
 * policy has no such measure. */
bool cache_weights(const struct cache *cache, double *weight);

/* ---- policies */

/* Order of eviction: the lowest `first` goes first, then the lowest `second`, then the lowest slot. */
struct cache_value { int64_t first, second; };

struct cache_policy {           /* first member of every policy */
    const struct cache_policy_class *class;
};

struct cache_policy_class {
    const char *name, *summary;
    const char *settings;       /* settings that may follow the colon; NULL: none */
    bool replays;               /* the policy must know the future, so it works in replay only */
    int (*open)(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err);
    /* Called by cache_open; may call cache_ask. NULL: no-op, as for all slots below. */
    void (*start)(struct cache_policy *policy, struct cache *cache);
    void (*begin)(struct cache_policy *policy);
    /* Begins a forward. Returns true if the values of all experts have changed. */
    bool (*step)(struct cache_policy *policy, int tokens, enum cache_forward forward);
    /* Called when a layer wants experts; may call cache_ask. Values of this layer's experts may change here. */
    void (*want)(struct cache_policy *policy, struct cache *cache, int layer, const int32_t *expert, const int32_t *tokens,
                 int count);
    void (*asked)(struct cache_policy *policy, int key, int level);     /* an expert was requested, resident or not */
    /* Called when the expert got a slot, or its request found it resident. level: as in may_evict. */
    void (*inserted)(struct cache_policy *policy, int key, int level);
    void (*released)(struct cache_policy *policy, int key);             /* the last hold ended; the expert's value may change */
    struct cache_value (*value)(const struct cache_policy *policy, int key);            /* value of a resident without a hold */
    /* Returns whether `victim`, the resident with the lowest value, may be evicted for `key`. level: that of the request, 0
     * on demand. NULL: always. */
    bool (*may_evict)(const struct cache_policy *policy, int victim, int key, int level);
    bool (*may_fetch)(const struct cache_policy *policy, int level);    /* returns whether requests of this level are
                                                                         * fetched. NULL: yes */
    void (*threshold)(struct cache_policy *policy, int tau);
    bool (*weights)(const struct cache_policy *policy, double *weight);
    void (*state)(const struct cache_policy *policy, struct values *out);
    void (*free)(struct cache_policy *policy);
};

const struct cache_policy *cache_policy_of(const struct cache *cache);

extern const struct cache_policy_class cache_lru, cache_lru_global, cache_lfu, cache_static, cache_hot, cache_belady,
                                       cache_utility, cache_utility_released, cache_utility_real, cache_ahead;

extern const struct cache_policy_class *const cache_policy_classes[];       /* all policies, NULL after the last */

/* Returns the class that `text` names; NULL: cache_open would reject the name. */
const struct cache_policy_class *cache_policy_find(const char *text);

#endif
