/* Rotation by position, and writing and moving rows in the KV cache. */
#include <string.h>

#include "common/base/float.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/quantise.h"

static void rope_rows(void *argument, int member, int members)
{
    const struct rope_args *a = argument;
    const int32_t *position = work_pointer(a->position);
    size_t begin, end, half = (size_t)a->rotary / 2;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *restrict turn = (const float *)work_pointer(a->table) + (size_t)position[r] * half * 2;
        for (size_t h = 0; h < (size_t)a->heads; h++) {
            float *restrict low = (float *)work_pointer(a->x) + r * (size_t)a->stride + h * (size_t)a->head_dim;
            float *restrict high = low + half;
            for (size_t i = 0; i < half; i++) {
                float x = low[i], y = high[i], cosine = turn[2 * i], sine = turn[2 * i + 1];
                low[i] = x * cosine - y * sine;
                high[i] = y * cosine + x * sine;
            }
        }
    }
}

void cpu_rope(struct queue *queue, const struct rope_args *args)
{
    struct rope_args copy = *args;
    work_run(queue, (size_t)args->rows * (size_t)args->heads * (size_t)args->head_dim * sizeof(float), rope_rows, &copy);
}

/* Rows of a cache. */
struct rows {
    enum cache_format format;
    unsigned char *data;
    float *scale;                   /* q8 */
    size_t width;
};

static struct rows rows_of(struct buffer cache, enum cache_format format, int kv_heads, int capacity, int width)
{
    unsigned char *data = work_pointer(cache);
    const size_t scales = cache_scales(format, (size_t)kv_heads * (size_t)capacity, (size_t)width);
    return (struct rows){format, data, (float *)(void *)(data + scales), (size_t)width};
}

/* Converts a row to the cache's format and stores it. */
static void rows_put(const struct rows *rows, size_t row, const float *from)
{
    unsigned char *to = rows->data + row * rows->width * cache_size(rows->format);
    uint16_t *half = (uint16_t *)(void *)to;
    if (rows->format == CACHE_F32)
        memcpy(to, from, rows->width * sizeof(float));
    else if (rows->format == CACHE_Q8)
        rows->scale[row] = plain_quantise_row(from, (int)rows->width, (int8_t *)to);
    else if (rows->format == CACHE_BF16)
        for (size_t i = 0; i < rows->width; i++)
            half[i] = f32_to_bf16(from[i]);
    else
        for (size_t i = 0; i < rows->width; i++)
            half[i] = f32_to_f16(from[i] > 65504 ? 65504 : from[i] < -65504 ? -65504 : from[i]);
}

static void rows_move(const struct rows *rows, size_t to, size_t from)
{
    const size_t bytes = rows->width * cache_size(rows->format);
    memcpy(rows->data + to * bytes, rows->data + from * bytes, bytes);
    if (rows->format == CACHE_Q8)
        rows->scale[to] = rows->scale[from];
}

static void kv_write_heads(void *argument, int member, int members)
{
    const struct kv_write_args *a = argument;
    const int32_t *slot = work_pointer(a->slot);
    const float *shared = a->shared_width ? work_pointer(a->shared) : NULL, *in_k = work_pointer(a->in_k);
    const float *in_v = work_pointer(a->in_v);
    const struct rows k = rows_of(a->k, a->format, a->kv_heads, a->capacity, a->head_dim);
    const struct rows v = rows_of(a->v, a->format, a->kv_heads, a->capacity, a->value_dim);
    size_t begin, end, width = (size_t)a->shared_width, own = (size_t)a->head_dim - width, wide = (size_t)a->value_dim;
    thread_pool_part((size_t)a->kv_heads, member, members, &begin, &end);
    for (size_t r = 0; r < (size_t)a->rows; r++)
        for (size_t h = begin; h < end; h++) {
            const size_t row = h * (size_t)a->capacity + (size_t)slot[r];
            const float *key = in_k + r * (size_t)a->stride + h * own;
            float whole[ATTENTION_HEAD_DIM_MAX];
            if (shared) {
                memcpy(whole, shared + r * (size_t)a->shared_stride, width * sizeof *whole);
                memcpy(whole + width, key, own * sizeof *whole);
                key = whole;
            }
            rows_put(&k, row, key);
            rows_put(&v, row, in_v + r * (size_t)a->stride + h * wide);
        }
}

void cpu_kv_write(struct queue *queue, const struct kv_write_args *args)
{
    struct kv_write_args copy = *args;
    size_t floats = (size_t)args->rows * (size_t)args->kv_heads * (size_t)(args->head_dim + args->value_dim);
    work_run(queue, floats * sizeof(float), kv_write_heads, &copy);
}

static void kv_move_heads(void *argument, int member, int members)
{
    const struct kv_move_args *a = argument;
    const int32_t *from = work_pointer(a->from), *to = work_pointer(a->to);
    const struct rows k = rows_of(a->k, a->format, a->kv_heads, a->capacity, a->head_dim);
    const struct rows v = rows_of(a->v, a->format, a->kv_heads, a->capacity, a->value_dim);
    size_t begin, end;
    thread_pool_part((size_t)a->kv_heads, member, members, &begin, &end);
    for (size_t h = begin; h < end; h++)
        for (int i = 0; i < a->count; i++) {
            const size_t first = h * (size_t)a->capacity;
            if (from[i] == to[i])
                continue;
            rows_move(&k, first + (size_t)to[i], first + (size_t)from[i]);
            rows_move(&v, first + (size_t)to[i], first + (size_t)from[i]);
        }
}

void cpu_kv_move(struct queue *queue, const struct kv_move_args *args)
{
    struct kv_move_args copy = *args;
    size_t numbers = (size_t)args->count * (size_t)args->kv_heads * (size_t)(args->head_dim + args->value_dim);
    work_run(queue, numbers * cache_size(args->format), kv_move_heads, &copy);
}
