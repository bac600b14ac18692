/* Rotary positions and the KV cache's own operations. */
#include <string.h>

#include "kernels/cpu/table.h"
#include "kernels/cpu/work.h"

static void rope_rows(void *argument, int member, int members)
{
    const struct rope_args *a = argument;
    const int32_t *position = work_pointer(a->position);
    size_t begin, end, half = (size_t)a->rotary / 2;
    team_part((size_t)a->rows, member, members, &begin, &end);
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

/* The start of a slot of a head, in floats. */
static size_t place(size_t head, int32_t slot, int capacity, int head_dim)
{
    return (head * (size_t)capacity + (size_t)slot) * (size_t)head_dim;
}

static void kv_write_heads(void *argument, int member, int members)
{
    const struct kv_write_args *a = argument;
    const int32_t *slot = work_pointer(a->slot);
    size_t begin, end, shared = (size_t)a->shared_width, own = (size_t)a->head_dim - shared, width = (size_t)a->value_dim;
    team_part((size_t)a->kv_heads, member, members, &begin, &end);
    for (size_t r = 0; r < (size_t)a->rows; r++)
        for (size_t h = begin; h < end; h++) {
            float *k = (float *)work_pointer(a->k) + place(h, slot[r], a->capacity, a->head_dim);
            float *v = (float *)work_pointer(a->v) + place(h, slot[r], a->capacity, a->value_dim);
            if (shared)
                memcpy(k, (const float *)work_pointer(a->shared) + r * (size_t)a->shared_stride, shared * sizeof(float));
            memcpy(k + shared, (const float *)work_pointer(a->in_k) + r * (size_t)a->stride + h * own, own * sizeof(float));
            memcpy(v, (const float *)work_pointer(a->in_v) + r * (size_t)a->stride + h * width, width * sizeof(float));
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
    float *k = work_pointer(a->k), *v = work_pointer(a->v);
    size_t begin, end;
    team_part((size_t)a->kv_heads, member, members, &begin, &end);
    for (size_t h = begin; h < end; h++)
        for (int i = 0; i < a->count; i++) {
            if (from[i] == to[i])
                continue;
            memcpy(k + place(h, to[i], a->capacity, a->head_dim), k + place(h, from[i], a->capacity, a->head_dim),
                   (size_t)a->head_dim * sizeof(float));
            memcpy(v + place(h, to[i], a->capacity, a->value_dim), v + place(h, from[i], a->capacity, a->value_dim),
                   (size_t)a->value_dim * sizeof(float));
        }
}

void cpu_kv_move(struct queue *queue, const struct kv_move_args *args)
{
    struct kv_move_args copy = *args;
    size_t floats = (size_t)args->count * (size_t)args->kv_heads * (size_t)(args->head_dim + args->value_dim);
    work_run(queue, floats * sizeof(float), kv_move_heads, &copy);
}
