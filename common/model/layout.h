/* The canonical tensors of a shape, and their offsets in a model file.
 *
 * layout_make lists them in canonical order (embed, head, final_norm, then layer by layer in the order of model.h,
 * predictors last) with name, kind, role, layer and dimensions, all in f32. The writer of a file then chooses formats and
 * calls layout_arrange; the reader compares the tensors of the file with those that its hparams imply.
 *
 * A tensor is written in BLOCKS of `stride` bytes: one for a vector or matrix, one per expert for EXPERTS (there the stride
 * is rounded up to whole pages, and the rest of the last page is zeros). */
#ifndef MOE_MODEL_LAYOUT_H
#define MOE_MODEL_LAYOUT_H

#include "common/base/text.h"
#include "common/model/model.h"

enum { MODEL_PAGE = 4096 };

struct layout {
    struct tensor *tensors;
    int count;
    int layers;             /* tensors of layers from this one on belong to predictors */
    bool tied;              /* the embedding is multiplied, too, as the output head */
    char *names;            /* storage for tensors[].name */
};

/* Lists the tensors of a shape, which must have passed hparams_check. */
int layout_make(struct layout *out, const struct hparams *shape, struct err *err);
/* Lists the tensors of a draft head, which must have passed head_check. */
int layout_make_head(struct layout *out, const struct head_params *head, const struct hparams *shape, struct err *err);
void layout_free(struct layout *layout);

/* Matrices that are never made into fp8, q8 or q4: embeddings (unless they are output heads, too), routers, gates of shared
 * experts, and gates of layers with a state. */
bool role_unquantised(enum tensor_role role);

/* Returns the format in which to store a tensor of the layout when `wanted` was requested. Vectors are f32. If `wanted` has
 * scales, matrices of role_unquantised stay in `other`, except a tied embedding without scales: each token multiplies all of
 * it, so it is stored in `wanted`, but not in fewer than 8 bits, because its errors enter twice. */
enum weight_format tensor_format(const struct layout *layout, const struct tensor *tensor, enum weight_format wanted,
                                 enum weight_format other);

/* Writes and reads a format as in a model file: "q4_k", or "q4_k+q6_k" if the last part has its own format.
 * tensor_format_read returns false if the text is not a format of such a tensor. */
enum { FORMAT_TEXT = 24 };
void tensor_format_write(const struct tensor *tensor, char text[FORMAT_TEXT]);
bool tensor_format_read(struct tensor *tensor, const char *text);

/* Sets stride and bytes of a tensor from its format and dimensions. */
int tensor_measure(struct tensor *tensor, struct err *err);

/* Measures all tensors and places them one after the other from offset `begin`, each at a page boundary; *end: the end of
 * the last tensor. */
int layout_arrange(struct layout *layout, uint64_t begin, uint64_t *end, struct err *err);

/* Writes a table for people: tensors that differ only in the layer share a line. head: NULL for a model. */
int layout_print(struct text *out, const struct layout *layout, const struct hparams *shape, const struct head_params *head,
                 struct err *err);

#endif
