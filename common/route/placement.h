/* Places experts on processes that compute them together (engine/peers.h), by a ranking: the scores and the number of experts
 * of each layer are divided evenly (greedily: a heuristic), so that no process computes or stores much more than the others. A
 * forward waits for the slowest process. */
#ifndef MOE_ROUTE_PLACEMENT_H
#define MOE_ROUTE_PLACEMENT_H

#include "common/route/ranking.h"

/* Fills owner[moe_layers][experts] with the process, 0 .. ranks - 1, of each expert. A process has at most
 * ceil(experts / ranks) experts of a layer. */
int placement_make(int32_t *owner, const struct ranking *ranking, int ranks, struct err *err);

#endif
