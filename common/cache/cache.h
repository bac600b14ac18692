/* Which experts are resident in a tier that cannot hold them all: who is where, who goes when another comes, and who is
 * asked for beforehand. Bookkeeping and decisions only: no clock, no tensors, no files, so that recorded routes can be
 * replayed through it, and the store and the simulator decide alike.
 *
 * A slot holds any expert of any layer. `layer` counts layers with experts, from 0; key = layer * experts + expert. A slot is
 * HELD while it is read into or computed from, as often as it was held; only one that nobody holds can be given to another.
 *
 * One layer of one forward:
 *
 *     cache_want(cache, layer, expert, tokens, count);            once the router has chosen; counts hits and misses
 *     for each:  slot = cache_find(cache, layer, expert);         those found are held first, as what is inserted drives out
 *                if (slot >= 0) cache_hold(cache, slot);
 *     for those not found:
 *                slot = cache_insert(cache, layer, expert, CACHE_DEMAND, &victim);        held; -1: nobody may go
 *                ... read it; compute; cache_release(cache, slot);
 *     when a transfer is free:
 *                slot = cache_fetch(cache, &key, &victim);       what to read beforehand, held until it has come; -1: nothing
 *
 * One thread at a time. Everything is in O(log slots), but for cache_want, which is O(experts). */
#ifndef MOE_CACHE_CACHE_H
#define MOE_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "common/stream/values.h"

enum { CACHE_LEVELS = 64 };             /* of requests: 1 .. CACHE_LEVELS, highest first */
enum { CACHE_KEYS_MAX = 1 << 22 };      /* layers x experts */

/* What a forward is for. Of a prompt no draft says anything. What drafting asks for beforehand, or others ask for meanwhile, is
 * for the verification that comes: forwards of a draft leave it as it is. */
enum cache_forward { CACHE_VERIFIES, CACHE_PROMPT, CACHE_DRAFTS };

enum cache_reason { CACHE_DEMAND, CACHE_PREFETCH };

/* All keys in the order in which they will be wanted, cache_want by cache_want: what Belady's policy must know. */
struct cache_future {
    const int32_t *key;         /* [count] */
    size_t count;
};

struct cache_setup {
    int layers, experts;        /* layers with experts, experts of each */
    int slots;                  /* of all layers together; at least top_k */
    int top_k;                  /* experts that a token wants in a layer */
    int draft_length;           /* the longest draft, gamma: a forward of decoding has at most gamma + 1 tokens */
    bool elsewhere;             /* an expert without a slot can be computed elsewhere, so that a policy may keep it out */
    const int32_t *pins;        /* [pinned] keys, best first: of a rank stream or a hot set; NULL: none */
    const double *pin_weight;   /* [pinned] how much they were wanted before; NULL: not known */
    int pinned;
    bool ranked;                /* pins are those of the rank stream that the policy's settings name */
    const struct cache_future *future;          /* NULL: not known. It stays as long as the cache */
    const bool *kept_out;       /* [layers * experts] always computed elsewhere: they never come beforehand. NULL: none */
};

struct cache_counts {           /* since the cache was opened */
    int64_t wanted;             /* experts, each once a layer of a forward */
    int64_t hits;               /* of them resident then, or on the way */
    int64_t inserted, prefetched; /* on demand; beforehand */
    int64_t useful;             /* prefetched, and wanted before they went */
    int64_t wasted;             /* prefetched, and gone without having been wanted */
    /* Verifications alone: experts that were asked for before their layer had its turn; of them wanted; and all that were. */
    int64_t named, right, scored;
};

struct cache;

/* `text` is a policy with its settings, NULL: lru. */
int cache_open(struct cache **out, const char *text, const struct cache_setup *setup, struct err *err);
void cache_close(struct cache **cache);

/* A new text begins. What is resident stays. */
void cache_begin(struct cache *cache);

/* A forward of `tokens` tokens begins. */
void cache_step(struct cache *cache, int tokens, enum cache_forward forward);

/* The tokens of this forward want these distinct experts of a layer, expert[i] by tokens[i] of them. Requests for the layer
 * that were not fetched yet are dropped, unless it drafts. */
void cache_want(struct cache *cache, int layer, const int32_t *expert, const int32_t *tokens, int count);

int cache_find(const struct cache *cache, int layer, int expert);           /* its slot; -1: not resident */
bool cache_is_full(const struct cache *cache);                              /* each slot has an expert */
bool cache_has_room(const struct cache *cache);                             /* a slot is empty, or its expert held by nobody */
int cache_key(const struct cache *cache, int slot);                         /* who is in a slot; -1: nobody */
void cache_hold(struct cache *cache, int slot);
void cache_release(struct cache *cache, int slot);

