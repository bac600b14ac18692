/* Options --cache-experts, --host-experts, --cache-policy, --hot-set, --prefetch and --split: how many experts have slots on
 * the device and on the host, which experts stay there, which are prefetched, and which a second processor computes. */
#ifndef MOE_SESSION_CACHING_H
#define MOE_SESSION_CACHING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/cache/split.h"
#include "common/cli/opt.h"
#include "common/cli/spec.h"
#include "common/engine/peers.h"
#include "common/model/model.h"
#include "common/store/expert_source.h"

/* FORECAST: by the experts of earlier forwards (predict/forecast.h). */
enum prefetch { PREFETCH_NONE, PREFETCH_DRAFT, PREFETCH_FORCED, PREFETCH_NEXT_LAYER, PREFETCH_FORECAST };

struct prefetching {
    enum prefetch kind;
    const char *forecast;               /* PREFETCH_FORECAST: name of the source, else NULL */
    const char *file;                   /* route streams that initialise it; NULL: none */
    int max;                            /* maximum number of predicted experts per layer; 0: not given */
    struct spec *spec;                  /* owns the memory of these texts */
};

struct caching_options {
    const char *experts;                /* SIZE, N%, auto or none; NULL: none, or auto where the model exceeds memory */
    const char *host;                   /* as `experts`, or none, for a device with memory of its own; NULL: none */
    const char *policy;                 /* NULL: lru, or hot with a hot set */
    const char *hot_set;                /* file, read at the start and written at the end; NULL: none */
    const char *prefetch;               /* NULL: none */
    const char *split;                  /* NULL: the device computes all experts */
};

#define CACHING_OPTIONS(args, caching) \
    OPT_STRING(0, "cache-experts", args, caching.experts, "SIZE|N%|auto|none", \
               "keep this many routed experts in the device's memory, and read the others from the file on demand; `none' " \
               "maps all, even if memory is short"), \
    OPT_STRING(0, "host-experts", args, caching.host, "SIZE|N%|auto|none", \
               "keep a second cache of this many experts in the host's memory, for devices with their own memory"), \
    OPT_STRING(0, "cache-policy", args, caching.policy, \
               "lru|lru-global|lfu|hot|static:rank=FILE|ahead|utility|utility-released|utility-real", \
               "decide by this policy which experts stay in the cache"), \
    OPT_STRING(0, "prefetch", args, caching.prefetch, \
               "none|draft|forced|next-layer|popular[:max=N]|last|table[:file=FILE]|pairs|utility", \
               "prefetch the experts that this forecast names"), \
    OPT_STRING(0, "split", args, caching.split, "none|static[:share=N]|resident|level[:tau=N]|balance[:warm-up=N]", \
               "compute a part of the experts on the host's processor, in parallel with the device")

/* The option of commands with resumable runs. */
#define CACHING_OPTION_HOT_SET(args, caching) \
    OPT_OUTPUT(0, "hot-set", args, caching.hot_set, \
               "start with the experts that earlier runs requested most, stored in FILE, and update FILE at the end")

/* Returns the policy with its settings; NULL: lru. */
const char *caching_policy(const struct caching_options *options);

/* Parses --split; without it *out is SPLIT_NONE. */
int caching_split(struct split_rule *out, const struct caching_options *options, struct err *err);

int caching_prefetching(struct prefetching *out, const struct caching_options *options, struct err *err);
void prefetching_free(struct prefetching *prefetching);

/* Rejects combinations of options without effect, and unknown names. */
int caching_check(const struct caching_options *options, struct err *err);

/* Checks --prefetch: routes are known in advance only with a drafter that may be a copy of the model, or with forced routes. */
int caching_check_drafts(const struct caching_options *options, const struct strings *drafters, bool forced, struct err *err);

/* Returns whether experts are cached: --cache-experts is given and not none. */
bool caching_wanted(const struct caching_options *options);

/* Without --cache-experts: sets it to auto if the weights and `taken` further bytes exceed the free memory, and appends a
 * line to *note. If not even the experts of one token fit, the model stays mapped, with another line. */
int caching_choose(struct caching_options *options, const struct model *model, struct device *device, uint64_t taken,
                   struct text *note, struct err *err);

/* Computes the number of slots over all layers, on device and host, for a model whose dense part is in memory. auto uses
 * the free memory less an eighth and `taken` (the bytes of keys, values and other models); as a second tier, the host uses
 * three quarters of its free memory. */
int caching_slots(struct expert_cache *out, const struct caching_options *options, const struct model *model,
                  struct device *device, uint64_t taken, struct err *err);

/* Returns the bytes that --cache-experts auto uses for experts: of the bytes left beside the dense part, an eighth stays
 * free, and `taken` is reserved for other data. */
int64_t caching_room(int64_t left, uint64_t taken);

/* Reads the value of an option for the number of cached experts: SIZE, N% of `count` experts, or auto, as many as fit into
 * `room` bytes. slot: bytes of an expert. */
int caching_read_slots(const char *text, const char *option, int64_t room, int64_t count, int64_t slot, int64_t *slots,
                       struct err *err);

/* Returns the bytes of all weights. */
uint64_t caching_weights(const struct model *model);

/* Returns the bytes of the weights that stay in this host's memory: the dense part, and all experts, or the slots of cached
 * experts, or the experts of this host's processes if each of the peers has an equal share. experts: NULL if nothing is cached;
 * peers: NULL if there are none. */
int64_t caching_kept(const struct model *model, const struct expert_source *experts, const struct peers_link *peers);

/* Returns the bytes of the files named in drafters, such as model:FILE. */
uint64_t caching_files(const struct strings *drafters);

#endif
