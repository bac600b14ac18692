/* The queries of one kv head (every row's heads that share it) are cut into blocks. A block walks the chunks of the cache
 * together, all with its keys and then all with its values, so that these are read from memory once and from a cache of the
 * processor after that; each query keeps its own maximum, sum and values, so the block it is in never shows in its result.
 *
 * Numbers of 16 bits are widened when a block comes to a chunk: the committed positions once for all queries, those on the
 * path of a row once for the queries of that row. */
#include <string.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/vector.h"
#include "kernels/cpu/widen.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/math.h"

enum { BLOCK_QUERIES = 16 };

struct query {
    const float *q;
    float *out;
    const float *sink;                  /* the head's own; NULL: none */
    const int32_t *path;
    int row, prefix, first, length;          /* visible: logical positions first .. length-1, the first `prefix` being slots */
    int begun;                          /* a chunk has been joined */
    float most, sum;
    float value[ATTENTION_HEAD_DIM_MAX];
    /* of the chunk at work: */
    int visible;
    float chunk_most, chunk_sum, share[ATTENTION_CHUNK];
    int start;                          /* the logical position of the first that is visible */
    size_t offset[ATTENTION_CHUNK];     /* where their keys or values begin, in floats */
};

/* A chunk of keys or values, as floats. */
struct panel {
    const unsigned char *cache;         /* of the kv head */
    enum cache_format format;
    int width, chunk;
    int row;                            /* whose path was widened last */
    float wide[2 * ATTENTION_CHUNK * ATTENTION_HEAD_DIM_MAX];   /* committed positions, then those of a path */
};

struct attention {
    const struct attention_args *args;
    int group, blocks;                  /* heads of a kv head; blocks of queries of a kv head */
    struct work work;
};

/* sum over j, ascending, of share[j] * value[slot j][i] by fused multiply-add from 0, for all i < width. */
#if defined(ISA_AVX512) || defined(ISA_AVX2)