/* A slot for an expert that is not resident, which is held and its own from now on. *victim is the key that was there before,
 * -1: nobody. -1: all are held, or the policy keeps those that are not. */
int cache_insert(struct cache *cache, int layer, int expert, enum cache_reason reason, int *victim);

/* Residents of this layer are evicted after those of all other layers, and never for a prefetch, until the next call; -1: no
 * layer. In O(slots). */
void cache_keep(struct cache *cache, int layer);

/* What was to come into a slot did not: it is empty, and nobody's. It must be held once, and counts no longer as
 * fetched or inserted. */
void cache_drop(struct cache *cache, int slot);

/* Asks for an expert beforehand: levels from high to low, first in first out. One that is asked for already goes to the new
 * level; one that is resident by the time its turn comes is not inserted again, but the policy hears of it (inserted); one that
 * is kept out is named by it, no more. Policies ask by themselves (utility, pins), and others may (forecasts). */
void cache_ask(struct cache *cache, int layer, int expert, int level);

/* So many more tokens are expected to want an expert than were before, since its layer had its turn: as many as that is its
 * level. */
void cache_expect(struct cache *cache, int layer, int expert, int tokens);

/* Inserts the first request whose level the policy grants, as cache_insert does; *key is who comes. -1: there is none, or no
 * slot for it: then it stays. */
int cache_fetch(struct cache *cache, int *key, int *victim);

/* The key whose request is first, -1: there is none; and a request that nobody needs any more. */
int cache_asked(const struct cache *cache);
void cache_unask(struct cache *cache, int key);

/* Residents and requests of a level below `tau` are cold: they are not fetched, and go first (MoE-SpAc eq. 9). Of no meaning to
 * policies without levels. 1 at the start. */
void cache_threshold(struct cache *cache, int tau);

struct cache_counts cache_counts(const struct cache *cache);
void cache_state(const struct cache *cache, struct values *out);            /* what its decisions rest on, for records */

/* How much each key is wanted by the policy's own measure, for a hot set: weight[layers * experts]. False: it has none. */
bool cache_weights(const struct cache *cache, double *weight);

/* ---- policies */

/* Who goes first: the lowest, by `first`, then by `second`. Equal ones go by slot. */
struct cache_value { int64_t first, second; };

struct cache_policy {           /* what all policies begin with */
    const struct cache_policy_class *class;
};

struct cache_policy_class {
    const char *name, *summary;
    const char *settings;       /* what may follow the colon; NULL: nothing */
    bool replays;               /* it must know the future, so it works in replay only */
    int (*open)(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err);
    void (*start)(struct cache_policy *policy, struct cache *cache);    /* may ask (cache_ask). NULL: nothing; so below */
    void (*begin)(struct cache_policy *policy);
    bool (*step)(struct cache_policy *policy, int tokens, enum cache_forward forward);  /* true: values of all have changed */
    /* May ask (cache_ask). Values of this layer's experts may change here. */
    void (*want)(struct cache_policy *policy, struct cache *cache, int layer, const int32_t *expert, const int32_t *tokens,
                 int count);
    void (*asked)(struct cache_policy *policy, int key, int level);     /* resident or not */
    void (*inserted)(struct cache_policy *policy, int key, int level);  /* it got a slot, or had one; level as below */
    void (*released)(struct cache_policy *policy, int key);             /* nobody holds it any more: its value may change */
    struct cache_value (*value)(const struct cache_policy *policy, int key);            /* of a resident that nobody holds */
    /* May this resident, the lowest, go for that one? level: of the request, 0 on demand. NULL: always. */
    bool (*gives)(const struct cache_policy *policy, int victim, int key, int level);
    bool (*grants)(const struct cache_policy *policy, int level);       /* is a request of this level fetched? NULL: yes */
    void (*threshold)(struct cache_policy *policy, int tau);
    bool (*weights)(const struct cache_policy *policy, double *weight);
    void (*state)(const struct cache_policy *policy, struct values *out);
    void (*free)(struct cache_policy *policy);
};

const struct cache_policy *cache_policy_of(const struct cache *cache);

extern const struct cache_policy_class cache_lru, cache_lru_global, cache_lfu, cache_static, cache_hot, cache_belady,
                                       cache_utility, cache_utility_released, cache_utility_real, cache_ahead;

extern const struct cache_policy_class *const cache_policy_classes[];       /* all, NULL after the last */

/* The class that `text` names; NULL: cache_open would refuse the name. */
const struct cache_policy_class *cache_policy_find(const char *text);

#endif
