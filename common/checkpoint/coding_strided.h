/* Codings of tensors that are not contiguous: matrices with padded rows, and transposed matrices. The first part of such a
 * tensor is its contiguous source: the file's rows, each with as many elements as the stride. */
#ifndef MOE_CHECKPOINT_CODING_STRIDED_H
#define MOE_CHECKPOINT_CODING_STRIDED_H

#include "common/checkpoint/checkpoint.h"

/* Turns `tensor` (dims, offset and bytes are set) into one with these strides, in elements. Strides other than those of a
 * matrix as above are an error. The tensor owns what is allocated. */
int strided_tensor(struct source_tensor *tensor, const int64_t *strides, struct err *err);

/* Sets the tensor's coding from its dtype_name: strided after strided_tensor, plain for a contiguous tensor, unchanged for an
 * unknown dtype. */
void strided_dtype(struct source_tensor *tensor);

#endif
