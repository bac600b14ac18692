/* The index of a model file: one msgpack map that describes the contents of the file. moe-model(5) lists its keys.
 *
 * All values are checked when read: against the number of bytes, against the hparams (each tensor that the hparams imply
 * occurs once, in canonical order, with exactly the implied dimensions), and against the size of the data in the file. */
#ifndef MOE_MODEL_MODEL_INDEX_H
#define MOE_MODEL_MODEL_INDEX_H

#include "common/base/text.h"
#include "common/model/layout.h"

enum { MODEL_VERSION = 2 };

/* The first page of a file. */
#define MODEL_MAGIC "\x89MOEW\r\n\x1a"
struct model_head {
    uint64_t index_offset, index_bytes;     /* the index ends the file */
    struct sha256 index;
};
void model_head_write(uint8_t page[MODEL_PAGE], const struct model_head *head);
int model_head_read(struct model_head *head, const uint8_t *data, size_t file_bytes, struct err *err);

/* A file that the model was made from. */
struct model_source {
    char name[256];                 /* without folder */
    uint64_t bytes;
    struct sha256 digest;
};

/* The index without the tensor table. Initialise with {0}; free with model_facts_free. */
struct model_facts {
    struct head_params head;        /* description of a draft head; kind HEAD_NONE: the file is a model */
    struct hparams shape;
    char name[64], producer[64];
    bool synthetic;
    uint64_t seed;                  /* seed of synthetic weights */
    int inflated_from;
    struct sha256 source, tokenizer;
    struct text tokenizer_json, tokenizer_config, chat_template;    /* empty: none */
    struct model_source *sources;
    size_t source_count, source_room;
};
void model_facts_free(struct model_facts *facts);
void model_facts_name(struct model_facts *facts, const char *name);     /* anything but printable ASCII becomes '_' */
int model_facts_copy(struct model_facts *out, const struct model_facts *facts, struct err *err);   /* out: {0} */

int model_index_write(struct text *out, const struct model_facts *facts, const struct layout *layout, struct err *err);

/* facts and layout: {0}; filled on success only. The data is between MODEL_PAGE and data_end. */
int model_index_read(struct model_facts *facts, struct layout *layout, const uint8_t *data, size_t bytes, uint64_t data_end,
                     struct err *err);

#endif
