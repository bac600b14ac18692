/* What forwards need that verify drafts: all their nodes together, rejected ones included, layer by layer.
 *
 *   distinct[l]       by number of nodes: experts that at least one node selects, mean over such forwards (MoE-Spec eq. 3);
 *                     under a budget those that it left
 *
 * Forwards are records of the phases decode (one node) and verify; prompts are none. A decode stream's iterations have no
 * selections but experts_loaded_layer: they give distinct only. What independence would give is as in neighbours.h, from the
 * selections of all nodes.
 *
 * Memory is that of a table a number of nodes that came. */
#ifndef MOE_ROUTE_TREES_H
#define MOE_ROUTE_TREES_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/route/put.h"
#include "common/stream/decode.h"
#include "common/stream/route.h"

enum { TREE_NODES_MAX = 4096 };

struct trees;

int trees_open(struct trees **out, const struct stream_model *model, struct err *err);
void trees_free(struct trees **trees);

/* Records of prompts are passed over. Experts must be in range. */
int trees_add(struct trees *trees, const struct route_tokens *record, struct err *err);

/* Errors: the iteration does not say what each layer loaded. */
int trees_add_iteration(struct trees *trees, const struct decode_iter *iter, struct err *err);

int64_t trees_count(const struct trees *trees);             /* forwards */
int trees_layers(const struct trees *trees);

struct tree_size {
    int nodes;
    int64_t trees;
    double distinct, independent, alike;        /* independent: NaN when selections were not recorded */
};

/* Numbers of nodes that came, ascending; of layer -1 the mean over layers. `out` has room for trees_sizes of them. */
int trees_sizes(const struct trees *trees);
void trees_layer(const struct trees *trees, int layer, struct tree_size *out);

/* A `union` record a layer. */
int trees_put_union(const struct trees *trees, record_put *put, void *context, struct err *err);

#endif
