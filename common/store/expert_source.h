/* Where the bytes of experts are, and how they get to where a device can read them. The engine reaches experts through this
 * alone: it acquires the ones a layer needs, computes, and releases them.
 *
 * MAPPED: the model file as it lies in memory (devices that share the host's memory). UPLOADED: all experts copied to the
 * device once. Both are `fixed`: every expert is in place all the time, so that the engine need not wait to learn which ones
 * are wanted. */
#ifndef MOE_STORE_EXPERT_SOURCE_H
#define MOE_STORE_EXPERT_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/model/model.h"
#include "common/tensor/device.h"

struct expert_source;

struct expert_source_class {
    const char *name;
    bool fixed;
    /* Puts the `count` distinct experts of an expert layer in place. expert NULL: all of them (fixed sources only). *table is a
     * device buffer of u64 [experts] addresses, right for these experts until they are released. */
    int (*acquire)(struct expert_source *source, int layer, const int32_t *expert, int count, struct buffer *table,
                   struct err *err);
    void (*release)(struct expert_source *source, int layer, const int32_t *expert, int count);
    void (*free)(struct expert_source *source);
};

/* What all sources begin with. `layer` above and here counts all layers of the model. */
struct expert_source {
    const struct expert_source_class *class;
};

int expert_source_mapped(struct expert_source **out, const struct model *model, struct device *device, struct err *err);
int expert_source_uploaded(struct expert_source **out, const struct model *model, struct device *device, struct err *err);
/* The one that fits the device. */
int expert_source_open(struct expert_source **out, const struct model *model, struct device *device, struct err *err);
void expert_source_close(struct expert_source **source);

#endif
