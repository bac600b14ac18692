/* The indexer of sparse attention (kernels/index.h): which positions the rows of a layer attend to. */
#ifndef MOE_ENGINE_INDEXER_H
#define MOE_ENGINE_INDEXER_H

#include "common/engine/layer.h"

/* Computes the indexer's queries and weights in the workspace, and its keys in the caches. No-op for layers without one. */
void indexer_keys(const struct layer *layer);

/* Allocates scores for sequences of up to `positions` positions. */
int indexer_cover(struct workspace *space, int positions, struct err *err);

/* Returns the rows of a text with the positions that they attend to: those that the layer's indexer chooses; in a layer
 * without its own indexer, those chosen in the previous layer; all positions if the text is short. */
struct layer_rows indexer_rows(const struct layer *layer, const struct layer_text *text);

#endif
