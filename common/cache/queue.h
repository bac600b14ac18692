/* Requests to fetch experts beforehand: levels from high to low, within a level first in, first out (MoE-SpAc section 3.4). A
 * key is asked for once at a time. All in O(1), the first one in O(levels). */
#ifndef MOE_CACHE_QUEUE_H
#define MOE_CACHE_QUEUE_H

#include <stdint.h>

#include "common/base/err.h"

struct cache_queue;

int cache_queue_open(struct cache_queue **out, int keys, struct err *err);
void cache_queue_close(struct cache_queue **queue);

/* To the end of its level, 1 .. CACHE_LEVELS. One that is there already stays where it is. */
void cache_queue_add(struct cache_queue *queue, int key, int level);
void cache_queue_remove(struct cache_queue *queue, int key);            /* nothing where it is not asked for */
int cache_queue_first(const struct cache_queue *queue, int *level);     /* -1: there is none */

#endif
