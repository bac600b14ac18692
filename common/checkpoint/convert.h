/* From a checkpoint to a model file.
 *
 * A plan binds every canonical tensor to source tensors and chooses formats; making it reads no weights. It fails on a
 * tensor that is missing, misshapen, of a dtype that cannot be read, or left over. Writing then goes through the tensors in
 * canonical order, a block a thread, some rows at a time.
 *
 * The identity of the source is the SHA-256 over, for each block in canonical order, the XXH3 of its parts, each as one line
 * (name, block, part, dtype, rows x columns) and its bytes as they lie in the checkpoint: the same for one file or many,
 * archive or folder, experts apart or fused. Bytes go through SHA-256 once, for the digests of the files. */
#ifndef MOE_CHECKPOINT_CONVERT_H
#define MOE_CHECKPOINT_CONVERT_H

#include "common/arch/arch.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/model_write.h"

/* What becomes of matrices; vectors are always f32. */
struct format_choice {
    bool keep;                      /* the checkpoint's own dtype, tensor by tensor */
    enum weight_format format;      /* otherwise, one that is made from floats; fp8, q8 and q4 keep embedding and router */
};

struct convert_options {
    struct format_choice dense, experts;
    const char *name;               /* NULL: the checkpoint's own */
    const char *producer;
};

struct conversion {
    struct checkpoint *checkpoint;  /* borrowed */
    const struct naming *naming;
    struct model_facts facts;
    struct layout layout;
    size_t widened;                 /* tensors that become f32 as no format here holds what their parts are kept in */
    const char *widened_first;      /* the first one's name, in layout */
    size_t skipped;                 /* tensors of parts that are left out, as of images */
    const char *first_skipped;      /* the first one's name, in the checkpoint */
};

/* out: {0}; filled on success only. */
int conversion_plan(struct conversion *out, struct checkpoint *checkpoint, const struct convert_options *options,
                    struct err *err);
void conversion_free(struct conversion *conversion);

/* ---- for those that plan other files than models ---- */

/* Binds all parts of a tensor of the layout and chooses its format. */
int conversion_bind(struct conversion *conversion, struct tensor *tensor, const struct format_choice *choice, struct err *err);

/* An error that names a tensor of the source that is neither bound nor known to be of no use. */
int conversion_check_left_over(struct conversion *conversion, struct err *err);

/* ---- */

/* bar may be NULL; it steps by bytes written. The plan is spent afterwards, also on failure. */
int conversion_write(struct conversion *conversion, const char *path, struct thread_pool *pool, struct progress *bar,
                     struct err *err);

#endif
