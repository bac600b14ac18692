/* A hot set: how much each expert was wanted in earlier runs of a model, hottest first, so that the next run begins with
 * these experts. A small JSON file, for one model and for every other file of the same weights, quantised or inflated:
 *
 *     {"hot_set": 1,
 *      "model": {"name": "olmoe", "source": SHA-256, "layers": 16, "experts": 64, "top_k": 8},
 *      "experts": [[layer, expert, weight], ...]}
 *
 * `layer` counts layers with experts; weights descend. Errors: ERR_INPUT with the file's name for a malformed file or
 * another model. */
#ifndef MOE_CACHE_HOT_SET_H
#define MOE_CACHE_HOT_SET_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/stream/header.h"

struct hot_set {
    int32_t *key;               /* [count] layer * experts + expert */
    double *weight;             /* [count] above 0 */
    int count;
};

int hot_set_read(struct hot_set *out, const char *path, const struct stream_model *model, struct err *err);
void hot_set_free(struct hot_set *set);

/* Writes the entries of weight[moe_layers * experts] that are above 0; equal weights are ordered by key. */
int hot_set_write(const char *path, const double *weight, const struct stream_model *model, struct err *err);

#endif
