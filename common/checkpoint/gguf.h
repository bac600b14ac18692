/* GGUF, versions 2 and 3, little-endian: metadata and tensors in one file, or a few (name-00001-of-00003.gguf).
 *
 *     "GGUF", u32 version, u64 tensors, u64 entries
 *     entries:  string key, u32 type, value;   a string is u64 bytes and these; an array u32 type, u64 count, values
 *     tensors:  string name, u32 dims, u64 sizes (the fastest first), u32 type, u64 offset
 *     data:     from the next multiple of general.alignment on; tensors one after another, each at such a multiple
 *
 * In:     files of a checkpoint, read by pread.
 * Out:    source tensors with the names that the file has and dims in the order of this program (the fastest last), and, made
 *         from the metadata, the texts of a Hugging Face folder: config.json, tokenizer.json or tokenizer.model,
 *         tokenizer_config.json and the chat template. What follows then need not know where they came from; what the tensors
 *         are called is known in common/arch/gguf.c.
 * Owns:   a struct gguf holds the header's bytes; keys and strings point into it and have no NUL after them.
 * Errors: ERR_INPUT. Trusted is nothing: every count and size is compared with what is left of the file before memory is
 *         allocated, a header has at most GGUF_HEADER_MAX bytes, a key or tensor that is there twice is refused. */
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
    size_t key, key_bytes;          /* where in the header's bytes */
    enum gguf_type type;            /* of the values */
    bool array;
    size_t count, at, bytes;        /* values: 1 of what is no array */
};

struct gguf {
    char *data;                     /* [bytes] the header */
    size_t bytes, room;
    struct gguf_entry *entries;     /* sorted by key */
    size_t entry_count;
    char arch[32];                  /* general.architecture, which begins many keys; empty: none */
};

/* Reads the header of cp->files[file] and adds its tensors; the file must have the data that these need. */
int gguf_read(struct gguf *out, struct checkpoint *cp, int file, struct err *err);
void gguf_free(struct gguf *gguf);

/* Values by key, in which "{}" stands for the architecture. A getter sets *out when the key is there, and otherwise leaves it;
 * `required` makes absence an error. Integers of all widths are integers, and integers are numbers too; an array of equal
 * integers, one for each layer, counts as one. */
const struct gguf_entry *gguf_find(const struct gguf *gguf, const char *key);
int gguf_integer(const struct gguf *gguf, const char *key, bool required, int64_t *out, struct err *err);
int gguf_real(const struct gguf *gguf, const char *key, bool required, double *out, struct err *err);
int gguf_bool(const struct gguf *gguf, const char *key, bool *out, struct err *err);
int gguf_text(const struct gguf *gguf, const char *key, bool required, struct gguf_string *out, struct err *err);
bool gguf_same(struct gguf_string string, const char *text);

/* A token by its id; -1: the key is not there, or what is there is not below `vocab`, as files write -1, its bits, or the
 * vocabulary's size for "none". */
int gguf_token_id(const struct gguf *gguf, const char *key, int64_t vocab, int64_t *out, struct err *err);

/* An array of the given type; NULL, with err set, when it is of another. Absent: NULL without an error. */
const struct gguf_entry *gguf_array(const struct gguf *gguf, const char *key, enum gguf_type type, struct err *err);

/* Strings of an array, one after the other: *at begins as entry->at. */
struct gguf_string gguf_next_string(const struct gguf *gguf, size_t *at);
int64_t gguf_integer_at(const struct gguf *gguf, const struct gguf_entry *entry, size_t index);
double gguf_real_at(const struct gguf *gguf, const struct gguf_entry *entry, size_t index);

/* The texts, where the checkpoint has none: of the model, and of its tokenizer (a file may have a vocabulary alone). */
int gguf_make_config(const struct gguf *gguf, struct checkpoint *cp, struct err *err);
int gguf_make_tokenizer(const struct gguf *gguf, struct checkpoint *cp, struct err *err);

/* The tokens at which generation ends: those that keys name, and special ones that are known by their text, as llama.cpp knows
 * them: files name one where chats need two. Ids below `vocab`, at most EOS_MAX, those of keys first. */
int gguf_ends(const struct gguf *gguf, int64_t vocab, int64_t ids[EOS_MAX], int *count, struct err *err);

/* Opens a file and those that it was cut into together with. */
int checkpoint_open_gguf(struct checkpoint *cp, const char *path, struct err *err);

/* The one of a folder, or the first of those that it was cut into; empty: there is none. */
int gguf_find_file(const char *folder, char found[SOURCE_NAME], struct err *err);

/* All files of cp from `first` on are GGUF: reads them, and makes the texts. */
int gguf_read_files(struct checkpoint *cp, size_t first, struct err *err);

#endif
