/* The weights of a draft head in training: f32, with a gradient and two moments each, one after the other in the order of the
 * head's canonical tensors (common/model/model.h). An expert of a gated network is two matrices: gate and up [2 inner][hidden],
 * and down. An embedding of the head's own is not trained, as in the originals. */
#ifndef MOE_TRAIN_WEIGHTS_H
#define MOE_TRAIN_WEIGHTS_H

#include "common/base/progress.h"
#include "common/base/thread_pool.h"
#include "common/model/layout.h"
#include "common/train/tape.h"

enum weight_part { WEIGHT_WHOLE, WEIGHT_GATE_UP, WEIGHT_DOWN };

struct weight {
    struct variable value;
    const struct tensor *tensor;
    enum weight_part part;
    int block;                      /* of the tensor: which expert */
};

struct weights {
    struct head_params head;
    struct hparams shape;
    struct layout layout;
    struct weight *list;
    int count;
    float *data, *gradient, *first, *second;    /* [floats] of all that is trained */
    float *frozen;
    size_t floats;
};

/* All zeros. */
int weights_make(struct weights **out, const struct head_params *head, const struct hparams *shape, struct err *err);
void weights_free(struct weights **weights);

struct weight *weights_find(struct weights *weights, enum tensor_role role, enum weight_part part, int layer, int stage);

/* Those of a file of the same head. */
void weights_read(struct weights *weights, const struct model *file);

/* As the originals begin: matrices and biases uniform in +-1/sqrt(inputs), norms 1; medusa and hydra: first and further blocks'
 * matrices 0, output heads the target's. The same for the same seed. */
int weights_start(struct weights *weights, const struct model *target, uint64_t seed, struct err *err);

struct weights_file {
    const char *path, *name, *producer;
    enum weight_format format;      /* of matrices */
};
int weights_write(const struct weights *weights, const struct weights_file *file, struct thread_pool *pool, struct err *err);

/* ---- of any model ---- */

/* One row of a matrix in a model file, as f32. */
void tensor_row(const struct model *model, const struct tensor *tensor, int row, float *out);

#endif
