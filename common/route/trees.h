/* Distinct experts of forwards that verify drafts: of all nodes together, rejected ones included, layer by layer.
 *
 *   distinct[l]       for each number of nodes: experts that at least one node selects, mean over such forwards (MoE-Spec
 *                     eq. 3); under a budget, experts that remain
 *
 * Forwards are records of the phases decode (one node) and verify; prompts do not count. Iterations of a decode stream have
 * experts_loaded_layer but no selections, and contribute to distinct only. The values for independent tokens are those of
 * neighbours.h, from the selections of all nodes.
 *
 * Memory: one table for each number of nodes that occurs. */
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

/* Adds a record; records of prompts are ignored. Experts must be in range. */
int trees_add(struct trees *trees, const struct route_tokens *record, struct err *err);

/* Adds an iteration of a decode stream. Errors: the iteration lacks experts_loaded_layer. */
int trees_add_iteration(struct trees *trees, const struct decode_iter *iter, struct err *err);

int64_t trees_count(const struct trees *trees);             /* forwards */
int trees_layers(const struct trees *trees);

struct tree_size {
    int nodes;
    int64_t trees;
    double distinct, independent, alike;        /* independent: NaN when selections were not recorded */
};

/* trees_layer stores one entry for each number of nodes that occurs, ascending, in out[trees_sizes]. Layer -1 is the mean over
 * layers. */
int trees_sizes(const struct trees *trees);
void trees_layer(const struct trees *trees, int layer, struct tree_size *out);

/* Writes one `union` record a layer. */
int trees_put_union(const struct trees *trees, record_put *put, void *context, struct err *err);

#endif
