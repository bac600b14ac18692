/* Model files without a checkpoint: random weights of a shape, and a copy of a model with wider layers.
 *
 * synthetic: matrices are uniform with standard deviation 1/sqrt(inputs) (the embedding: 1), norms one, biases zero, so that
 * activations stay near one through any number of layers. A value is a hash of seed, tensor, block, part, row and column:
 * the same for any number of threads; a format rounds it. Marked as synthetic.
 *
 * inflate: the inner width of every routed expert, or of the dense layers of a model without experts, or of a draft head's
 * layer, grows to `inner`; the new rows of gate and up and columns of down are zeros. act(0) * 0 is 0, so the model computes
 * the same function with the same routing, but reads as many bytes as a larger one. All other tensors are copied byte by
 * byte. The file records the width before inflation. A model that differs from its digests is rejected. */
#ifndef MOE_MODEL_SYNTHETIC_H
#define MOE_MODEL_SYNTHETIC_H

#include "common/model/model_write.h"

struct synthetic_options {
    enum weight_format dense, experts;
    uint64_t seed;
    const char *name, *producer;
    const struct head_params *head;     /* description of a draft head, whose layer has the shape; NULL: the file is a model */
    struct text tokenizer_json;         /* borrowed; empty: none */
    struct sha256 tokenizer;
};

/* bar may be NULL; its total is set here. */
int synthetic_write(const char *path, const struct hparams *shape, const struct synthetic_options *options,
                    struct thread_pool *pool,
                    struct progress *bar, struct err *err);

/* Returns which width grows: that of experts, or of dense layers if there are no experts. */
enum tensor_role inflate_role(const struct hparams *shape);
int *inflate_inner(struct hparams *shape);

int inflate_write(const char *path, const struct model *model, int inner, const char *producer, struct thread_pool *pool,
                  struct progress *bar, struct err *err);

/* Computes the layouts that synthetic_write and inflate_write would write. out: {0} */
int synthetic_plan(struct layout *out, const struct hparams *shape, const struct synthetic_options *options, struct err *err);
int inflate_plan(struct layout *out, const struct model *model, int inner, struct err *err);

/* Finds the inner width with which a step of `model` reads `bytes`, as nearly as widths allow; fails unless this width is
 * larger than the model's. */
int inflate_width(int *inner, const struct model *model, uint64_t bytes, struct err *err);

#endif
