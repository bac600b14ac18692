/* From a published draft head to a head file (common/model/head.h, common/arch/head.h): a plan, which conversion_write then
 * writes as it does a model's. It fails on what conversion_plan fails on, and where the head is not one for the target: another
 * width or vocabulary, layers that the target does not have, a vocabulary map that leads out of it. */
#ifndef MOE_CHECKPOINT_CONVERT_HEAD_H
#define MOE_CHECKPOINT_CONVERT_HEAD_H

#include "common/arch/head.h"
#include "common/checkpoint/convert.h"

struct head_options {
    struct format_choice format;
    enum head_kind kind;            /* HEAD_NONE: recognised by the tensors */
    int exit_layer;
    enum layer_ids layer_ids;
    const char *name;               /* NULL: the source's own */
    const char *producer;
};

/* The kind of draft head that a checkpoint is by its tensors; HEAD_NONE: it is none, or not known here. */
enum head_kind checkpoint_head_kind(const struct checkpoint *checkpoint);

/* out: {0}; filled on success only. said: what is the target's, for people; {0}. */
int conversion_plan_head(struct conversion *out, struct checkpoint *checkpoint, const struct model *target,
                         const struct head_options *options, struct text *said, struct err *err);

#endif
