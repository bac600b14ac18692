/* Requests to prefetch experts: served from high levels to low, and first in first out within a level (MoE-SpAc section
 * 3.4). A key has at most one request at a time. Every function is O(1). */
#ifndef MOE_CACHE_QUEUE_H
#define MOE_CACHE_QUEUE_H

#include <stdint.h>

#include "common/base/err.h"

struct cache_queue;

int cache_queue_open(struct cache_queue **out, int keys, struct err *err);
void cache_queue_close(struct cache_queue **queue);

/* Appends a request to its level, 1 .. CACHE_LEVELS. A key that already has that level keeps its position. */
void cache_queue_add(struct cache_queue *queue, int key, int level);
void cache_queue_remove(struct cache_queue *queue, int key);            /* no-op for a key without a request */
int cache_queue_first(const struct cache_queue *queue, int *level);     /* -1: the queue is empty */

#endif
