/* An open checkpoint of another program: its JSON texts, and its tensors, found by name and readable row by row.
 *
 * In:   a Hugging Face folder, one .safetensors or pytorch_model.bin file (its texts in the same folder), an index of such
 *       files, a .gguf file or a folder of one, or a tar or zip of such a folder, as a file or on standard input ("-"),
 *       where a GGUF file may also be alone or compressed. Archives are read once, from front to back, and never extracted
 *       by name: tensor data is copied to an unnamed file, texts to memory.
 * Out:  the texts, and source tensors sorted by name. All input is validated: names, shapes, dtypes, offsets and sizes agree
 *       with each other and with the sizes of the files.
 * Tensor data is read by pread, from any thread: a file that shrinks meanwhile is an error, not a SIGBUS. */
#ifndef MOE_CHECKPOINT_CHECKPOINT_H
#define MOE_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/text.h"
#include "common/checkpoint/coding.h"

enum { SOURCE_DIMS = 8, SOURCE_NAME = 256 };

struct source_tensor {
    char *name;
    const struct source_coding *coding;     /* NULL: its values cannot be decoded */
    char dtype_name[16];            /* as in the file: "BF16" */
    int dim_count;
    int64_t dims[SOURCE_DIMS];
    int file;                       /* index in checkpoint.files */
    uint64_t offset, bytes;         /* range in that file's data */
    struct source_tensor *parts;    /* [part_count] of a joined tensor (coding.h): the tensors that its coding reads, owned;
                                     * else NULL */
    int part_count;
    int64_t block[2];               /* for joined tensors with scales: rows and columns that share one scale */
    int bits, zero_add;             /* for joined tensors of packed integers (coding_packed.h); else 0 */
    bool used;                      /* set by a caller that checks that no tensor is left over */
};

struct source_file {
    char name[SOURCE_NAME];         /* name without its folder */
    int fd;                         /* files of one archive share a descriptor; -1: a text, in memory */
    struct file_identity identity;  /* unknown for files of an archive */
    uint64_t base, bytes;           /* range in fd */
    bool digested;
    struct sha256 digest;
};

/* The texts of a checkpoint, by purpose. */
enum source_text {
    TEXT_CONFIG, TEXT_GENERATION, TEXT_TOKENIZER, TEXT_TOKENIZER_MODEL, TEXT_TOKENIZER_CONFIG, TEXT_CHAT_TEMPLATE, TEXT_INDEX,
    TEXT_TORCH_INDEX, TEXT_TIKTOKEN, TEXT_TIKTOKEN_HUNYUAN,
    TEXT_COUNT
};
extern const struct source_text_kind { const char *name; size_t limit; bool may_be_empty; } source_text_kinds[TEXT_COUNT];

struct checkpoint {
    char *path;                     /* as the user typed it, or "standard input" */
    bool headers_only;              /* tensor data cannot be read */
    bool torch;                     /* weights are pytorch_model.bin; their index is TEXT_TORCH_INDEX */
    char name[64];                  /* name of the folder or file, the model's default name; empty: unknown */
    const char *config_name;        /* source from which config.json was made, for messages; NULL: config.json exists */
    struct text texts[TEXT_COUNT];
    struct source_file *files;
    size_t file_count, file_room;
    struct source_tensor *tensors;
    size_t tensor_count, tensor_room;
};

/* Opens a checkpoint. beside: a path; tensor data of an archive is copied to an unnamed file in the same folder. NULL:
 * tensor data is skipped, and only names and shapes are available. */
int checkpoint_open(struct checkpoint **out, const char *path, const char *beside, struct err *err);
void checkpoint_close(struct checkpoint **checkpoint);

struct source_tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name);      /* NULL: not found */
int checkpoint_read(const struct checkpoint *checkpoint, const struct source_tensor *tensor, uint64_t offset, void *data,
                    size_t bytes, struct err *err);

/* ---- used by the readers of folders and archives ---- */

/* Compares two tensors for qsort: by offset, then by size. */
int source_by_offset(const void *a, const void *b);

/* Open `path` and fill `checkpoint`, of which only `path` is set. */
int checkpoint_open_folder(struct checkpoint *checkpoint, const char *folder, struct err *err);
int checkpoint_open_weights(struct checkpoint *checkpoint, const char *file, struct err *err);        /* safetensors, torch.h */
int checkpoint_open_archive(struct checkpoint *checkpoint, int fd, const char *beside, struct err *err);

/* Reads the header of cp->files[file] (safetensors if the name ends so, else torch.save) and adds its tensors. The file's
 * size must be exactly what these tensors need. */
int checkpoint_read_header(struct checkpoint *checkpoint, int file, struct err *err);

/* Returns the kind of the checkpoint's index file: TEXT_INDEX for safetensors, TEXT_TORCH_INDEX for torch files. */
enum source_text checkpoint_index(const struct checkpoint *checkpoint);

/* Lists the file names in the index, each once. A name with a slash is an error, because it could point outside the folder.
 * The caller frees the names. */
int checkpoint_shards(const struct checkpoint *checkpoint, char ***names, size_t *count, struct err *err);

/* Returns the enum source_text of a file name, -1 if it is not a text of a checkpoint. */
int source_text_of(const char *name);

/* Frees a text; the checkpoint is then as if it had none. */
void checkpoint_drop_text(struct checkpoint *checkpoint, enum source_text which);

/* Appends a file with this name and no descriptor; returns it, or NULL with err set. Valid until the next call. */
struct source_file *checkpoint_add_file(struct checkpoint *checkpoint, const char *name, struct err *err);
/* Adds a file and opens it for reading at `path`, which must be a regular file. */
int checkpoint_add_opened(struct checkpoint *checkpoint, const char *path, const char *name, struct err *err);
int checkpoint_add_text(struct checkpoint *checkpoint, enum source_text which, const char *text, size_t bytes, struct err *err);

/* Sorts the tensors by name; a duplicate name is an error. */
int checkpoint_sort(struct checkpoint *checkpoint, struct err *err);

/* Sorts the tensors, then checks that each one is in the file that the index names for it. */
int checkpoint_finish(struct checkpoint *checkpoint, struct err *err);

#endif
