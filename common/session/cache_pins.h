/* Experts that a cache is to have from the start: the best of a rank stream (--cache-policy static:rank=FILE), or those that
 * earlier runs wanted most (--hot-set FILE), which the run hands on to the next one when it is over. */
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
    bool ranked;                /* they are those of a rank stream */
};

/* None where neither is asked for, and where the file of a hot set does not exist yet. Of a rank stream experts of all layers
 * are put in one order by their scores, and where these are equal by their number in the layer's order. Notes, one a line, are
 * appended to *note. Errors: what the files say is wrong, or is about another model. */
int cache_pins_read(struct cache_pins *out, const struct caching_options *options, const struct stream_model *model,
                    struct text *note, struct err *err);
void cache_pins_free(struct cache_pins *pins);

/* Writes the hot set, where one was asked for, and the policy of the cache has measured one. */
int cache_pins_save(const struct caching_options *options, const struct expert_source *source,
                    const struct stream_model *model, struct err *err);

#endif
