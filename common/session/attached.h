/* The drafters that belong to a model: draft heads and draft models named in the file MODEL.drafters beside the model file
 * MODEL (moe-model(5)). `moe-convert attach` writes it, and `--draft auto` reads it.
 *
 * The model file itself does not change, so streams that were recorded with it still fit. A name without a leading / is
 * relative to the folder of the model file, so the folder can be moved. */
#ifndef MOE_SESSION_ATTACHED_H
#define MOE_SESSION_ATTACHED_H

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/text.h"
#include "common/model/model.h"

enum { ATTACHED_MAX = 4 };

struct attached {
    char *path;                         /* path of MODEL.drafters; NULL: no such file */
    char *file[ATTACHED_MAX];           /* path from the folder of this process */
    char *draft[ATTACHED_MAX];          /* value of --draft for the file: "head:file=eagle3.moe" */
    int count;
    char source[65];                    /* digest of the model's weights, as hexadecimal digits */
};

/* Reads the drafters of the model file `model`; without MODEL.drafters there are none. *out is set on success only; the
 * caller frees it. */
int attached_read(struct attached *out, const char *model, struct err *err);
void attached_free(struct attached *attached);

/* Fails if the drafters were attached to a model with other weights. */
int attached_check(const struct attached *attached, const struct model *model, struct err *err);

/* Writes MODEL.drafters with these files, in place of those attached before. Fails, and writes nothing, if one of them is
 * neither a head of the model nor a model with the same tokenizer. */
int attached_write(const struct model *model, const char *const *file, int count, struct err *err);

#endif
