/* What --cache-experts, --host-experts, --cache-policy, --hot-set, --prefetch and --split say: how many experts have slots, of
 * a device and of the host, which ones stay there, what is read early, and which are computed by a second processor. */
#ifndef MOE_SESSION_CACHING_H
#define MOE_SESSION_CACHING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/cache/split.h"
#include "common/cli/opt.h"
#include "common/cli/spec.h"
#include "common/model/model.h"
#include "common/store/expert_source.h"

/* FORECAST: by what earlier forwards wanted (predict/forecast.h). */
enum prefetch { PREFETCH_NONE, PREFETCH_DRAFT, PREFETCH_FORCED, PREFETCH_NEXT_LAYER, PREFETCH_FORECAST };

struct prefetching {
    enum prefetch kind;
    const char *forecast;               /* of PREFETCH_FORECAST: its name, else NULL */
    const char *file;                   /* route streams that it learns from beforehand; NULL: none */
    int max;                            /* experts of a layer that it names; 0: not given */
    struct spec *spec;                  /* in whose memory they are */
};

struct caching_options {
    const char *experts;                /* SIZE, N%, auto or none; NULL: none, or auto where the model exceeds memory */
    const char *host;                   /* the same or none, for a device with memory of its own; NULL: none */
    const char *policy;                 /* NULL: lru, or hot with a hot set */
    const char *hot_set;                /* file, read at the start and written at the end; NULL: none */
    const char *prefetch;               /* NULL: none */
    const char *split;                  /* NULL: the device computes all experts */
};

#define CACHING_OPTIONS(args, caching) \
    OPT_STRING(0, "cache-experts", args, caching.experts, "SIZE|N%|auto|none", \
               "keep so many routed experts in the device's memory and read the others when they are wanted; `none' maps the " \
               "model, whatever memory there is"), \
    OPT_STRING(0, "host-experts", args, caching.host, "SIZE|N%|auto|none", \
               "keep so many in the host's memory, too, where a device with its own copies from"), \
    OPT_STRING(0, "cache-policy", args, caching.policy, \
               "lru|lru-global|lfu|hot|static:rank=FILE|ahead|utility|utility-released|utility-real", \
               "let this policy choose which experts stay"), \
    OPT_STRING(0, "prefetch", args, caching.prefetch, \
               "none|draft|forced|next-layer|popular[:max=N]|last|table[:file=FILE]|utility", \
               "read experts before they are wanted, by this"), \
    OPT_STRING(0, "split", args, caching.split, "none|static[:share=N]|resident|level[:tau=N]|balance[:warm-up=N]", \
               "let the host's processor compute some of the experts while the device computes the others")

/* For a command whose runs go on where earlier ones ended. */
#define CACHING_OPTION_HOT_SET(args, caching) \
    OPT_OUTPUT(0, "hot-set", args, caching.hot_set, \
               "begin with the experts that earlier runs wanted most, as FILE says, and keep it up to date")

/* The policy with its settings; NULL: lru. */
const char *caching_policy(const struct caching_options *options);

/* *out is of SPLIT_NONE where nobody splits them. */
int caching_split(struct split_rule *out, const struct caching_options *options, struct err *err);

int caching_prefetching(struct prefetching *out, const struct caching_options *options, struct err *err);
void prefetching_free(struct prefetching *prefetching);

/* Options that make no sense without each other, and names that nobody has. */
int caching_check(const struct caching_options *options, struct err *err);

/* Nothing can be known beforehand without a drafter that may be a copy of the model, or forced routes. */
int caching_check_drafts(const struct caching_options *options, const struct strings *drafters, bool forced, struct err *err);

/* Whether experts are to be cached: --cache-experts is given, and not none. */
bool caching_wanted(const struct caching_options *options);

/* Where nothing is said of --cache-experts: sets it to auto for a model whose weights and `taken` bytes beside them exceed the
 * memory that is left, and appends a line to *note that says so. A model of which not even the experts of one token fit stays
 * mapped, with another line. */
int caching_choose(struct caching_options *options, const struct model *model, struct device *device, uint64_t taken,
                   struct text *note, struct err *err);

/* How many experts of all layers together have slots, of a model whose dense part is in memory: both numbers of *out. auto
 * takes what there is less an eighth and `taken`, which keys, values and other models will take; of the host's memory, where it
 * is the second tier, three quarters of what there is. */
int caching_slots(struct expert_cache *out, const struct caching_options *options, const struct model *model,
                  struct device *device, uint64_t taken, struct err *err);

/* Bytes of the files that the texts of drafters name, such as model:FILE. */
uint64_t caching_files(const struct strings *drafters);

#endif
