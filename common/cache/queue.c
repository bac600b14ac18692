#include "common/cache/queue.h"

#include "common/base/mem.h"
#include "common/cache/cache.h"

struct request { int32_t level, before, after; };           /* level 0: not requested. Neighbours are key + 1; 0: none */

struct cache_queue {
    struct request *request;    /* [keys] */
    int32_t first[CACHE_LEVELS + 1], last[CACHE_LEVELS + 1]; /* [level] key + 1 of the first and last request; 0: none */
    uint64_t filled;            /* bit level - 1: the level has a request */
};

int cache_queue_open(struct cache_queue **out, int keys, struct err *err)
{
    struct cache_queue *q = mem_alloc(1, sizeof *q, err);
    if (!q)
        return -1;
    if (!(q->request = mem_alloc(keys, sizeof *q->request, err))) {
        cache_queue_close(&q);
        return -1;
    }
    *out = q;
    return 0;
}

void cache_queue_close(struct cache_queue **queue)
{
    if (*queue)
        mem_free(&(*queue)->request);
    mem_free(queue);
}

void cache_queue_add(struct cache_queue *q, int key, int level)
{
    struct request *r = &q->request[key];
    if (r->level == level)
        return;
    cache_queue_remove(q, key);
    *r = (struct request){.level = level, .before = q->last[level]};
    if (r->before)
        q->request[r->before - 1].after = key + 1;
    else
        q->first[level] = key + 1;
    q->last[level] = key + 1;
    q->filled |= 1ull << (level - 1);
}

void cache_queue_remove(struct cache_queue *q, int key)
{
    struct request *r = &q->request[key];
    if (!r->level)
        return;
    if (r->before)
        q->request[r->before - 1].after = r->after;
    else
        q->first[r->level] = r->after;
    if (r->after)
        q->request[r->after - 1].before = r->before;
    else
        q->last[r->level] = r->before;
    if (!q->first[r->level])
        q->filled &= ~(1ull << (r->level - 1));
    *r = (struct request){0};
}

int cache_queue_first(const struct cache_queue *q, int *level)
{
    if (!q->filled)
        return -1;
    *level = 64 - __builtin_clzll(q->filled);
    return q->first[*level] - 1;
}
