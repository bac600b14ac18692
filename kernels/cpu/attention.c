/* The queries of one kv head (those of all rows and of all heads that share it) are divided into blocks. All queries of a block
 * process a chunk of the cache together, first its keys and then its values, so that keys and values are read from memory once
 * and afterwards from the processor's cache. Each query has its own maximum, sum and values, so its result does not depend on
 * its block.
 *
 * Values of 16 bits are converted to f32 when a block begins a chunk, once for all its queries. Positions on a row's path are
 * gathered into contiguous memory, once for the queries of that row, so that all products use contiguous positions. */
#include <string.h>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/widen.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/math.h"

enum { BLOCK_QUERIES = 16 };

struct query {
    const float *q;
    float *out;
    const float *sink;                  /* of this head; NULL: none */
    const int32_t *path;
    int row, prefix, first, length;          /* visible: logical positions first .. length-1, the first `prefix` being slots */
    int begun;                          /* at least one chunk has been joined */
    float max, sum;
    float value[ATTENTION_HEAD_DIM_MAX];
    /* of the current chunk: */
    int visible;
    float chunk_max, chunk_sum, share[ATTENTION_CHUNK];
    int start;                          /* logical position of the first visible one */
};

/* One chunk of keys or values, as f32. */
struct panel {
    const unsigned char *cache;         /* at the beginning of the kv head */
    enum cache_format format;
    int width, chunk;
    int row;                            /* row whose positions were gathered last */
    float wide[2 * ATTENTION_CHUNK * ATTENTION_HEAD_DIM_MAX];   /* committed positions, then those gathered for a row with a
                                                                 * path */
};

struct attention {
    const struct attention_args *args;
    int group, blocks;                  /* query heads per kv head; blocks of queries per kv head */
    struct work work;
};

/* Converts the committed positions of a chunk to f32, from the first to the last one that a query of the block sees. */
static void panel_open(struct panel *panel, int chunk, int begin, int end)
{
    size_t width = (size_t)panel->width;
    int first = chunk * ATTENTION_CHUNK, last = first + ATTENTION_CHUNK;
    panel->chunk = chunk;
    panel->row = -1;
    begin = begin > first ? begin : first;
    end = end < last ? end : last;
    if (panel->format != CACHE_F32 && begin < end)
        widen(panel->format, panel->cache + (size_t)begin * width * 2, (size_t)(end - begin) * width,
              panel->wide + (size_t)(begin - first) * width);
}

/* Returns the positions of the chunk that a query sees, in contiguous memory. */
static const float *panel_rows(struct panel *panel, const struct query *query)
{
    const size_t width = (size_t)panel->width, row = width * cache_size(panel->format);
    const int own = query->prefix - query->start;                       /* number of committed ones among them */
    float *path = panel->wide + (size_t)ATTENTION_CHUNK * width;
    if (own >= query->visible && panel->format == CACHE_F32)
        return (const float *)(const void *)panel->cache + (size_t)query->start * width;
    if (own >= query->visible)
        return panel->wide + (size_t)(query->start - panel->chunk * ATTENTION_CHUNK) * width;
    for (int j = 0; j < query->visible && panel->row != query->row; j++) {
        size_t slot = (size_t)(j < own ? query->start + j : query->path[j - own]);
        widen(panel->format, panel->cache + slot * row, width, path + (size_t)j * width);
    }
    panel->row = query->row;
    return path;
}

/* Converts scores to exp(score - maximum), and computes the maximum and the sum. */
static void query_shares(struct query *query, float scale)
{
    float *share = query->share, lane[16], max;
    for (int j = 0; j < query->visible; j++)
        share[j] *= scale;
    for (int j = query->visible; j < ATTENTION_CHUNK; j++)
        share[j] = -INFINITY;                         /* exp is 0, and adding 0 does not change a sum of non-negative numbers */
    for (int i = 0; i < 16; i++)
        lane[i] = share[i];
    for (int j = 16; j < ATTENTION_CHUNK; j += 16)
        for (int i = 0; i < 16; i++)
            lane[i] = share[j + i] > lane[i] ? share[j + i] : lane[i];
    max = lane[0];
    for (int i = 1; i < 16; i++)
        max = lane[i] > max ? lane[i] : max;
    for (int j = 0; j < ATTENTION_CHUNK; j++)
        share[j] = plain_exp(share[j] - max);
    for (int i = 0; i < 16; i++)
        lane[i] = ((share[i] + share[i + 16]) + share[i + 32]) + share[i + 48];
    query->chunk_max = max;
    query->chunk_sum = lanes_sum(lane);
}

/* Joins the current chunk to the result of those before. */
static void query_join(struct query *query, const float *value, int width)
{
    float max = query->max > query->chunk_max ? query->max : query->chunk_max;
    float before = plain_exp(query->max - max), now = plain_exp(query->chunk_max - max);
    query->max = max;
    query->sum = __builtin_fmaf(query->sum, before, query->chunk_sum * now);
    for (int i = 0; i < width; i++)
        query->value[i] = __builtin_fmaf(query->value[i], before, value[i] * now);
}

/* First half of a chunk: scores, for queries that see the same positions. */
static void queries_keys(struct query *query, int rows, struct panel *keys, float scale)
{
    const float *q[TILE_ROWS];
    float *score[TILE_ROWS];
    for (int r = 0; r < rows; r++) {
        q[r] = query[r].q;
        score[r] = query[r].share;
    }
    tile_scores(q, rows, panel_rows(keys, query), keys->width, query->visible, score);
    for (int r = 0; r < rows; r++)
        query_shares(&query[r], scale);
}

