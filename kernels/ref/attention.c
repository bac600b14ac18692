#include <math.h>

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

static int64_t cache_floats(int kv_heads, int capacity, int head_dim) { return (int64_t)kv_heads * capacity * head_dim; }

/* Where a slot of a head lies in a cache. */
static int64_t place(int head, int slot, int capacity, int head_dim)
{
    return ((int64_t)head * capacity + slot) * head_dim;
}

void ref_kv_write(struct queue *queue, const struct kv_write_args *a)
{
    int shared_width = a->shared_width, own = a->head_dim - shared_width;
    const float *in_k = ref_floats(queue, a->in_k, ref_span(a->rows, a->stride, (int64_t)a->kv_heads * own));
    const float *in_v = ref_floats(queue, a->in_v, ref_span(a->rows, a->stride, (int64_t)a->kv_heads * a->value_dim));
    const float *shared = shared_width ? ref_floats(queue, a->shared, ref_span(a->rows, a->shared_stride, shared_width)) : in_k;
    float *k = ref_floats(queue, a->k, cache_floats(a->kv_heads, a->capacity, a->head_dim));
    float *v = ref_floats(queue, a->v, cache_floats(a->kv_heads, a->capacity, a->value_dim));
    const int32_t *slot = ref_integers(queue, a->slot, a->rows);
    for (int r = 0; r < a->rows; r++)
        for (int h = 0; h < a->kv_heads; h++) {
            int64_t key = place(h, slot[r], a->capacity, a->head_dim), value = place(h, slot[r], a->capacity, a->value_dim);
            for (int i = 0; i < shared_width; i++)
                k[key + i] = shared[(int64_t)r * a->shared_stride + i];
            for (int i = 0; i < own; i++)
                k[key + shared_width + i] = in_k[(int64_t)r * a->stride + (int64_t)h * own + i];
            for (int i = 0; i < a->value_dim; i++)
                v[value + i] = in_v[(int64_t)r * a->stride + (int64_t)h * a->value_dim + i];
        }
}

void ref_kv_move(struct queue *queue, const struct kv_move_args *a)
{
    float *k = ref_floats(queue, a->k, cache_floats(a->kv_heads, a->capacity, a->head_dim));
    float *v = ref_floats(queue, a->v, cache_floats(a->kv_heads, a->capacity, a->value_dim));
    const int32_t *from = ref_integers(queue, a->from, a->count), *to = ref_integers(queue, a->to, a->count);
    for (int i = 0; i < a->count; i++)
        for (int h = 0; h < a->kv_heads; h++) {
            for (int j = 0; j < a->head_dim; j++)
                k[place(h, to[i], a->capacity, a->head_dim) + j] = k[place(h, from[i], a->capacity, a->head_dim) + j];
            for (int j = 0; j < a->value_dim; j++)
                v[place(h, to[i], a->capacity, a->value_dim) + j] = v[place(h, from[i], a->capacity, a->value_dim) + j];
        }
}

/* What one query sees. */
struct view {
    const int32_t *path;
    int prefix, length;             /* length: prefix and path together */
};

static int view_slot(const struct view *view, int j) { return j < view->prefix ? j : view->path[j - view->prefix]; }

static double view_score(const struct attention_args *a, const struct view *view, int j, const float *q, const float *k)
{
    const float *key = k + (int64_t)view_slot(view, j) * a->head_dim;
    double dot = 0;
    for (int i = 0; i < a->head_dim; i++)
        dot += (double)q[i] * key[i];
    return dot * (double)a->scale;
}

/* One head of one row; k and v are the caches of its kv head. */
static void attend(const struct attention_args *a, const struct view *view, const float *q, const float *k, const float *v,
                   const float *sink, float *out)
{
    int first = a->window && view->length > a->window ? view->length - a->window : 0;
    double sum[ATTENTION_HEAD_DIM_MAX] = {0}, total = 0, most = sink ? (double)*sink : -INFINITY;
    for (int j = first; j < view->length; j++)
        most = fmax(most, view_score(a, view, j, q, k));
    if (sink)
        total = exp((double)*sink - most);
    for (int j = first; j < view->length; j++) {
        double share = exp(view_score(a, view, j, q, k) - most);
        const float *value = v + (int64_t)view_slot(view, j) * a->value_dim;
        total += share;
        for (int i = 0; i < a->value_dim; i++)
            sum[i] += share * value[i];
    }
    for (int i = 0; i < a->value_dim; i++)
        out[i] = (float)(sum[i] / total);
}

void ref_attention(struct queue *queue, const struct attention_args *a)
{
    int64_t used = (int64_t)a->heads * a->value_dim;
    const float *q = ref_floats(queue, a->q, ref_span(a->rows, a->stride, (int64_t)a->heads * a->head_dim));
    const float *k = ref_floats(queue, a->k, cache_floats(a->kv_heads, a->capacity, a->head_dim));
    const float *v = ref_floats(queue, a->v, cache_floats(a->kv_heads, a->capacity, a->value_dim));
    const float *sink = a->sink.address ? ref_floats(queue, a->sink, a->heads) : NULL;
    const int32_t *prefix = ref_integers(queue, a->prefix, a->rows);
    const int32_t *start = ref_integers(queue, a->path_start, (int64_t)a->rows + 1);
    const int32_t *path = start[a->rows] > 0 ? ref_integers(queue, a->path, start[a->rows]) : start;
    float *out = ref_floats(queue, a->out, a->rows * used);
    for (int r = 0; r < a->rows; r++) {
        struct view view = {path + start[r], prefix[r], prefix[r] + start[r + 1] - start[r]};
        for (int h = 0; h < a->heads; h++) {
            int kv_head = h * a->kv_heads / a->heads;
            attend(a, &view, q + (int64_t)r * a->stride + (int64_t)h * a->head_dim,
                   k + place(kv_head, 0, a->capacity, a->head_dim), v + place(kv_head, 0, a->capacity, a->value_dim),
                   sink ? sink + h : NULL, out + r * used + (int64_t)h * a->value_dim);
        }
    }
}
