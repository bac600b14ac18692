/* Experts that a cache contains from the start: the best of a rank stream (--cache-policy static:rank=FILE), or those that
 * earlier runs requested most (--hot-set FILE). At its end the run writes the hot set for the next one. */
#ifndef MOE_SESSION_CACHE_PINS_H
#define MOE_SESSION_CACHE_PINS_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/session/caching.h"
#include "common/store/expert_source.h"
#include "common/stream/header.h"

struct cache_pins {
    int32_t *key;               /* [count] layer * experts + expert, best first; layers are those with experts */
    double *weight;             /* [count] */
    int count;
    bool ranked;                /* the experts are those of a rank stream */
};

/* Returns no experts if neither option is given, or if the file of the hot set does not exist yet. Sorts experts of a rank
 * stream over all layers by score, then by rank within the layer. Appends notes, one per line, to *note. Fails if a file is
 * invalid or belongs to another model. */
int cache_pins_read(struct cache_pins *out, const struct caching_options *options, const struct stream_model *model,
                    struct text *note, struct err *err);
void cache_pins_free(struct cache_pins *pins);

/* Writes the hot set if one was requested and the cache policy has measured it. */
int cache_pins_save(const struct caching_options *options, const struct expert_source *source,
                    const struct stream_model *model, struct err *err);

#endif
