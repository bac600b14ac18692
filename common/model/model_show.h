/* Shows a model file as streams are shown (stream/show.h): one object of type "model", or "head" for a draft head, then one of
 * type "tensor" each. */
#ifndef MOE_MODEL_MODEL_SHOW_H
#define MOE_MODEL_MODEL_SHOW_H

#include "common/base/err.h"
#include "common/model/model.h"
#include "common/stream/show.h"

/* type: "model" or "head", "tensor", or NULL for both; layer: -1 for all. CSV is the table of tensors, or with "model" or
 * "head" the numbers of the whole file. */
int model_show(struct show *show, const struct model *model, const char *type, int layer, struct err *err);

#endif
