/* Keys and values of one text in some layers, and what rows see of them: of a model, or of a draft head.
 *
 * The cache holds `length` committed tokens and `pending` nodes after them, a forest: a node's parent is an earlier node, or
 * -1, the last committed token. Node i has slot length + i and position length + depth. */
#ifndef MOE_ENGINE_KV_H
#define MOE_ENGINE_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "common/model/hparams.h"
#include "common/tensor/device.h"

struct kv_shape {
    int layers, kv_heads, head_dim, value_dim;
    const struct hparams *model;                     /* whose layers say the last three, each for itself, or have a state and no
                                                      * keys and values; NULL: all are alike */
    enum cache_format format;
};

struct kv {
    struct device *device;
    struct kv_shape shape;
    struct buffer *k, *v;                            /* [layers], each as kernels/attention.h says */
    int capacity, length, pending;
    int32_t *parent, *depth, *run;                   /* [capacity] by pending node; run: see kv_append */
};

/* Keys and values of one layer, each as kernels/attention.h says. */
struct layer_cache {
    struct buffer k, v;
    int capacity;
    enum cache_format format;
};

/* Which rows: their positions, and what they see (kernels/attention.h). */
struct layer_rows {
    int rows;
    struct buffer position, slot, prefix, path_start, path;      /* i32 */
    int longest;                         /* positions that a row may see; 0: the device alone knows */
    bool slab;                           /* they are one (kernels/linear.h) */
};

/* Room to write that down for up to so many rows. */
struct row_table {
    struct device *device;
    struct layer_rows at;                /* its buffers */
    int32_t *index;                      /* [max_rows + 1] scratch */
    int32_t *path;
    size_t path_room;
};

/* For `capacity` tokens, committed and pending together. *kv holds nothing before; close it also when this has failed. */
int kv_open(struct kv *kv, struct device *device, const struct kv_shape *shape, int capacity, struct err *err);
void kv_close(struct kv *kv);

/* The next pending node gets this parent; `kv->pending` is the caller's to count up. Whether there is room is known before. */
void kv_append(struct kv *kv, int node, int parent);

/* Keeps the path node[0], node[1], ... (each the parent of the next, the first a child of -1); drops all other nodes. */
int kv_commit(struct kv *kv, const int32_t *node, int count, struct err *err);

struct layer_cache kv_layer(const struct kv *kv, int layer);

int row_table_open(struct row_table *table, struct device *device, int max_rows, struct err *err);
void row_table_close(struct row_table *table);

/* Positions, slots and paths of these nodes, on the device. */
int row_table_fill(struct row_table *table, const struct kv *kv, const int32_t *node, int rows, struct err *err);

#endif
