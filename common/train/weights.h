/* The weights of a draft head in training: f32, each with a gradient and two moments, stored one after the other in the order
 * of the head's canonical tensors (common/model/model.h). An expert of a gated network is two matrices: gate and up together [2
 * inner][hidden], and down. The head's own embedding is not trained, as in the original programs.
 *
 * Weights are initialised, read and written in host memory. Training uses them on a device (weights_place). The host's device
 * uses that same memory; for other devices weights_fetch and weights_send copy between the two. */
#ifndef MOE_TRAIN_WEIGHTS_H
#define MOE_TRAIN_WEIGHTS_H

#include "common/base/progress.h"
#include "common/base/thread_pool.h"
#include "common/model/layout.h"
#include "common/train/tape.h"

enum weight_part { WEIGHT_WHOLE, WEIGHT_GATE_UP, WEIGHT_DOWN };

struct weight {
    struct variable value;          /* the buffers are valid after weights_place */
    float *data;                    /* in host memory */
    const struct tensor *tensor;
    enum weight_part part;
    int block;                      /* index of the expert in the tensor */
};

/* Arrays over all trained weights: the weights themselves, first moments, second moments, gradients. */
enum weights_part { WEIGHTS_DATA, WEIGHTS_FIRST, WEIGHTS_SECOND, WEIGHTS_GRADIENT, WEIGHTS_PARTS };

struct weights {
    struct head_params head;
    struct hparams shape;
    struct layout layout;
    struct weight *list;
    int count;
    float *data, *first, *second;   /* [floats] of all trained weights, in host memory */
    float *gradient;                /* [floats]; NULL: not fetched so far */
    float *frozen;
    size_t floats, frozen_floats;
    struct device *device;          /* NULL: weights_place was not called */
    struct buffer at[WEIGHTS_PARTS];        /* the arrays on the device, by enum weights_part */
    struct buffer frozen_at;
    struct buffer squares, outside; /* per block of the gradient (optimiser.h): sum of squares, and elements outside the
                                     * bound */
};

/* Allocates the weights of a head, all zeros. */
int weights_make(struct weights **out, const struct head_params *head, const struct hparams *shape, struct err *err);
void weights_free(struct weights **weights);
/* Returns a weight by its tensor's role, part, layer, and stage or expert; NULL if the head has none. */

struct weight *weights_find(struct weights *weights, enum tensor_role role, enum weight_part part, int layer, int stage);

/* Reads the weights from a file of the same head. */
void weights_read(struct weights *weights, const struct model *file);

/* Initialises the weights as the original programs do: matrices and biases uniform in +-1/sqrt(inputs), norms 1; in medusa and
 * hydra the blocks' matrices 0 and the output heads copies of the target's. The result depends on the seed only. */
int weights_start(struct weights *weights, const struct model *target, uint64_t seed, struct err *err);

/* Copies the weights to a device, with gradients of zeros. May be called once; the device must outlive the weights. */
int weights_place(struct weights *weights, struct device *device, struct err *err);
/* Copies floats begin .. end - 1 of an array from the device to the host, and back. No-op if the device uses host memory. */
int weights_fetch(struct weights *weights, enum weights_part part, size_t begin, size_t end, struct err *err);
int weights_send(struct weights *weights, enum weights_part part, size_t begin, size_t end, struct err *err);
/* Copies all arrays that a checkpoint contains: weights and moments. */
int weights_fetch_all(struct weights *weights, struct err *err);
int weights_send_all(struct weights *weights, struct err *err);
void weights_clear_gradients(struct weights *weights);
/* A file to write. */

struct weights_file {
    const char *path, *name, *producer;
    enum weight_format format;      /* format of the matrices */
};
int weights_write(struct weights *weights, const struct weights_file *file, struct thread_pool *pool, struct err *err);

/* ---- of any model ---- */

/* Reads one row of a matrix in a model file, as f32. */
void tensor_row(const struct model *model, const struct tensor *tensor, int row, float *out);

#endif
