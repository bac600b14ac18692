/* A matrix of a model file that training reads but does not change, kept in the file's format on the computing device: the
 * mapped file itself on the host, a copy made once on other devices.
 *
 * Products dequantise it to f32 in blocks of rows, so that a vocabulary of any size needs memory for one block only. A matrix
 * that fits into one block is dequantised once. */
#ifndef MOE_TRAIN_STORED_H
#define MOE_TRAIN_STORED_H

#include "common/model/model.h"
#include "common/tensor/device.h"

struct stored_matrix;

struct stored_setup {
    const struct model *model;          /* must outlive the matrix, as must tensor, device and the owner of `there` */
    const struct tensor *tensor;        /* of kind TENSOR_MATRIX */
    struct device *device;
    struct buffer there;                /* an existing copy on the device; empty: stored_open makes one */
    bool blocks;                        /* allocates the block for stored_block */
};

int stored_open(struct stored_matrix **out, const struct stored_setup *setup, struct err *err);
void stored_close(struct stored_matrix **matrix);
/* Returns the matrix on the device, in the file's format. */
struct buffer stored_on_device(const struct stored_matrix *matrix);

/* Returns the rows per block; returns block [up to stored_rows][inputs] f32 that begins at row `first`, a multiple of
 * stored_rows, valid until the next call. ops: of the same device. */
int stored_rows(const struct stored_matrix *matrix);
struct buffer stored_block(struct stored_matrix *matrix, const struct learn_ops *ops, int first);

/* Copies rows to f32: out[i] = row token[i]. token: [rows] i32, any number of rows. */
void stored_embed(const struct stored_matrix *matrix, struct buffer token, int rows, struct buffer out);

#endif
