#include <math.h>
#include <string.h>

#include "common/base/float.h"
#include "kernels/plain/quantise.h"
#include "kernels/ref/ref_internal.h"

void ref_rope(struct queue *queue, const struct rope_args *a)
{
    int half = a->rotary / 2;
    float *x = ref_floats(queue, a->x, ref_span(a->rows, a->stride, (int64_t)a->heads * a->head_dim));
    const int32_t *position = ref_integers(queue, a->position, a->rows);
    int last = 0;
    for (int r = 0; r < a->rows; r++)
        last = position[r] > last ? position[r] : last;
    const float *table = ref_floats(queue, a->table, ((int64_t)last + 1) * half * 2);
    for (int r = 0; r < a->rows; r++)
        for (int h = 0; h < a->heads; h++) {
            float *head = x + (int64_t)r * a->stride + (int64_t)h * a->head_dim;
            const float *turn = table + (int64_t)position[r] * half * 2;
            for (int i = 0; i < half; i++) {
                double cosine = turn[2 * i], sine = turn[2 * i + 1], low = head[i], high = head[i + half];
                head[i] = (float)(low * cosine - high * sine);
                head[i + half] = (float)(high * cosine + low * sine);
            }
        }
}

/* Rows of a cache. */
struct rows {
    enum cache_format format;
    void *data;
    float *scale;                   /* q8 */
    int width;
};

static struct rows rows_of(struct queue *queue, struct buffer cache, enum cache_format format, int kv_heads, int capacity,
                           int width)
{
    const size_t count = (size_t)kv_heads * (size_t)capacity, scales = cache_scales(format, count, (size_t)width);
    void *data = ref_bytes(queue, cache, cache_rows_bytes(format, count, (size_t)width));
    return (struct rows){format, data, format == CACHE_Q8 ? (float *)((char *)data + scales) : NULL, width};
}

