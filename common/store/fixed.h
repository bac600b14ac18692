/* Base of the sources whose experts never move: a table of addresses for each MoE layer. Private to store/. */
#ifndef MOE_STORE_FIXED_H
#define MOE_STORE_FIXED_H

#include "common/store/expert_source.h"

struct fixed_source {
    struct expert_source base;
    struct device *device;
    struct buffer table[LAYERS_MAX];         /* u64 [experts]; empty for a layer without experts */
    struct buffer data[LAYERS_MAX];          /* the layer's experts on the device */
    const char *host[LAYERS_MAX];            /* the layer's experts in the mapped file */
    /* bytes from one expert to the next */
    size_t stride[LAYERS_MAX];
    int layers;
    bool owned;                              /* `data` was allocated on the device */
};

/* Opens a source. owned: copies the experts to the device; otherwise they are used in place. */
int fixed_source_open(struct expert_source **out, const struct expert_source_class *class, bool owned,
                      const struct model *model, struct device *device, struct err *err);
int fixed_acquire(struct expert_source *source, struct expert_union *wanted, struct buffer *table, struct err *err);
void fixed_release(struct expert_source *source, struct expert_union *wanted);
int fixed_acquire_host(struct expert_source *source, struct expert_union *wanted, const void **address, struct err *err);
void fixed_free(struct expert_source *source);

#endif
