/* GGUF, versions 2 and 3, little-endian: metadata and tensors in one file or in several (name-00001-of-00003.gguf).
 *
 *     "GGUF", u32 version, u64 tensors, u64 entries
 *     entries:  string key, u32 type, value;   a string is u64 length and its bytes; an array u32 type, u64 count, values
 *     tensors:  string name, u32 dims, u64 sizes (the fastest first), u32 type, u64 offset
 *     data:     begins at the next multiple of general.alignment; each tensor begins at such a multiple
 *
 * In:     files of a checkpoint, read by pread.
 * Out:    source tensors with the file's names and dims in the order of this program (the fastest last), and, made from the
 *         metadata, the texts of a Hugging Face folder: config.json, tokenizer.json or tokenizer.model,
 *         tokenizer_config.json and the chat template. Later code need not know that the source was GGUF; common/arch/gguf.c
 *         knows the tensor names.
 * Owns:   a struct gguf owns the header's bytes; keys and strings point into them and are not NUL-terminated.
 * Errors: ERR_INPUT. All input is validated: every count and size is compared with the bytes left in the file before memory
 * is allocated, a header has at most GGUF_HEADER_MAX bytes, a duplicate key or tensor is an error. */
#ifndef MOE_CHECKPOINT_GGUF_H
#define MOE_CHECKPOINT_GGUF_H

#include "common/checkpoint/checkpoint.h"
#include "common/model/hparams.h"

enum { GGUF_MAGIC_BYTES = 4, GGUF_HEADER_MAX = 128 << 20 };
extern const char gguf_magic[GGUF_MAGIC_BYTES];

enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64,
    GGUF_F64, GGUF_TYPES
};

struct gguf_string {
    const char *data;
    size_t bytes;
};

struct gguf_entry {
    size_t key, key_bytes;          /* range in the header's bytes */
    enum gguf_type type;            /* type of the value, or of an array's elements */
    bool array;
    size_t count, at, bytes;        /* values: their number (1 if not an array) and range */
};

struct gguf {
    char *data;                     /* [bytes] the header */
    size_t bytes, room;
    struct gguf_entry *entries;     /* sorted by key */
    size_t entry_count;
    char arch[32];                  /* general.architecture, the prefix of many keys; empty: none */
};

/* Reads the header of cp->files[file] and adds its tensors; the file must contain all their data. */
int gguf_read(struct gguf *out, struct checkpoint *cp, int file, struct err *err);
void gguf_free(struct gguf *gguf);

/* Get values by key, in which "{}" is replaced by the architecture. A getter sets *out if the key exists, and otherwise
 * leaves it unchanged; with `required` a missing key is an error. Integers of all widths are accepted as integers, and
 * integers as numbers. An array of equal integers, one per layer, is accepted as one integer. */
const struct gguf_entry *gguf_find(const struct gguf *gguf, const char *key);
int gguf_integer(const struct gguf *gguf, const char *key, bool required, int64_t *out, struct err *err);
int gguf_real(const struct gguf *gguf, const char *key, bool required, double *out, struct err *err);
int gguf_bool(const struct gguf *gguf, const char *key, bool *out, struct err *err);
int gguf_text(const struct gguf *gguf, const char *key, bool required, struct gguf_string *out, struct err *err);
bool gguf_same(struct gguf_string string, const char *text);

/* Reads a token id. Sets -1 if the key is missing or the value is not below `vocab`: for "none" files contain -1, its bit
 * pattern, or the vocabulary's size. */
int gguf_token_id(const struct gguf *gguf, const char *key, int64_t vocab, int64_t *out, struct err *err);

/* Returns an array of the given type. Returns NULL with err set if its type differs, and NULL without an error if it is
 * missing. */
const struct gguf_entry *gguf_array(const struct gguf *gguf, const char *key, enum gguf_type type, struct err *err);

/* Iterates over the strings of an array; *at must be initialised with entry->at. */
struct gguf_string gguf_next_string(const struct gguf *gguf, size_t *at);
bool gguf_is_integer(enum gguf_type type);
int64_t gguf_integer_at(const struct gguf *gguf, const struct gguf_entry *entry, size_t index);
double gguf_real_at(const struct gguf *gguf, const struct gguf_entry *entry, size_t index);

/* Make the texts that the checkpoint does not have: of the model, and of its tokenizer (a file may contain only a
 * vocabulary). */
int gguf_make_config(const struct gguf *gguf, struct checkpoint *cp, struct err *err);
int gguf_make_tokenizer(const struct gguf *gguf, struct checkpoint *cp, struct err *err);

/* Lists the tokens that end generation: those named by keys, and special tokens recognised by their text, as llama.cpp does,
 * because files name only one where chats need two. Ids are below `vocab`, at most EOS_MAX, those of keys first. */
int gguf_ends(const struct gguf *gguf, int64_t vocab, int64_t ids[EOS_MAX], int *count, struct err *err);

/* Opens a file together with the other files of its set. */
int checkpoint_open_gguf(struct checkpoint *cp, const char *path, struct err *err);

/* Finds the .gguf file of a folder, or the first one of a set; `found` stays empty if there is none. */
int gguf_find_file(const char *folder, char found[SOURCE_NAME], struct err *err);

/* Reads all files of cp from index `first` on as GGUF, and makes the texts. */
int gguf_read_files(struct checkpoint *cp, size_t first, struct err *err);

#endif
