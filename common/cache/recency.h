/* Measures how recently experts were wanted, as a number that policies compare: the resident with the lowest number is
 * evicted first.
 *
 * Per layer (lru, and the ties of other policies): an expert's rank is the number of experts of its own layer that were
 * wanted after it. The highest rank is evicted first, and of equal ranks the expert whose layer had its turn last, because
 * this layer's next turn is furthest away. So all layers have equally many slots in the long run, and a layer that wants
 * more takes slots from others only for as long as it computes. Within a forward, experts count as wanted in the order of
 * their numbers.
 *
 * Over all layers (lru-global): one list in the order of wants. A forward that wants more experts than there are slots then
 * evicts each expert before its next turn, and has no hits at all. */
#ifndef MOE_CACHE_RECENCY_H
#define MOE_CACHE_RECENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct recency;

int recency_open(struct recency **out, int layers, int experts, bool global, struct err *err);
void recency_close(struct recency **recency);

/* Moves these distinct experts of a layer to the front: the layer has its turn. Changes the numbers of all experts of the
 * layer. O(experts). */
void recency_want(struct recency *recency, int layer, const int32_t *expert, int count);

/* Counts an expert as wanted now; the numbers of others stay as they are until their layer's next turn. O(experts). */
void recency_touch(struct recency *recency, int key);

int64_t recency_of(const struct recency *recency, int key);

#endif
