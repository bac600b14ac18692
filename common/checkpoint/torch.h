/* Reads what torch.save writes of a dictionary of tensors (pytorch_model.bin), in both forms:
 *
 *     zip    NAME/data.pkl, a pickle (pickle.h) of the dictionary; NAME/data/KEY, the bytes of each storage, not compressed
 *     old    five pickles (magic number, 1001, facts on the writer, the dictionary, the keys of storages); then for each key
 *            a count of 8 bytes and that many elements
 *
 * A tensor is a view of a storage, which several tensors may share. Views with padded rows and transposed matrices are
 * supported; other strides are an error. All input is validated: offsets and sizes against the file, views against their
 * storages. */
#ifndef MOE_CHECKPOINT_TORCH_H
#define MOE_CHECKPOINT_TORCH_H

#include "common/checkpoint/checkpoint.h"

#define TORCH_NAME "pytorch_model.bin"

/* Usual names of a single weight file: of a model, and of draft heads. */
enum { TORCH_NAMES = 3 };
extern const char *const torch_names[TORCH_NAMES];

/* Adds the tensors of cp->files[file] to the checkpoint. */
int torch_read_header(struct checkpoint *checkpoint, int file, struct err *err);

/* Returns whether a file of a folder is a weight file by its name: one of torch_names, or a shard of pytorch_model.bin. */
bool torch_is_weights(const char *name);

/* Returns whether the first bytes of a file are of either form. */
enum { TORCH_MAGIC_BYTES = 256 };
bool torch_is_file(const uint8_t *data, size_t bytes);

/* ---- torch_zip.c ---- */

/* The uncompressed members of a zip file, by name. */
struct torch_member {
    const char *name;               /* not NUL-terminated */
    size_t length;
    uint64_t offset, bytes;         /* range of its data in the file */
};
struct torch_zip {
    uint8_t *directory;
    struct torch_member *members;   /* sorted by name */
    size_t count;
};

/* Reads the directory of the zip file cp->files[file]; torch_zip_free frees it. */
int torch_zip_read(struct torch_zip *out, const struct checkpoint *checkpoint, int file, struct err *err);
void torch_zip_free(struct torch_zip *zip);
const struct torch_member *torch_zip_find(const struct torch_zip *zip, const char *name, size_t length);   /* NULL: not found */

#endif