/* Not for q8. */
static double rows_read(const struct rows *rows, int64_t row, int i)
{
    const int64_t at = row * rows->width + i;
    if (rows->format == CACHE_F32)
        return ((const float *)rows->data)[at];
    uint16_t half = ((const uint16_t *)rows->data)[at];
    return rows->format == CACHE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static void rows_put(const struct rows *rows, int64_t row, const float *values)
{
    if (rows->format == CACHE_Q8)
        rows->scale[row] = plain_quantise_row(values, rows->width, (int8_t *)rows->data + row * rows->width);
    for (int i = 0; i < rows->width && rows->format != CACHE_Q8; i++) {
        const int64_t at = row * rows->width + i;
        const float value = values[i];
        if (rows->format == CACHE_F32)
            ((float *)rows->data)[at] = value;
        else if (rows->format == CACHE_BF16)
            ((uint16_t *)rows->data)[at] = f32_to_bf16(value);
        else
            ((uint16_t *)rows->data)[at] = f32_to_f16(value > 65504 ? 65504 : value < -65504 ? -65504 : value);
    }
}

static void rows_move(const struct rows *rows, int64_t to, int64_t from)
{
    const size_t bytes = (size_t)rows->width * cache_size(rows->format);
    memmove((char *)rows->data + (size_t)to * bytes, (const char *)rows->data + (size_t)from * bytes, bytes);
    if (rows->scale)
        rows->scale[to] = rows->scale[from];
}

void ref_kv_write(struct queue *queue, const struct kv_write_args *a)
{
    int shared_width = a->shared_width, own = a->head_dim - shared_width;
    const float *in_k = ref_floats(queue, a->in_k, ref_span(a->rows, a->stride, (int64_t)a->kv_heads * own));
    const float *in_v = ref_floats(queue, a->in_v, ref_span(a->rows, a->stride, (int64_t)a->kv_heads * a->value_dim));
    const float *shared = shared_width ? ref_floats(queue, a->shared, ref_span(a->rows, a->shared_stride, shared_width)) : in_k;
    const struct rows k = rows_of(queue, a->k, a->format, a->kv_heads, a->capacity, a->head_dim);
    const struct rows v = rows_of(queue, a->v, a->format, a->kv_heads, a->capacity, a->value_dim);
    const int32_t *slot = ref_integers(queue, a->slot, a->rows);
    for (int r = 0; r < a->rows; r++)
        for (int h = 0; h < a->kv_heads; h++) {
            const int64_t row = (int64_t)h * a->capacity + slot[r];
            float key[ATTENTION_HEAD_DIM_MAX];
            for (int i = 0; i < shared_width; i++)
                key[i] = shared[(int64_t)r * a->shared_stride + i];
            for (int i = 0; i < own; i++)
                key[shared_width + i] = in_k[(int64_t)r * a->stride + (int64_t)h * own + i];
            rows_put(&k, row, key);
            rows_put(&v, row, in_v + (int64_t)r * a->stride + (int64_t)h * a->value_dim);
        }
}

void ref_kv_move(struct queue *queue, const struct kv_move_args *a)
{
    const struct rows k = rows_of(queue, a->k, a->format, a->kv_heads, a->capacity, a->head_dim);
    const struct rows v = rows_of(queue, a->v, a->format, a->kv_heads, a->capacity, a->value_dim);
    const int32_t *from = ref_integers(queue, a->from, a->count), *to = ref_integers(queue, a->to, a->count);
    for (int i = 0; i < a->count; i++)
        for (int64_t h = 0; h < a->kv_heads; h++) {
            rows_move(&k, h * a->capacity + to[i], h * a->capacity + from[i]);
            rows_move(&v, h * a->capacity + to[i], h * a->capacity + from[i]);
        }
}

/* The positions that one query sees. */
struct view {
    const int32_t *path;
    int prefix, length;             /* length: number of positions, prefix and path together */
};

static int view_slot(const struct view *view, int j) { return j < view->prefix ? j : view->path[j - view->prefix]; }

/* One head of one row, and the row at which its kv head begins in the caches. */
struct head {
    const struct attention_args *args;
    const float *q, *sink;
    const struct rows *k, *v;
    int64_t first;
};

static double view_score(const struct head *head, const struct view *view, int j)
{
    const struct attention_args *a = head->args;
    const int64_t key = head->first + view_slot(view, j);
    double dot = 0;
    for (int i = 0; i < a->head_dim; i++)
        dot += (double)head->q[i] * rows_read(head->k, key, i);
    return dot * (double)a->scale;
}

/* Attention over a cache in q8, with the codes that attention.h specifies. Scores and shares are rounded like the host's,
 * because a code could differ otherwise. */
static void attend_codes(const struct head *head, const struct view *view, float *out)
{
    const struct attention_args *a = head->args;
    const int8_t *keys = head->k->data, *values = head->v->data;
    int8_t q[ATTENTION_HEAD_DIM_MAX];
    const float scale = a->scale * plain_quantise_row(head->q, a->head_dim, q);
    double sum[ATTENTION_HEAD_DIM_MAX] = {0}, total = 0, max = -INFINITY;
    for (int j = attention_first(a, view->length), end; j < view->length; j = end) {
        float share[ATTENTION_CHUNK], own = -INFINITY;
        const int begin = j;
        end = (begin / ATTENTION_CHUNK + 1) * ATTENTION_CHUNK;
        end = end < view->length ? end : view->length;
        for (j = begin; j < end; j++) {
            const int64_t row = head->first + view_slot(view, j);
            int32_t dot = 0;
            for (int i = 0; i < a->head_dim; i++)
                dot += q[i] * keys[row * a->head_dim + i];
            share[j - begin] = (float)dot * head->k->scale[row] * scale;
            own = fmaxf(own, share[j - begin]);
        }
        const double joined = fmax(max, own), before = exp(max - joined), now = exp(own - joined);
        total *= before;
        for (j = begin; j < end; j++) {
            const float part = plain_exp(share[j - begin] - own);
            total += now * part;
            share[j - begin] = part * head->v->scale[head->first + view_slot(view, j)];
        }
        const double step = now * plain_quantise_shares(share, end - begin);
        for (int i = 0; i < a->value_dim; i++) {
            sum[i] *= before;
            for (j = begin; j < end; j++)
                sum[i] += step * share[j - begin] * values[(head->first + view_slot(view, j)) * a->value_dim + i];
        }
        max = joined;
    }
    const double all = head->sink ? fmax(max, *head->sink) : max;
    total = total * exp(max - all) + (head->sink ? exp(*head->sink - all) : 0);
    for (int i = 0; i < a->value_dim; i++)
        out[i] = (float)(sum[i] * exp(max - all) / total);
}

static void attend(const struct head *head, const struct view *view, float *out)
{
    const struct attention_args *a = head->args;
    int first = attention_first(a, view->length);
    double sum[ATTENTION_HEAD_DIM_MAX] = {0}, total = 0, max = head->sink ? (double)*head->sink : -INFINITY;
    for (int j = first; j < view->length; j++)
        max = fmax(max, view_score(head, view, j));
    if (head->sink)
        total = exp((double)*head->sink - max);
    for (int j = first; j < view->length; j++) {
        double share = exp(view_score(head, view, j) - max);
        const int64_t value = head->first + view_slot(view, j);
        total += share;
        for (int i = 0; i < a->value_dim; i++)
            sum[i] += share * rows_read(head->v, value, i);
    }
    for (int i = 0; i < a->value_dim; i++)
        out[i] = (float)(sum[i] / total);
}

void ref_attention(struct queue *queue, const struct attention_args *a)
{
    int64_t used = (int64_t)a->heads * a->value_dim;
    const float *q = ref_floats(queue, a->q, ref_span(a->rows, a->stride, (int64_t)a->heads * a->head_dim));
    const struct rows k = rows_of(queue, a->k, a->format, a->kv_heads, a->capacity, a->head_dim);
    const struct rows v = rows_of(queue, a->v, a->format, a->kv_heads, a->capacity, a->value_dim);
    const float *sink = a->sink.address ? ref_floats(queue, a->sink, a->heads) : NULL;
    const int32_t *prefix = ref_integers(queue, a->prefix, a->rows);
    const int32_t *start = ref_integers(queue, a->path_start, (int64_t)a->rows + 1);
    const int32_t *path = start[a->rows] > 0 ? ref_integers(queue, a->path, start[a->rows]) : start;
    float *out = ref_floats(queue, a->out, a->rows * used);
    for (int r = 0; r < a->rows; r++) {
        struct view view = {path + start[r], prefix[r], prefix[r] + start[r + 1] - start[r]};
        for (int h = 0; h < a->heads; h++) {
            const int64_t kv_head = h * a->kv_heads / a->heads;
            const struct head head = {a, q + (int64_t)r * a->stride + (int64_t)h * a->head_dim, sink ? sink + h : NULL, &k, &v,
                                      kv_head * a->capacity};
            (a->format == CACHE_Q8 ? attend_codes : attend)(&head, &view, out + r * used + (int64_t)h * a->value_dim);
        }
    }
}
