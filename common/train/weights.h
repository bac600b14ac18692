/* The weights of a draft head in training: f32, with a gradient and two moments each, one after the other in the order of the
 * head's canonical tensors (common/model/model.h). An expert of a gated network is two matrices: gate and up [2 inner][hidden],
 * and down. An embedding of the head's own is not trained, as in the originals.
 *
 * They begin, and are read and written, in memory of the host. Training has them on a device (weights_place), which on the host
 * is that same memory; on others both sides are made equal by weights_fetch and weights_send. */
#ifndef MOE_TRAIN_WEIGHTS_H
#define MOE_TRAIN_WEIGHTS_H

#include "common/base/progress.h"
#include "common/base/thread_pool.h"
#include "common/model/layout.h"
#include "common/train/tape.h"

enum weight_part { WEIGHT_WHOLE, WEIGHT_GATE_UP, WEIGHT_DOWN };

struct weight {
    struct variable value;          /* its buffers: once it is placed */
    float *data;                    /* of the host */
    const struct tensor *tensor;
    enum weight_part part;
    int block;                      /* of the tensor: which expert */
};

/* Arrays over all that is trained. */
enum weights_part { WEIGHTS_DATA, WEIGHTS_FIRST, WEIGHTS_SECOND, WEIGHTS_GRADIENT, WEIGHTS_PARTS };

struct weights {
    struct head_params head;
    struct hparams shape;
    struct layout layout;
    struct weight *list;
    int count;
    float *data, *first, *second;   /* [floats] of all that is trained */
    float *gradient;                /* NULL: it was not fetched so far */
    float *frozen;
    size_t floats, frozen_floats;
    struct device *device;          /* NULL: not placed */
    struct buffer at[WEIGHTS_PARTS];        /* what of all that is trained the device has, by enum weights_part */
    struct buffer frozen_at;
    struct buffer squares, outside; /* of blocks of the gradient (optimiser.h) */
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

/* Brings them to a device, which stays, with gradients of zeros; once. */
int weights_place(struct weights *weights, struct device *device, struct err *err);
/* Floats begin .. end - 1 of a part: from the device, or to it. */
int weights_fetch(struct weights *weights, enum weights_part part, size_t begin, size_t end, struct err *err);
int weights_send(struct weights *weights, enum weights_part part, size_t begin, size_t end, struct err *err);
/* All of what a checkpoint has: data and moments. */
int weights_fetch_all(struct weights *weights, struct err *err);
int weights_send_all(struct weights *weights, struct err *err);
void weights_clear_gradients(struct weights *weights);

struct weights_file {
    const char *path, *name, *producer;
    enum weight_format format;      /* of matrices */
};
int weights_write(struct weights *weights, const struct weights_file *file, struct thread_pool *pool, struct err *err);

/* ---- of any model ---- */

/* One row of a matrix in a model file, as f32. */
void tensor_row(const struct model *model, const struct tensor *tensor, int row, float *out);

#endif
