/* A checkpoint as others wrote it: a few JSON texts, and tensors by name that can be read row by row.
 *
 * In:   a Hugging Face folder, one .safetensors or pytorch_model.bin file (its texts beside it), an index of such files, a
 *       .gguf file or a folder of one, or a tar or zip of such a folder, as a file or on standard input ("-"), where a GGUF
 *       file may also come alone or compressed. Archives are read once, from front to back, and never extracted by name:
 *       tensor data goes to an unnamed file, texts to memory.
 * Out:  the texts, and source tensors sorted by name. Nothing was trusted: names, shapes, dtypes, offsets and sizes agree with
 *       each other and with the files.
 * Reading is by pread, from any thread: a file that shrinks is an error, not a signal. */
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
    const struct source_coding *coding;     /* NULL: its values cannot be read */
    char dtype_name[16];            /* as written: "BF16" */
    int dim_count;
    int64_t dims[SOURCE_DIMS];
    int file;                       /* in checkpoint.files */
    uint64_t offset, bytes;         /* in that file's data */
    struct source_tensor *parts;    /* [part_count] of a joint: what its coding reads, owned; else NULL */
    int part_count;
    int64_t block[2];               /* of a joint with scales: rows and columns that share one */
    int bits, zero_add;             /* of a joint of packed integers (coding_packed.h); else 0 */
    bool used;                      /* for whoever checks that nothing is left over */
};

struct source_file {
    char name[SOURCE_NAME];         /* without folder */
    int fd;                         /* several files of an archive share one; -1: a text, held in memory */
    struct file_identity identity;  /* not known: in an archive */
    uint64_t base, bytes;           /* where it lies in fd */
    bool digested;
    struct sha256 digest;
};

/* Texts by what they are for. */
enum source_text {
    TEXT_CONFIG, TEXT_GENERATION, TEXT_TOKENIZER, TEXT_TOKENIZER_MODEL, TEXT_TOKENIZER_CONFIG, TEXT_CHAT_TEMPLATE, TEXT_INDEX,
    TEXT_TORCH_INDEX,
    TEXT_COUNT
};
extern const struct source_text_kind { const char *name; size_t limit; bool may_be_empty; } source_text_kinds[TEXT_COUNT];

struct checkpoint {
    char *path;                     /* as the user wrote it; "standard input" */
    bool headers_only;              /* data cannot be read */
    bool torch;                     /* weights are pytorch_model.bin, so that the index is TEXT_TORCH_INDEX */
    char name[64];                  /* the folder's or file's own, for the model's name; empty: not known */
    const char *config_name;        /* what config.json was made from, for messages; NULL: it is there */
    struct text texts[TEXT_COUNT];
    struct source_file *files;
    size_t file_count, file_room;
    struct source_tensor *tensors;
    size_t tensor_count, tensor_room;
};

/* beside: a file in whose folder the unnamed file for tensors from an archive is made; NULL: data is passed over, and only
 * names and shapes can be asked for. */
int checkpoint_open(struct checkpoint **out, const char *path, const char *beside, struct err *err);
void checkpoint_close(struct checkpoint **checkpoint);

struct source_tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name);      /* NULL: none */
int checkpoint_read(const struct checkpoint *checkpoint, const struct source_tensor *tensor, uint64_t offset, void *data,
                    size_t bytes, struct err *err);

/* ---- for the readers of folders and archives ---- */

/* Opens what `path` names; each fills a checkpoint that holds nothing but its path. */
int checkpoint_open_folder(struct checkpoint *checkpoint, const char *folder, struct err *err);
int checkpoint_open_weights(struct checkpoint *checkpoint, const char *file, struct err *err);        /* safetensors, torch.h */
int checkpoint_open_archive(struct checkpoint *checkpoint, int fd, const char *beside, struct err *err);

/* Reads the header of cp->files[file], safetensors by its name or else of torch.save, and adds its tensors; the file must have
 * exactly the data that these need. */
int checkpoint_read_header(struct checkpoint *checkpoint, int file, struct err *err);

/* Which text is the index of files. */
enum source_text checkpoint_index(const struct checkpoint *checkpoint);

/* The names of the files that the index text has, each once: none has a slash, which could lead anywhere. */
int checkpoint_shards(const struct checkpoint *checkpoint, char ***names, size_t *count, struct err *err);

/* Which text a file of this name is; -1: none. */
int source_text_of(const char *name);

/* Forgets a text, as if there had been none. */
void checkpoint_drop_text(struct checkpoint *checkpoint, enum source_text which);

struct source_file *checkpoint_add_file(struct checkpoint *checkpoint, const char *name, struct err *err);
/* The same, opened for reading at `path`, which must be a regular file. */
int checkpoint_add_opened(struct checkpoint *checkpoint, const char *path, const char *name, struct err *err);
int checkpoint_add_text(struct checkpoint *checkpoint, enum source_text which, const char *text, size_t bytes, struct err *err);

/* By name; one that is there twice is refused. */
int checkpoint_sort(struct checkpoint *checkpoint, struct err *err);

/* Sorts; then checks that each tensor is in the file that the index names. */
int checkpoint_settle(struct checkpoint *checkpoint, struct err *err);

#endif
