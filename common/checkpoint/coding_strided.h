/* Codings of tensors whose elements do not lie side by side: a matrix whose rows lie apart, or that is transposed. The first
 * part is what does: the file's rows, with as many elements as the stride. */
#ifndef MOE_CHECKPOINT_CODING_STRIDED_H
#define MOE_CHECKPOINT_CODING_STRIDED_H

#include "common/checkpoint/checkpoint.h"

/* Makes the tensor, which has dims, offset and bytes, one of these strides in elements; others than of a matrix as above are
 * refused. What it allocates is the tensor's. */
int strided_tensor(struct source_tensor *tensor, const int64_t *strides, struct err *err);

/* Gives the tensor the coding of its dtype_name, for its strides. */
void strided_dtype(struct source_tensor *tensor);

#endif
