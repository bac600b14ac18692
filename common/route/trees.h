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

#include "common/route/analysis.h"

enum { TREE_NODES_MAX = 4096 };

/* Records `union`, with trees set. Errors: an iteration lacks experts_loaded_layer. */
extern const struct analysis_class trees_analysis;

struct tree_size {
    int nodes;
    int64_t trees;
    double distinct, independent, alike;        /* independent: NaN when selections were not recorded */
};

/* For an analysis of this class. trees_layer stores one entry for each number of nodes that occurs, ascending, in
 * out[trees_sizes]. */
int trees_sizes(const struct analysis *analysis);
void trees_layer(const struct analysis *analysis, int layer, struct tree_size *out);

#endif
