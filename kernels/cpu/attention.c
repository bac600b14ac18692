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
 * these while it computes with the present one, a line for each line, so that memory and arithmetic overlap. One or two queries
 * prefetch keys during keys and values during values. */
#include <string.h>

#include "kernels/cpu/attention_query.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/table.h"
#include "kernels/plain/quantise.h"

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
static void tile_keys(struct tile *tile, struct panel *keys, bool ahead)
{
    const struct tile_rows rows = panel_rows(keys, tile->query, ahead);
    const float *q[TILE_ROWS];
    float *score[TILE_ROWS];
    for (int r = 0; r < tile->filled; r++) {
        struct query *query = &tile->query[r < tile->rows ? r : tile->rows - 1];
        q[r] = rows.scale ? query->code.number : query->q;
        score[r] = r < tile->rows ? query->share : tile->unused;
    }
    tile_scores(q, tile->filled, &rows, score);
    for (int r = 0; r < tile->rows; r++) {
        struct query *query = &tile->query[r];
        for (int j = 0; rows.scale && j < query->visible; j++)
            query->share[j] *= rows.scale[j];
        tile_shares(query->share, query->visible, query->scale, &query->chunk_max, &query->chunk_sum);
    }
}

/* Replaces the shares of a chunk by codes, as floats, and returns their scale. Before the first chunk, sets the query's `width`
 * sums to 0. */
static float query_codes(struct query *query, const float *scale, int width)
{
    for (int j = 0; j < query->visible; j++)
        query->share[j] *= scale[j];
    for (int i = 0; !query->begun && i < width; i++)
        query->value[i] = 0;
    return plain_quantise_shares(query->share, query->visible);
}

/* Computes the second half of a chunk: values, joined to the result of the chunks before. */
static void tile_join_values(struct tile *tile, struct panel *values, bool ahead)
{
    const struct tile_rows rows = panel_rows(values, tile->query, ahead);
    const int width = values->width;
    const float *share[TILE_ROWS];
    float *out[TILE_ROWS], max[TILE_ROWS] = {0}, chunk_max[TILE_ROWS] = {0};
    struct tile_join join;
    for (int r = 0; r < tile->filled; r++) {
        const struct query *query = &tile->query[r < tile->rows ? r : tile->rows - 1];
        share[r] = query->share;
        out[r] = r < tile->rows ? tile->query[r].value : tile->unused;
        join.first[r] = r >= tile->rows || !(query->begun || rows.scale);
        max[r] = query->begun ? query->max : query->chunk_max;
        chunk_max[r] = query->chunk_max;
    }
    tile_factors(&join, max, chunk_max);
    for (int r = 0; r < tile->rows; r++) {
        struct query *query = &tile->query[r];
        query->max = max[r];
        query->sum = query->begun ? __builtin_fmaf(query->sum, join.before[r], query->chunk_sum * join.now[r])
            : query->chunk_sum;
        if (rows.scale)
            join.now[r] *= query_codes(query, rows.scale, width);
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

/* State of one block: about 1.6 MiB on the thread's stack. Only the part for the actual widths is touched. */
struct block {
    struct query query[BLOCK_QUERIES];
    struct panel keys, values;
    struct tile tile;
};

/* Max queries whose keys and values are prefetched as two streams, and how far ahead: memory bounds so few queries, and gives
 * them up to a tenth more in this way (docs/benchmarks.md). */
enum { STREAM_QUERIES = 2, STREAM_AHEAD = 10240 };

/* Sets what `count` queries prefetch during a chunk: its values while its keys are read, and the keys of the next chunk, if
 * there is one (more), while its values are read. Keys or values that were converted prefetch those of the next chunk. */
static void block_prefetches(struct block *b, int chunk, bool more, int count)
{
    struct panel *keys = &b->keys, *values = &b->values;
    const size_t first = (size_t)chunk * ATTENTION_CHUNK, after = more ? first + ATTENTION_CHUNK : first;
    const size_t size = cache_size(keys->format), key = (size_t)keys->width * size, value = (size_t)values->width * size;
    keys->next_step = keys->widened ? key : value;
    keys->next = keys->widened ? keys->cache + after * key : values->cache + first * value;
    values->next_step = keys->widened ? value : key;
    values->next = keys->widened ? values->cache + after * value : keys->cache + after * key;
    if (count <= STREAM_QUERIES && !keys->widened) {
        keys->next_step = key;
        keys->next = keys->cache + first * key + STREAM_AHEAD;
        values->next_step = value;
        values->next = values->cache + first * value + STREAM_AHEAD;
    }
}

/* Processes one chunk for all queries of a block: its keys, then its values. */
static void attend_chunk(struct block *b, int count)
{
    bool ahead = true;
    for (int i = 0; i < count; i += b->tile.rows) {
        tile_open(&b->tile, &b->query[i], count - i);
        if (b->query[i].visible) {
            tile_keys(&b->tile, &b->keys, ahead);
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

/* Quantises a query. Its codes are kept as floats, whose products and sums with the codes of a key are exact. */
static void query_quantise(struct query *query, int width)
{
    int8_t code[ATTENTION_HEAD_DIM_MAX];
    query->scale *= plain_quantise_row(query->q, width, code);
    for (int i = 0; i < width; i++)
        query->code.number[i] = code[i];
}

static void attend_block(const struct attention *w, struct block *b, int kv_head, int block)
{
    const struct attention_args *a = w->args;
    const size_t slots = (size_t)kv_head * (size_t)a->capacity, rows = (size_t)a->kv_heads * (size_t)a->capacity;
    const struct attention_span span = attention_begin(w, b->query, kv_head, block);
    panel_place(&b->keys, a->k, rows, slots);
    panel_place(&b->values, a->v, rows, slots);
    for (int i = 0; i < span.count && a->format == CACHE_Q8; i++)
        query_quantise(&b->query[i], a->head_dim);
    for (int chunk = span.low / ATTENTION_CHUNK; chunk * ATTENTION_CHUNK < span.high; chunk++) {
        for (int i = 0; i < span.count; i++)
            query_chunk(&b->query[i], chunk);
        panel_open(&b->keys, chunk, span.low, span.committed, span.count);
        panel_open(&b->values, chunk, span.low, span.committed, span.count);
        block_prefetches(b, chunk, (chunk + 1) * ATTENTION_CHUNK < span.committed, span.count);
        attend_chunk(b, span.count);
    }
    for (int i = 0; i < span.count; i++)
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

void cpu_attention(struct queue *queue, const struct attention_args *args) { attention_run(queue, args, attend); }
