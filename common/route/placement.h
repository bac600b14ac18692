/* Placement of experts on processes that compute them together (engine/peers.h), by a ranking: each layer's scores are divided
 * as evenly as possible, and so are experts, so that no process computes or stores much more than the others. A token waits for
 * the slowest process. */
#ifndef MOE_ROUTE_PLACEMENT_H
#define MOE_ROUTE_PLACEMENT_H

#include "common/route/ranking.h"

/* Fills owner[moe_layers][experts] with the process, 0 .. ranks - 1, of each expert. A process has at most
 * ceil(experts / ranks) experts of a layer. */
int placement_make(int32_t *owner, const struct ranking *ranking, int ranks, struct err *err);

#endif
