/* Converts a checkpoint to a model file.
 *
 * A plan binds every canonical tensor to source tensors and chooses formats; planning reads no weights. It fails on a tensor
 * that is missing, has the wrong shape, has a dtype that cannot be read, or is left over. Writing then processes the tensors
 * in canonical order, one block per thread, some rows at a time.
 *
 * The identity of the source is the SHA-256 over one XXH3 hash per block, in canonical order. The XXH3 of a block covers,
 * for each of its parts, one line of text (name, block, part, dtype, rows x columns) and the part's bytes as stored in the
 * checkpoint. So the identity is the same for one file or many, archive or folder, experts apart or fused. The SHA-256 of
 * all bytes is computed only once, for the digests of the files. */
#ifndef MOE_CHECKPOINT_CONVERT_H
#define MOE_CHECKPOINT_CONVERT_H

#include "common/arch/arch.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/model_write.h"

/* Format of matrices; vectors are always f32. */
struct format_choice {
    bool keep;                      /* keep the checkpoint's dtype of each tensor */
    enum weight_format format;      /* otherwise: the format made from floats; with fp8, q8 and q4, some matrices keep their
                                     * dtype (tensor_format) */
};

struct convert_options {
    struct format_choice dense, experts;
    const char *name;               /* NULL: the checkpoint's own name */
    const char *producer;
};

struct conversion {
    struct checkpoint *checkpoint;  /* borrowed */
    const struct naming *naming;
    const struct naming *ahead;     /* naming of the predictors' tensors; NULL: a draft head, which has no predictors */
    struct model_facts facts;
    struct layout layout;
    size_t widened;                 /* number of tensors that become f32 because no format here represents all their parts */
    const char *widened_first;      /* canonical name of the first such tensor */
    size_t skipped;                 /* number of tensors left out, as those of an image encoder */
    const char *first_skipped;      /* name of the first such tensor in the checkpoint */
};

/* Plans a conversion. out must be {0}; it is filled only on success. */
int conversion_plan(struct conversion *out, struct checkpoint *checkpoint, const struct convert_options *options,
                    struct err *err);
void conversion_free(struct conversion *conversion);

/* ---- for modules that plan files other than models ---- */

/* Binds all parts of a tensor of the layout and chooses its format. */
int conversion_bind(struct conversion *conversion, struct tensor *tensor, const struct format_choice *choice, struct err *err);

/* Fails with the name of the first source tensor that is neither bound nor known to be unneeded. */
int conversion_check_left_over(struct conversion *conversion, struct err *err);

/* ---- */

/* Writes the model file. bar may be NULL; it counts bytes written. The plan cannot be used again, also after a failure. */
int conversion_write(struct conversion *conversion, const char *path, struct thread_pool *pool, struct progress *bar,
                     struct err *err);

#endif
