/* A matrix of a model file in training: in the file's format where the device computes, which is the mapped file itself on the
 * host, a copy made once on other devices. Products dequantise it to f32 in blocks of rows: a
 * vocabulary of any size takes the memory of one block. A matrix that fits into one block is dequantised once. */
#ifndef MOE_TRAIN_STORED_H
#define MOE_TRAIN_STORED_H

#include "common/model/model.h"
#include "common/tensor/device.h"

struct stored_matrix;

struct stored_setup {
    const struct model *model;          /* these three stay, as does who has `there` */
    const struct tensor *tensor;        /* a MATRIX */
    struct device *device;
    struct buffer there;                /* the copy that is on the device already; none: make one */
    bool blocks;                        /* stored_block will be called */
};

int stored_open(struct stored_matrix **out, const struct stored_setup *setup, struct err *err);
void stored_close(struct stored_matrix **matrix);
struct buffer stored_there(const struct stored_matrix *matrix);     /* in the file's format, on the device */

/* Rows `first`, a multiple of stored_rows, and those after it: [up to stored_rows][inputs], until the next call. ops: the
 * device's. */
int stored_rows(const struct stored_matrix *matrix);
struct buffer stored_block(struct stored_matrix *matrix, const struct learn_ops *ops, int first);

/* out[i] = row token[i], for any number of them; token [rows] i32. */
void stored_embed(const struct stored_matrix *matrix, struct buffer token, int rows, struct buffer out);

#endif
