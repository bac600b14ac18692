/* Writes a file of named tensors for other programs: safetensors, or the form of torch.save of a dictionary of tensors.
 *
 *     torch      a zip file (zip_write.h) with NAME/data.pkl, a pickle of protocol 2 of an OrderedDict from names to tensors
 *                without gradients, which torch.load(weights_only=True) accepts; NAME/byteorder; NAME/data/I, the bytes of
 *                tensor I; NAME/version. NAME is the file's name without its extension, as in PyTorch. */
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

/* Begins a file. The caller owns list [count], which must not change until the commit. On failure no file appears. */
int tensor_file_open(struct tensor_file **out, const char *path, enum tensor_form form, const struct named_tensor *list,
                     size_t count, struct err *err);
/* Appends the next bytes of the tensors, in order; one call must not cross the end of a tensor. */
int tensor_file_put(struct tensor_file *file, const void *data, size_t bytes, struct err *err);
int tensor_file_commit(struct tensor_file **file, struct err *err);      /* renames the file into place; frees, also on
                                                                          * failure */
void tensor_file_discard(struct tensor_file **file);

#endif