/* Second half: values. */
static void queries_values(struct query *query, int rows, struct panel *values)
{
    float value[TILE_ROWS][ATTENTION_HEAD_DIM_MAX], *out[TILE_ROWS];
    const float *share[TILE_ROWS];
    for (int r = 0; r < rows; r++) {
        share[r] = query[r].share;
        out[r] = query[r].begun ? value[r] : query[r].value;
    }
    tile_values(panel_rows(values, query), values->width, share, query->visible, rows, out);
    for (int r = 0; r < rows; r++)
        if (query[r].begun)
            query_join(&query[r], value[r], values->width);
        else {
            query[r].begun = 1;
            query[r].max = query[r].chunk_max;
            query[r].sum = query[r].chunk_sum;
        }
}

/* Returns how many of `count` queries, from the first on, see the same positions, as a tile size: 1, 2 or 4. */
static int queries_alike(const struct query *query, int count)
{
    int same = 1;
    while (same < count && same < TILE_ROWS && query[same].start == query->start && query[same].visible == query->visible &&
           (query[same].row == query->row ||
            (query->prefix - query->start >= query->visible && query[same].prefix - query->start >= query->visible)))
        same++;
    return same == 3 ? 2 : same;
}

/* Joins the sink and writes the output. */
static void query_end(struct query *query, int width)
{
    float before = 1;
    if (query->sink) {
        float max = query->max > *query->sink ? query->max : *query->sink;
        before = plain_exp(query->max - max);
        query->sum = __builtin_fmaf(query->sum, before, plain_exp(*query->sink - max));
    }
    for (int i = 0; i < width; i++)
        query->out[i] = query->value[i] * before / query->sum;
}

static void query_begin(struct query *query, const struct attention_args *a, int row, int head)
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
    query->begun = 0;
}

/* Finds the visible positions of a chunk. */
static void query_chunk(struct query *query, int chunk)
{
    int begin = chunk * ATTENTION_CHUNK, end = begin + ATTENTION_CHUNK;
    begin = begin > query->first ? begin : query->first;
    end = end < query->length ? end : query->length;
    query->start = begin;
    query->visible = end > begin ? end - begin : 0;
}

/* State of one block: about 1.1 MiB on the thread's stack, of which only the part for the actual widths is touched. */
struct block {
    struct query query[BLOCK_QUERIES];
    struct panel keys, values;
};

/* Prefetches the values, because they are needed as soon as the keys have been read. */
static void values_prefetch(const struct panel *values, int chunk, int committed)
{
    size_t row = (size_t)values->width * cache_size(values->format);
    int first = chunk * ATTENTION_CHUNK, end = first + ATTENTION_CHUNK < committed ? first + ATTENTION_CHUNK : committed;
    for (size_t at = (size_t)first * row; first < end && at < (size_t)end * row; at += 64)
        __builtin_prefetch(values->cache + at);
}

static void attend_block(const struct attention *w, struct block *b, int kv_head, int block)
{
    const struct attention_args *a = w->args;
    const size_t slots = (size_t)kv_head * (size_t)a->capacity, size = cache_size(a->format);
    const int queries = a->rows * w->group, first = block * BLOCK_QUERIES;
    const int count = queries - first < BLOCK_QUERIES ? queries - first : BLOCK_QUERIES;
    int low = 0, high = 0, committed = 0;
    b->keys.cache = (const unsigned char *)work_pointer(a->k) + slots * (size_t)a->head_dim * size;
    b->values.cache = (const unsigned char *)work_pointer(a->v) + slots * (size_t)a->value_dim * size;
    for (int i = 0; i < count; i++) {
        struct query *query = &b->query[i];
        query_begin(query, a, (first + i) / w->group, kv_head * w->group + (first + i) % w->group);
        low = i == 0 || query->first < low ? query->first : low;
        high = query->length > high ? query->length : high;
        committed = query->prefix > committed ? query->prefix : committed;
    }
    for (int chunk = low / ATTENTION_CHUNK; chunk * ATTENTION_CHUNK < high; chunk++) {
        for (int i = 0; i < count; i++)
            query_chunk(&b->query[i], chunk);
        values_prefetch(&b->values, chunk, committed);
        panel_open(&b->keys, chunk, low, committed);
        for (int i = 0, rows; i < count; i += rows) {
            rows = queries_alike(&b->query[i], count - i);
            if (b->query[i].visible)
                queries_keys(&b->query[i], rows, &b->keys, a->scale);
        }
        panel_open(&b->values, chunk, low, committed);
        for (int i = 0, rows; i < count; i += rows) {
            rows = queries_alike(&b->query[i], count - i);
            if (b->query[i].visible)
                queries_values(&b->query[i], rows, &b->values);
        }
    }
    for (int i = 0; i < count; i++)
        query_end(&b->query[i], a->value_dim);
}

static void attend(void *argument, int member, int members)
{
    struct attention *w = argument;
    struct block block;
    block.keys.format = block.values.format = w->args->format;
    block.keys.width = w->args->head_dim;
    block.values.width = w->args->value_dim;
    for (int64_t task; (task = work_take(&w->work, member, members)) >= 0;)
        attend_block(w, &block, (int)(task / w->blocks), (int)(task % w->blocks));
}

void cpu_attention(struct queue *queue, const struct attention_args *args)
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
    work_run(queue, bytes, attend, &w);
}
