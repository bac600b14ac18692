/* Plans the conversion of a published draft head to a head file (common/model/head.h, common/arch/head.h), which
 * conversion_write then writes. Planning fails where conversion_plan fails, and if the head does not fit the target: another
 * width or vocabulary, layers that the target does not have, or a vocabulary map with ids outside the target's vocabulary. */
#ifndef MOE_CHECKPOINT_CONVERT_HEAD_H
#define MOE_CHECKPOINT_CONVERT_HEAD_H

#include "common/arch/head.h"
#include "common/checkpoint/convert.h"

struct head_options {
    struct format_choice format;
    enum head_kind kind;            /* HEAD_NONE: recognised by the tensors */
    int exit_layer;
    enum layer_ids layer_ids;
    const char *name;               /* NULL: the source's own name */
    const char *producer;
};

/* Returns the kind of draft head, recognised by the checkpoint's tensors; HEAD_NONE: not a head, or of an unknown kind. */
enum head_kind checkpoint_head_kind(const struct checkpoint *checkpoint);

/* Plans a conversion. out must be {0}; it is filled only on success. notes must be {0}; it receives notes for the
 * user: values taken from the target because the source lacks them, and corrections of its config.json. */
int conversion_plan_head(struct conversion *out, struct checkpoint *checkpoint, const struct model *target,
                         const struct head_options *options, struct text *notes, struct err *err);

#endif
