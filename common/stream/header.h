/* A stream's header: the kind of stream, the tool and arguments that made it, and the model and streams it was made from.
 *
 * A header owns all its strings. Start with {0}; free with header_free. Sources are the headers of the streams that this one
 * was made from, at most HEADER_DEPTH deep; deeper sources are only counted. */
#ifndef MOE_STREAM_HEADER_H
#define MOE_STREAM_HEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/base/wire.h"
#include "common/stream/kind.h"

enum { HEADER_DEPTH = 8, HEADER_ITEMS = 4096 };         /* maximum of arguments, of labels and of sources of one header */

/* The model that a stream was made with. Hashes are SHA-256 in lower-case hex, "" when unknown. */
struct stream_model {
    char index_sha256[65];          /* digest of the .moe file's index: identifies the file */
    char source_sha256[65];         /* digest of the checkpoint: identifies the weights, in any format */
    char tokenizer_sha256[65];
    char name[128];
    int layers, moe_layers;         /* moe_layers: those with a router; records count layers among these */
    int experts, top_k;             /* 0 for a dense model */
    int vocab, hidden;
};

struct label { char *key, *value; };    /* "synthetic", "inflated" -> "64 to 2048", "not lossless" -> "budget" */

struct header {
    enum stream_kind kind;          /* STREAM_ANY for a source of an unknown kind */
    char *kind_name;
    int version;
    char *tool, *tool_version;
    char **argv;
    int argc;
    bool has_model;
    struct stream_model model;
    bool has_seed;
    uint64_t seed;
    int part, parts;                /* made of part 2 of 4 of a run's prompts (--shard 2/4); 0, 0: of all */
    char *dtype, *device;           /* dtype of the weights, "bf16"; device in effect, "host", "cuda:0". NULL: does not apply */
    struct label *labels;
    int label_count;
    struct header *sources;
    int source_count, sources_omitted;
};

/* Initialises a header. argv is copied; argc may be 0. */
int header_init(struct header *header, enum stream_kind kind, const char *tool, const char *version, int argc,
                char *const *argv, struct err *err);
int header_set_dtype(struct header *header, const char *dtype, struct err *err);
int header_set_device(struct header *header, const char *device, struct err *err);
/* Sets a label, replacing one with the same key. */
int header_label(struct header *header, const char *key, const char *value, struct err *err);
const char *header_label_of(const struct header *header, const char *key);                       /* NULL: no such label */
/* Returns the header of the command that recorded the stream: of a merged stream that of the first stream merged into it. */
const struct header *header_producer(const struct header *header);
int header_copy(struct header *out, const struct header *from, struct err *err);
void header_free(struct header *header);        /* leaves {0} */

/* Adds a copy of `source` to header's sources. From the first source the header also inherits model, seed, dtype, device and
 * labels, each unless the header has its own; its part of the prompts is not inherited. */
int header_derive(struct header *header, const struct header *source, struct err *err);

/* Checks whether data from a stream whose model is `data` can be used with `model`. Another shape is an error; another
 * tokenizer or vocabulary is an error, or with `force` a note; another file of the same weights, or other weights of that
 * shape, is a note. A note of one line is appended to *note. `what` names the data in messages. */
int header_same_model(const struct stream_model *data, const struct stream_model *model, const char *what, bool force,
                      struct text *note, struct err *err);

/* header_encode appends the header's map to *out; header_decode reads a complete map. An unknown kind, or a version newer
 * than this code's, is an error, except in sources. */
int header_encode(const struct header *header, struct text *out, struct err *err);
int header_decode(struct header *out, const uint8_t *begin, const uint8_t *end, struct err *err);

#endif
