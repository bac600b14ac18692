/* The KV cache of one text in the layers of a model or a draft head, and the slots that rows attend to.
 *
 * The cache contains `length` committed tokens, followed by `pending` nodes, a forest: a node's parent is an earlier node,
 * or -1, the last committed token. Node i has slot length + i and position length + depth. */
#ifndef MOE_ENGINE_KV_H
#define MOE_ENGINE_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "common/model/hparams.h"
#include "common/tensor/device.h"

struct kv_shape {
    int layers, kv_heads, head_dim, value_dim;
    const struct hparams *model;                     /* each of its layers determines the last three members for itself, or
                                                      * has a state in place of keys and values; NULL: all layers are equal */
    enum cache_format format;
};

struct kv {
    struct device *device;
    struct kv_shape shape;
    struct buffer *k, *v;                            /* [layers], each in the layout of kernels/attention.h */
    int capacity, length, pending;
    int32_t *parent, *depth, *run;                   /* [capacity] by pending node; run: see kv_append in kv.c */
};

/* Keys and values of one layer, in the layout of kernels/attention.h. */
struct layer_cache {
    struct buffer k, v;
    int capacity;
    enum cache_format format;
};

/* The rows of a forward: their positions, and the slots they attend to (kernels/attention.h). */
struct layer_rows {
    int rows;
    struct buffer position, slot, prefix, path_start, path;      /* i32 */
    int longest;                         /* maximum positions that a row attends to; 0: only the device knows */
    bool slab;                           /* the rows are a slab (kernels/linear.h) */
};

/* Buffers for a struct layer_rows of up to max_rows rows, of one text or of several texts one after another. */
struct row_table {
    struct device *device;
    struct layer_rows at;                /* the buffers; `rows` is the number of rows added so far */
    int max_rows;
    int32_t *index;                      /* scratch: [4][max_rows + 1] position, slot, prefix, path_start */
    int32_t *path;                       /* scratch */
    size_t path_room, path_used;
};

/* Return the bytes of a token's keys and values in one layer, and in all layers that have them. */
int64_t kv_layer_bytes(const struct hparams *shape, int layer, enum cache_format format);
int64_t kv_token_bytes(const struct hparams *shape, enum cache_format format);

/* Opens a cache for `capacity` tokens, committed and pending ones together. *kv is uninitialised before; close it also if
 * this failed. */
int kv_open(struct kv *kv, struct device *device, const struct kv_shape *shape, int capacity, struct err *err);
void kv_close(struct kv *kv);

/* Sets the parent of the next pending node; the caller increments `kv->pending`, and has checked the capacity. */
void kv_append(struct kv *kv, int node, int parent);

/* Keeps the path node[0], node[1], ... (each the parent of the next, the first a child of -1); drops all other nodes. */
int kv_commit(struct kv *kv, const int32_t *node, int count, struct err *err);

/* Returns the buffers of one layer. */
struct layer_cache kv_layer(const struct kv *kv, int layer);

/* Allocates a table for up to max_rows rows; close it also if this failed. */
int row_table_open(struct row_table *table, struct device *device, int max_rows, struct err *err);
void row_table_close(struct row_table *table);

/* Upload positions, slots and paths of nodes: _begin empties the table, _add adds the rows of a text, and _end uploads them;
 * _fill does all this for one text. _part returns the rows of one text of several. */
void row_table_begin(struct row_table *table);
int row_table_add(struct row_table *table, const struct kv *kv, const int32_t *node, int rows, struct err *err);
int row_table_end(struct row_table *table, struct err *err);
struct layer_rows row_table_part(const struct row_table *table, int first, int rows);
int row_table_fill(struct row_table *table, const struct kv *kv, const int32_t *node, int rows, struct err *err);

#endif
