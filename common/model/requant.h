/* A model file made into one whose matrices have other formats. Weights are read as the f32 that kernels multiply and are
 * rounded to the new format; tensors that keep their format are copied. Quantised weights are rounded a second time. A model
 * that differs from its digests is refused. */
#ifndef MOE_MODEL_REQUANT_H
#define MOE_MODEL_REQUANT_H

#include "common/model/model_write.h"

struct requant_choice { bool keep; enum weight_format format; };     /* format: one that can be made from floats */

struct requant_options {
    struct requant_choice dense, experts;       /* experts: the routed ones */
    const char *name, *producer;                /* name NULL: the model keeps its own */
};

/* The layout that requant_write would write. out: {0} */
int requant_plan(struct layout *out, const struct model *model, const struct requant_options *options, struct err *err);

/* bar may be NULL; its total is set here. */
int requant_write(const char *path, const struct model *model, const struct requant_options *options, struct thread_pool *pool,
                  struct progress *bar, struct err *err);

#endif
