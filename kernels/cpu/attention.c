/* The queries of one kv head (those of all rows and of all heads that share it) are divided into blocks. All queries of a block
 * process a chunk of the cache together, first its keys and then its values, so that keys and values are read from memory once
 * and afterwards from the processor's cache. Each query has its own maximum, sum and values, so its result does not depend on
 * its block.
 *
 * Up to eight queries that see the same positions of a chunk form a tile (attention_tile.h), which converts keys and values of
 * 16 and 8 bits to f32 in registers. Where a block has many tiles, they are converted once for all of them, into contiguous
 * memory. Positions on a row's path are gathered into contiguous memory, once for the queries of that row, so that all products
 * use contiguous positions.
 *
 * Memory is read once: keys of a chunk, its values, keys of the next chunk. The first tile of a block prefetches the next of
 * these while it computes with the present one, a line for each line, so that memory and arithmetic overlap. */
#include <string.h>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/work.h"

enum { BLOCK_QUERIES = 64 };

struct query {
    const float *q;
    float *out;
    const float *sink;                  /* of this head; NULL: none */
    const int32_t *path;
    int row, prefix, first, length;          /* visible: logical positions first .. length-1, the first `prefix` being slots */
    bool begun;                         /* at least one chunk has been joined */
    float max, sum;
    _Alignas(64) float value[ATTENTION_HEAD_DIM_MAX];
    /* of the current chunk: */
    int visible;
    float chunk_max, chunk_sum, share[ATTENTION_CHUNK];
    int start;                          /* logical position of the first visible one */
};

/* One chunk of keys or values. */
struct panel {
    const unsigned char *cache;         /* at the beginning of the kv head */
    const float *scale;                 /* likewise; NULL: the format has none */
    enum cache_format format;
    int width, chunk;
    bool widened;                       /* committed positions were converted to f32 */
    const unsigned char *next;          /* values of tile_rows.next and .next_step for the chunk's first position */
    size_t next_step;
    int row;                            /* row whose positions were gathered last */
    float path_scale[ATTENTION_CHUNK];  /* scales of the positions that were gathered last */
    /* committed positions, then those gathered for a row with a path, all as f32 */
    _Alignas(64) float wide[2 * ATTENTION_CHUNK * ATTENTION_HEAD_DIM_MAX];
};

struct attention {
    const struct attention_args *args;
    int group, blocks;                  /* query heads per kv head; blocks of queries per kv head */
    struct work work;
};

/* Finds the rows of a kv head, which begins at row `first`, in a cache of `rows` rows. */
static void panel_place(struct panel *panel, struct buffer cache, size_t rows, size_t first)
{
    const unsigned char *data = work_pointer(cache);
    const size_t width = (size_t)panel->width;
    panel->cache = data + first * width * cache_size(panel->format);
    panel->scale = cache_scale(panel->format)
        ? (const float *)(const void *)(data + cache_scales(panel->format, rows, width)) + first : NULL;
}

/* Begins a chunk. For many queries, converts its committed positions to f32, from the first to the last one that a query of
 * the block sees. */
static void panel_open(struct panel *panel, int chunk, int begin, int end, int queries)
{
    size_t width = (size_t)panel->width;
    int first = chunk * ATTENTION_CHUNK, last = first + ATTENTION_CHUNK;
    panel->chunk = chunk;
    panel->row = -1;
    panel->widened = panel->format != CACHE_F32 && queries >= TILE_WIDEN_FROM;
    begin = begin > first ? begin : first;
    end = end < last ? end : last;
    if (panel->widened && begin < end)
        widen(panel->format, panel->cache + (size_t)begin * width * cache_size(panel->format), (size_t)(end - begin) * width,
              panel->wide + (size_t)(begin - first) * width);
}

/* Returns the positions of the chunk that a query sees, in contiguous memory. ahead: prefetch meanwhile. */
static struct tile_rows panel_rows(struct panel *panel, const struct query *query, bool ahead)
{
    const size_t width = (size_t)panel->width, row = width * cache_size(panel->format);
    const size_t first = (size_t)(query->start - panel->chunk * ATTENTION_CHUNK);
    const int own = query->prefix - query->start;                       /* number of committed ones among them */
    float *path = panel->wide + (size_t)ATTENTION_CHUNK * width;
    struct tile_rows rows = {.at = panel->cache + (size_t)query->start * row, .format = panel->format, .width = panel->width,
                             .count = query->visible, .scale = panel->scale ? panel->scale + query->start : NULL,
                             .next_step = panel->next_step,
                             .next = ahead ? panel->next + first * panel->next_step : NULL};
    if (own >= query->visible && !panel->widened)
        return rows;
    rows.format = CACHE_F32;
    rows.at = (const unsigned char *)(own < query->visible ? path : panel->wide + first * width);
    if (own >= query->visible)
        return rows;
    rows.scale = panel->scale ? panel->path_scale : NULL;
    for (int j = 0; j < query->visible && panel->row != query->row; j++) {
        size_t slot = (size_t)(j < own ? query->start + j : query->path[j - own]);
        widen(panel->format, panel->cache + slot * row, width, path + (size_t)j * width);
        panel->path_scale[j] = panel->scale ? panel->scale[slot] : 1;
    }
    panel->row = query->row;
    return rows;
}

/* Up to eight queries that see the same positions of a chunk: `rows` of them. The tile is padded with copies of the last query,
 * whose results are written to `unused`. */
struct tile {
    struct query *query;
    int rows, filled;
    float unused[ATTENTION_HEAD_DIM_MAX > ATTENTION_CHUNK ? ATTENTION_HEAD_DIM_MAX : ATTENTION_CHUNK];
};

