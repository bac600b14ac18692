/* A file of named tensors as others read it: safetensors, or what torch.save writes of a dictionary of them.
 *
 *     torch      a zip file (zip_write.h) with NAME/data.pkl, a pickle of protocol 2 of an OrderedDict from names to tensors
 *                without gradients, as torch.load(weights_only=True) takes it; NAME/byteorder; NAME/data/I, the bytes of
 *                tensor I; NAME/version. NAME is the file's, without its end, as PyTorch names it. */
#ifndef MOE_CHECKPOINT_TENSOR_FILE_H
#define MOE_CHECKPOINT_TENSOR_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum tensor_form { TENSORS_SAFETENSORS, TENSORS_TORCH };

struct named_tensor {
    const char *name, *dtype;       /* dtype: F32, F16, BF16, I64 or BOOL */
    const int64_t *dims;
    int dim_count;
    uint64_t bytes;
};

struct tensor_file;

/* list [count] stays the caller's, and as it is until the end. The file appears whole or not at all, by the commit. */
int tensor_file_open(struct tensor_file **out, const char *path, enum tensor_form form, const struct named_tensor *list,
                     size_t count, struct err *err);
/* The next bytes of the tensors, which follow each other; a piece does not go beyond one tensor. */
int tensor_file_put(struct tensor_file *file, const void *data, size_t bytes, struct err *err);
int tensor_file_commit(struct tensor_file **file, struct err *err);      /* frees, also on failure */
void tensor_file_discard(struct tensor_file **file);

#endif
