/* The queries of one kv head (every row's heads that share it) are cut into blocks of 8. A block walks the chunks of the
 * cache together, all with its keys and then all with its values, so that these are read from memory once and from the
 * first-level cache after that; each query keeps its own maximum, sum and values, so the block it is in never shows in its
 * result. */
#include <string.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/vector.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/math.h"

enum { BLOCK_QUERIES = 8 };

struct query {
    const float *q;
    float *out;
    const float *sink;                  /* the head's own; NULL: none */
    const int32_t *path;
    int prefix, first, length;          /* visible: logical positions first .. length-1, the first `prefix` being slots */
    int begun;                          /* a chunk has been joined */
    float most, sum;
    float value[ATTENTION_HEAD_DIM_MAX];
    /* of the chunk at work: */
    int visible;
    float chunk_most, chunk_sum, share[ATTENTION_CHUNK];
    size_t slot[ATTENTION_CHUNK];       /* where its positions lie in the cache */
    size_t offset[ATTENTION_CHUNK];     /* the same in floats, of the keys or of the values */
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

static void query_offsets(struct query *query, int width)
{
    for (int j = 0; j < query->visible; j++)
        query->offset[j] = query->slot[j] * (size_t)width;
}

/* A chunk's first half: shares from keys, their maximum and sum. */
static void query_keys(struct query *query, const float *k, int width, float scale)
{
    float *share = query->share, lane[16], most;
    int j = 0;
    query_offsets(query, width);
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
static void query_values(struct query *query, const float *v, int width)
{
    float value[ATTENTION_HEAD_DIM_MAX];
    query_offsets(query, width);
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
    query->visible = end > begin ? end - begin : 0;
    for (int j = begin; j < end; j++)
        query->slot[j - begin] = (size_t)(j < query->prefix ? j : query->path[j - query->prefix]);
}

/* Values will be wanted as soon as the keys have been read. */
static void query_prefetch(const struct query *query, const float *v, int width)
{
    for (int j = 0; j < query->visible; j++)
        for (int line = 0; line < width; line += 16)
            __builtin_prefetch(v + query->slot[j] * (size_t)width + line, 0, 2);
}

static void attend_block(const struct attention *w, int kv_head, int block)
{
    const struct attention_args *a = w->args;
    const size_t slots = (size_t)kv_head * (size_t)a->capacity;
    const float *k = (const float *)work_pointer(a->k) + slots * (size_t)a->head_dim;
    const float *v = (const float *)work_pointer(a->v) + slots * (size_t)a->value_dim;
    const int queries = a->rows * w->group, first = block * BLOCK_QUERIES;
    const int count = queries - first < BLOCK_QUERIES ? queries - first : BLOCK_QUERIES;
    struct query query[BLOCK_QUERIES];
    int low = 0, high = 0;
    for (int i = 0; i < count; i++) {
        query_begin(&query[i], a, (first + i) / w->group, kv_head * w->group + (first + i) % w->group);
        low = i == 0 || query[i].first < low ? query[i].first : low;
        high = query[i].length > high ? query[i].length : high;
    }
    for (int chunk = low / ATTENTION_CHUNK; chunk * ATTENTION_CHUNK < high; chunk++) {
        for (int i = 0; i < count; i++)
            query_chunk(&query[i], chunk);
        query_prefetch(&query[count - 1], v, a->value_dim);
        for (int i = 0; i < count; i++)
            if (query[i].visible)
                query_keys(&query[i], k, a->head_dim, a->scale);
        for (int i = 0; i < count; i++)
            if (query[i].visible)
                query_values(&query[i], v, a->value_dim);
    }
    for (int i = 0; i < count; i++)
        query_end(&query[i], a->value_dim);
}

static void attend(void *argument, int member, int members)
{
    struct attention *w = argument;
    for (int64_t task; (task = work_take(&w->work, member, members)) >= 0;)
        attend_block(w, (int)(task / w->blocks), (int)(task % w->blocks));
}

void cpu_attention(struct queue *queue, const struct attention_args *args)
{
    const int32_t *prefix = work_pointer(args->prefix), *start = work_pointer(args->path_start);
    struct attention w;
    size_t positions = (size_t)start[args->rows];
    for (int r = 0; r < args->rows; r++)
        positions += (size_t)prefix[r];
    size_t bytes = positions * (size_t)args->heads * (size_t)(args->head_dim + args->value_dim) * sizeof(float);
    w.args = args;
    w.group = args->heads / args->kv_heads;
    w.blocks = (args->rows * w.group + BLOCK_QUERIES - 1) / BLOCK_QUERIES;
    work_give_evenly(&w.work, work_members(queue, bytes), (uint32_t)(args->kv_heads * w.blocks));
    work_run(queue, bytes, attend, &w);
}
