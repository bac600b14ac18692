/* A matrix of a model file in training: not held as f32, but made so in blocks of rows when a product wants them. So a
 * vocabulary of any size costs no more than a block; a matrix that is no larger is made so once. */
#ifndef MOE_TRAIN_STORED_H
#define MOE_TRAIN_STORED_H

#include "common/base/thread_pool.h"
#include "common/model/model.h"

struct stored_matrix;

/* model and tensor, a MATRIX, stay. */
int stored_open(struct stored_matrix **out, const struct model *model, const struct tensor *tensor, struct err *err);
void stored_close(struct stored_matrix **matrix);

/* Rows `first`, a multiple of stored_rows, and those after it: [up to stored_rows][inputs], until the next call. */
int stored_rows(const struct stored_matrix *matrix);
const float *stored_block(struct stored_matrix *matrix, struct thread_pool *pool, int first);

#endif
