/* The queries of attention on the host: the state of one head of one row, from its first chunk to its output. */
#ifndef MOE_KERNELS_CPU_ATTENTION_QUERY_H
#define MOE_KERNELS_CPU_ATTENTION_QUERY_H

#include <string.h>

#include "kernels/attention.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/math.h"

enum { BLOCK_QUERIES = 64 };

struct query {
    const float *q;
    float *out;
    const float *sink;                  /* of this head; NULL: none */
    const int32_t *path;
    int row, prefix, first, length;     /* visible: logical positions first .. length-1, the first `prefix` being slots */
    bool begun;                         /* at least one chunk has been joined */
    float max, sum;
    float scale;                        /* of dot products; in q8 it includes the scale of the query's codes */
    _Alignas(64) float value[ATTENTION_HEAD_DIM_MAX];
    union {
        float number[ATTENTION_HEAD_DIM_MAX];
        int8_t byte[ATTENTION_HEAD_DIM_MAX];
    } code;                             /* codes of the query for a cache in q8, in the type that products need */
    /* of the current chunk: */
    int visible;
    float chunk_max, chunk_sum;
    float share[2 * ATTENTION_CHUNK];   /* scores, then shares; zeros may follow them */
    int start;                          /* logical position of the first visible one */
};

static inline void query_begin(struct query *query, const struct attention_args *a, int row, int head)
{
    const int32_t *prefix = work_pointer(a->prefix), *start = work_pointer(a->path_start), *path = work_pointer(a->path);
    size_t heads = (size_t)a->heads, at = (size_t)head;
    query->q = (const float *)work_pointer(a->q) + (size_t)row * (size_t)a->stride + at * (size_t)a->head_dim;
    query->out = (float *)work_pointer(a->out) + ((size_t)row * heads + at) * (size_t)a->value_dim;
    query->sink = a->sink.address ? (const float *)work_pointer(a->sink) + head : NULL;
    query->path = start[row + 1] > start[row] ? path + start[row] : NULL;
    query->row = row;
    query->prefix = prefix[row];
    query->length = prefix[row] + start[row + 1] - start[row];
    query->first = attention_first(a, query->length);
    query->begun = false;
    query->scale = a->scale;
}

/* Finds the visible positions of a chunk. */
static inline void query_chunk(struct query *query, int chunk)
{
    int begin = chunk * ATTENTION_CHUNK, end = begin + ATTENTION_CHUNK;
    begin = begin > query->first ? begin : query->first;
    end = end < query->length ? end : query->length;
    query->start = begin;
    query->visible = end > begin ? end - begin : 0;
}

/* Joins the sink and writes the output. */
static inline void query_end(struct query *query, int width)
{
    float before = 1;
    if (query->sink) {
        float max = query->max > *query->sink ? query->max : *query->sink;
        before = plain_exp(query->max - max);
        query->sum = __builtin_fmaf(query->sum, before, plain_exp(*query->sink - max));
    }
    const float *restrict value = query->value, sum = query->sum;
    float *restrict out = query->out;
    for (int i = 0; i < width; i++)
        out[i] = value[i] * before / sum;
}

/* The queries of each kv head, which are those of all rows and of all heads that share it, divided into blocks. */
struct attention {
    const struct attention_args *args;
    int group, blocks;                  /* query heads per kv head; blocks of queries per kv head */
    struct work work;
};

/* The number of queries of a block, and the logical positions that they see: low .. high-1. Positions from `committed` on are
 * those of paths. */
struct attention_span { int count, low, high, committed; };

/* Begins the queries of a block. */
static inline struct attention_span attention_begin(const struct attention *w, struct query *query, int kv_head, int block)
{
    const int queries = w->args->rows * w->group, first = block * BLOCK_QUERIES;
    struct attention_span span = {.count = queries - first < BLOCK_QUERIES ? queries - first : BLOCK_QUERIES};
    for (int i = 0; i < span.count; i++) {
        query_begin(&query[i], w->args, (first + i) / w->group, kv_head * w->group + (first + i) % w->group);
        span.low = i == 0 || query[i].first < span.low ? query[i].first : span.low;
        span.high = query[i].length > span.high ? query[i].length : span.high;
        span.committed = query[i].prefix > span.committed ? query[i].prefix : span.committed;
    }
    return span;
}

/* Runs a job on the queue's pool. Its argument is a struct attention. */
static inline void attention_run(struct queue *queue, const struct attention_args *args,
                                 void (*job)(void *argument, int member, int members))
{
    const int32_t *prefix = work_pointer(args->prefix), *start = work_pointer(args->path_start);
    struct attention w;
    size_t positions = (size_t)start[args->rows];
    for (int r = 0; r < args->rows; r++)
        positions += (size_t)prefix[r];
    size_t bytes = positions * (size_t)args->heads * (size_t)(args->head_dim + args->value_dim) * cache_size(args->format);
    w.args = args;
    w.group = args->heads / args->kv_heads;
    w.blocks = (args->rows * w.group + BLOCK_QUERIES - 1) / BLOCK_QUERIES;
    work_assign_evenly(&w.work, work_members(queue, bytes), (uint32_t)(args->kv_heads * w.blocks));
    work_run(queue, bytes, job, &w);
}

#endif