/* Computes the first half of a chunk: scores, maximum and sum. */
static void tile_keys(struct tile *tile, struct panel *keys, float scale, bool ahead)
{
    const struct tile_rows rows = panel_rows(keys, tile->query, ahead);
    const float *q[TILE_ROWS];
    float *score[TILE_ROWS];
    for (int r = 0; r < tile->filled; r++) {
        struct query *query = &tile->query[r < tile->rows ? r : tile->rows - 1];
        q[r] = query->q;
        score[r] = r < tile->rows ? query->share : tile->unused;
    }
    tile_scores(q, tile->filled, &rows, score);
    for (int r = 0; r < tile->rows; r++) {
        struct query *query = &tile->query[r];
        for (int j = 0; rows.scale && j < query->visible; j++)
            query->share[j] *= rows.scale[j];
        tile_shares(query->share, query->visible, scale, &query->chunk_max, &query->chunk_sum);
    }
}

/* Computes the second half of a chunk: values, joined to the result of the chunks before. */
static void tile_join_values(struct tile *tile, struct panel *values, bool ahead)
{
    const struct tile_rows rows = panel_rows(values, tile->query, ahead);
    const float *share[TILE_ROWS];
    float *out[TILE_ROWS], max[TILE_ROWS] = {0}, chunk_max[TILE_ROWS] = {0};
    struct tile_join join;
    for (int r = 0; r < tile->filled; r++) {
        const struct query *query = &tile->query[r < tile->rows ? r : tile->rows - 1];
        share[r] = query->share;
        out[r] = r < tile->rows ? tile->query[r].value : tile->unused;
        join.first[r] = r >= tile->rows || !query->begun;
        max[r] = join.first[r] ? query->chunk_max : query->max;
        chunk_max[r] = query->chunk_max;
    }
    tile_factors(&join, max, chunk_max);
    for (int r = 0; r < tile->rows; r++) {
        struct query *query = &tile->query[r];
        for (int j = 0; rows.scale && j < query->visible; j++)
            query->share[j] *= rows.scale[j];
        query->max = max[r];
        query->sum = query->begun ? __builtin_fmaf(query->sum, join.before[r], query->chunk_sum * join.now[r])
            : query->chunk_sum;
        query->begun = true;
    }
    tile_values(&rows, share, tile->filled, &join, out);
}

/* Forms a tile of the first of `count` queries and those after it that see the same positions. */
static void tile_open(struct tile *tile, struct query *query, int count)
{
    int same = 1;
    while (same < count && same < TILE_ROWS && query[same].start == query->start && query[same].visible == query->visible &&
           (query[same].row == query->row ||
            (query->prefix - query->start >= query->visible && query[same].prefix - query->start >= query->visible)))
        same++;
    tile->query = query;
    tile->rows = same;
    tile->filled = same > 4 ? 8 : same > 2 ? 4 : same;
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
    query->begun = false;
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

/* State of one block: about 1.3 MiB on the thread's stack. Only the part for the actual widths is touched. */
struct block {
    struct query query[BLOCK_QUERIES];
    struct panel keys, values;
    struct tile tile;
};

/* Sets what is prefetched during a chunk: its values while its keys are read, and the keys of the next chunk, if there is one
 * (more), while its values are read. Keys or values that were converted prefetch those of the next chunk instead. */
static void block_prefetches(struct block *b, int chunk, bool more)
{
    struct panel *keys = &b->keys, *values = &b->values;
    const size_t first = (size_t)chunk * ATTENTION_CHUNK, after = more ? first + ATTENTION_CHUNK : first;
    const size_t size = cache_size(keys->format), key = (size_t)keys->width * size, value = (size_t)values->width * size;
    keys->next_step = keys->widened ? key : value;
    keys->next = keys->widened ? keys->cache + after * key : values->cache + first * value;
    values->next_step = keys->widened ? value : key;
    values->next = keys->widened ? values->cache + after * value : keys->cache + after * key;
}

/* Processes one chunk for all queries of a block: its keys, then its values. */
static void attend_chunk(struct block *b, int count, float scale)
{
    bool ahead = true;
    for (int i = 0; i < count; i += b->tile.rows) {
        tile_open(&b->tile, &b->query[i], count - i);
        if (b->query[i].visible) {
            tile_keys(&b->tile, &b->keys, scale, ahead);
            ahead = false;
        }
    }
    ahead = true;
    for (int i = 0; i < count; i += b->tile.rows) {
        tile_open(&b->tile, &b->query[i], count - i);
        if (b->query[i].visible) {
            tile_join_values(&b->tile, &b->values, ahead);
            ahead = false;
        }
    }
}

static void attend_block(const struct attention *w, struct block *b, int kv_head, int block)
{
    const struct attention_args *a = w->args;
    const size_t slots = (size_t)kv_head * (size_t)a->capacity, rows = (size_t)a->kv_heads * (size_t)a->capacity;
    const int queries = a->rows * w->group, first = block * BLOCK_QUERIES;
    const int count = queries - first < BLOCK_QUERIES ? queries - first : BLOCK_QUERIES;
    int low = 0, high = 0, committed = 0;
    panel_place(&b->keys, a->k, rows, slots);
    panel_place(&b->values, a->v, rows, slots);
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
        panel_open(&b->keys, chunk, low, committed, count);
        panel_open(&b->values, chunk, low, committed, count);
        block_prefetches(b, chunk, (chunk + 1) * ATTENTION_CHUNK < committed);
        attend_chunk(b, count, a->scale);
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
