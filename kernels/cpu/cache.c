/* Rotary positions, and writing and moving in the KV cache. */
#include <string.h>

#include "common/base/float.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/work.h"

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

/* Returns the address of a slot of a head in a cache. */
static unsigned char *head_address(struct buffer cache, enum cache_format format, size_t head, int32_t slot, int capacity,
                                   int width)
{
    return (unsigned char *)work_pointer(cache) + (head * (size_t)capacity + (size_t)slot) * (size_t)width * cache_size(format);
}

/* Converts `count` floats to the cache's format and stores them. Returns the address after them. */
static unsigned char *narrow(enum cache_format format, const float *from, size_t count, unsigned char *to)
{
    uint16_t *half = (uint16_t *)(void *)to;
    if (format == CACHE_F32)
        memcpy(to, from, count * sizeof(float));
    else if (format == CACHE_BF16)
        for (size_t i = 0; i < count; i++)
            half[i] = f32_to_bf16(from[i]);
    else
        for (size_t i = 0; i < count; i++)
            half[i] = f32_to_f16(from[i] > 65504 ? 65504 : from[i] < -65504 ? -65504 : from[i]);
    return to + count * cache_size(format);
}

static void kv_write_heads(void *argument, int member, int members)
{
    const struct kv_write_args *a = argument;
    const int32_t *slot = work_pointer(a->slot);
    const float *shared = a->shared_width ? work_pointer(a->shared) : NULL, *in_k = work_pointer(a->in_k);
    const float *in_v = work_pointer(a->in_v);
    size_t begin, end, width = (size_t)a->shared_width, own = (size_t)a->head_dim - width, wide = (size_t)a->value_dim;
    thread_pool_part((size_t)a->kv_heads, member, members, &begin, &end);
    for (size_t r = 0; r < (size_t)a->rows; r++)
        for (size_t h = begin; h < end; h++) {
            unsigned char *k = head_address(a->k, a->format, h, slot[r], a->capacity, a->head_dim);
            if (shared)
                k = narrow(a->format, shared + r * (size_t)a->shared_stride, width, k);
            narrow(a->format, in_k + r * (size_t)a->stride + h * own, own, k);
            narrow(a->format, in_v + r * (size_t)a->stride + h * wide, wide,
                   head_address(a->v, a->format, h, slot[r], a->capacity, a->value_dim));
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
    size_t begin, end, size = cache_size(a->format);
    thread_pool_part((size_t)a->kv_heads, member, members, &begin, &end);
    for (size_t h = begin; h < end; h++)
        for (int i = 0; i < a->count; i++) {
            if (from[i] == to[i])
                continue;
            memcpy(head_address(a->k, a->format, h, to[i], a->capacity, a->head_dim),
                   head_address(a->k, a->format, h, from[i], a->capacity, a->head_dim), (size_t)a->head_dim * size);
            memcpy(head_address(a->v, a->format, h, to[i], a->capacity, a->value_dim),
                   head_address(a->v, a->format, h, from[i], a->capacity, a->value_dim), (size_t)a->value_dim * size);
        }
}

void cpu_kv_move(struct queue *queue, const struct kv_move_args *args)
{
    struct kv_move_args copy = *args;
    size_t numbers = (size_t)args->count * (size_t)args->kv_heads * (size_t)(args->head_dim + args->value_dim);
    work_run(queue, numbers * cache_size(args->format), kv_move_heads, &copy);
}
