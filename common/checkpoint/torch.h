/* What torch.save writes of a dictionary of tensors (pytorch_model.bin), in both forms:
 *
 *     zip    NAME/data.pkl, a pickle (pickle.h) of the dictionary; NAME/data/KEY, the bytes of each storage, not compressed
 *     old    five pickles (a magic number, 1001, facts of the writer, the dictionary, the keys of storages); then for each key
 *            8 bytes of count and its elements
 *
 * A tensor is a view of a storage, which others may share. Rows may lie apart, or a matrix be transposed; other strides are
 * refused. Nothing is trusted: offsets and sizes are checked against the file, and views against their storages. */
#ifndef MOE_CHECKPOINT_TORCH_H
#define MOE_CHECKPOINT_TORCH_H

#include "common/checkpoint/checkpoint.h"

#define TORCH_NAME "pytorch_model.bin"

/* What files of weights are called that are one alone: a model's, and those of draft heads. */
enum { TORCH_NAMES = 3 };
extern const char *const torch_names[TORCH_NAMES];

/* Adds the tensors of cp->files[file]. */
int torch_read_header(struct checkpoint *checkpoint, int file, struct err *err);

/* A file of weights among others of a folder, by its name: one of these, or a part of pytorch_model.bin. */
bool torch_is_weights(const char *name);

/* Whether these first bytes of a file are of either form. */
enum { TORCH_MAGIC_BYTES = 256 };
bool torch_is_file(const uint8_t *data, size_t bytes);

/* ---- torch_zip.c ---- */

/* The members of a zip file that are not compressed, by name. */
struct torch_member {
    const char *name;               /* not ended by a NUL */
    size_t length;
    uint64_t offset, bytes;         /* of its data, in the file */
};
struct torch_zip {
    uint8_t *directory;
    struct torch_member *members;   /* sorted by name */
    size_t count;
};

int torch_zip_read(struct torch_zip *out, const struct checkpoint *checkpoint, int file, struct err *err);
void torch_zip_free(struct torch_zip *zip);
const struct torch_member *torch_zip_find(const struct torch_zip *zip, const char *name, size_t length);   /* NULL: none */

#endif