static inline __attribute__((always_inline)) void weigh_strip(const float *values, const size_t *offset, const float *share,
                                                              int count, int vectors, float *out)
{
    vector sum[8];
#pragma GCC unroll 8
    for (int i = 0; i < vectors; i++)
        sum[i] = vector_zero();
    for (int j = 0; j < count; j++) {
        vector p = vector_all(share[j]);
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++)
            sum[i] = vector_fma(p, vector_load(values + offset[j] + i * LANES), sum[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < vectors; i++)
        vector_store(out + i * LANES, sum[i]);
}

static int weigh_strips(const float *values, const size_t *offset, const float *share, int count, int width, float *out)
{
    int i = 0;
    for (; i + 8 * LANES <= width; i += 8 * LANES)
        weigh_strip(values + i, offset, share, count, 8, out + i);
    for (; i + 4 * LANES <= width; i += 4 * LANES)
        weigh_strip(values + i, offset, share, count, 4, out + i);
    for (; i + LANES <= width; i += LANES)
        weigh_strip(values + i, offset, share, count, 1, out + i);
    return i;
}

#else

static int weigh_strips(const float *values, const size_t *offset, const float *share, int count, int width, float *out)
{
    (void)values, (void)offset, (void)share, (void)count, (void)width, (void)out;
    return 0;
}

#endif

static void weigh(const float *values, const size_t *offset, const float *share, int count, int width, float *out)
{
    int done = weigh_strips(values, offset, share, count, width, out);
    for (int i = done; i < width; i++)
        out[i] = 0;
    for (int j = 0; j < count && done < width; j++)
        for (int i = done; i < width; i++)
            out[i] = __builtin_fmaf(share[j], values[offset[j] + (size_t)i], out[i]);
}

/* Widens the committed positions of a chunk, from the first to the last one that a query of the block sees. */
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

/* Sets a query's offsets; what they count from. */
static const float *panel_offsets(struct panel *panel, struct query *query)
{
    const size_t width = (size_t)panel->width;
    const int own = query->prefix - query->start, first = panel->chunk * ATTENTION_CHUNK;   /* own: how many are committed */
    const bool wide = panel->format != CACHE_F32;
    for (int j = 0; j < query->visible && j < own; j++)
        query->offset[j] = (size_t)(query->start + j - (wide ? first : 0)) * width;
    for (int j = own > 0 ? own : 0; j < query->visible; j++) {
        size_t slot = (size_t)query->path[j - own], place = (size_t)(ATTENTION_CHUNK + query->start + j - first) * width;
        if (wide && panel->row != query->row)
            widen(panel->format, panel->cache + slot * width * 2, width, panel->wide + place);
        query->offset[j] = wide ? place : slot * width;
    }
    panel->row = query->row;
    return wide ? panel->wide : (const float *)(const void *)panel->cache;
}

/* A chunk's first half: shares from keys, their maximum and sum. */
static void query_keys(struct query *query, struct panel *keys, float scale)
{
    const float *k = panel_offsets(keys, query);
    float *share = query->share, lane[16], most;
    int j = 0, width = keys->width;
    for (; j + 4 <= query->visible; j += 4)
        lanes_dot4(query->q, k, query->offset + j, width, share + j);
    for (; j < query->visible; j++)
        share[j] = lanes_dot(query->q, k + query->offset[j], width);
    for (; j < ATTENTION_CHUNK; j++)
        share[j] = -INFINITY;                           /* exp of it is 0, and adding 0 changes no sum of such numbers */
    for (j = 0; j < query->visible; j++)
        share[j] *= scale;
    for (int i = 0; i < 16; i++)
        lane[i] = share[i];
    for (j = 16; j < ATTENTION_CHUNK; j += 16)
        for (int i = 0; i < 16; i++)
            lane[i] = share[j + i] > lane[i] ? share[j + i] : lane[i];
    most = lane[0];
    for (int i = 1; i < 16; i++)
        most = lane[i] > most ? lane[i] : most;
    for (j = 0; j < ATTENTION_CHUNK; j++)
        share[j] = plain_exp(share[j] - most);
    for (int i = 0; i < 16; i++)
        lane[i] = ((share[i] + share[i + 16]) + share[i + 32]) + share[i + 48];
    query->chunk_most = most;
    query->chunk_sum = lanes_sum(lane);
}

/* Its second half: the weighted values, joined to the chunks before. */
static void query_values(struct query *query, struct panel *values)
{
    const float *v = panel_offsets(values, query);
    float value[ATTENTION_HEAD_DIM_MAX];
    int width = values->width;
    if (!query->begun) {
        query->begun = 1;
        query->most = query->chunk_most;
        query->sum = query->chunk_sum;
        weigh(v, query->offset, query->share, query->visible, width, query->value);
        return;
    }
    weigh(v, query->offset, query->share, query->visible, width, value);
    float most = query->most > query->chunk_most ? query->most : query->chunk_most;
    float before = plain_exp(query->most - most), now = plain_exp(query->chunk_most - most);
    query->most = most;
    query->sum = __builtin_fmaf(query->sum, before, query->chunk_sum * now);
    for (int i = 0; i < width; i++)
        query->value[i] = __builtin_fmaf(query->value[i], before, value[i] * now);
}

/* The sink takes its share, and what is left is given out. */
static void query_end(struct query *query, int width)
{
    float before = 1;
    if (query->sink) {
        float most = query->most > *query->sink ? query->most : *query->sink;
        before = plain_exp(query->most - most);
        query->sum = __builtin_fmaf(query->sum, before, plain_exp(*query->sink - most));
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
    query->first = a->window && query->length > a->window ? query->length - a->window : 0;
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

/* A block at work: about 1.1 MiB of a thread's stack, of which it touches what its widths need. */
struct block {
    struct query query[BLOCK_QUERIES];
    struct panel keys, values;
};

/* Values will be wanted as soon as the keys have been read. */
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
        for (int i = 0; i < count; i++)
            if (b->query[i].visible)
                query_keys(&b->query[i], &b->keys, a->scale);
        panel_open(&b->values, chunk, low, committed);
        for (int i = 0; i < count; i++)
            if (b->query[i].visible)
                query_values(&b->query[i], &b->values);
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
    work_give_evenly(&w.work, work_members(queue, bytes), (uint32_t)(args->kv_heads * w.blocks));
    work_run(queue, bytes, attend, &w);
}
