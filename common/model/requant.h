/* Copies a model file and stores its matrices in other formats. Weights are decoded to f32, as kernels decode them, and rounded
 * to the new format, so quantised weights are rounded a second time. Tensors that keep their format are copied. A model that
 * differs from its digests is rejected. */
#ifndef MOE_MODEL_REQUANT_H
#define MOE_MODEL_REQUANT_H

#include "common/model/model_write.h"

struct requant_choice { bool keep; enum weight_format format; };     /* format: must be encodable from floats */

struct requant_options {
    struct requant_choice dense, experts;       /* experts: the routed ones */
    const char *name, *producer;                /* name NULL: the copy keeps the model's name */
};

/* Sets *out, which must be {0}, to the layout that requant_write would write. The caller frees it. */
int requant_plan(struct layout *out, const struct model *model, const struct requant_options *options, struct err *err);

/* Writes the model file `path`. bar may be NULL; its total is set here. */
int requant_write(const char *path, const struct model *model, const struct requant_options *options, struct thread_pool *pool,
                  struct progress *bar, struct err *err);

#endif
