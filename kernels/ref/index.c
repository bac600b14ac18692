#include "kernels/index.h"

#include <math.h>

#include "common/base/float.h"
#include "kernels/ref/ref_internal.h"

static float key_at(enum cache_format format, const void *keys, int64_t at)
{
    if (format == CACHE_F32)
        return ((const float *)keys)[at];
    const uint16_t half = ((const uint16_t *)keys)[at];
    return format == CACHE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static float score_of(const struct index_args *a, const float *q, const float *weight, const void *keys, int slot)
{
    double sum = 0;
    for (int h = 0; h < a->heads; h++) {
        double dot = 0;
        for (int i = 0; i < a->dim; i++)
            dot += (double)q[h * a->dim + i] * key_at(a->format, keys, (int64_t)slot * a->key_stride + i);
        sum += (double)weight[h] * fmax(0, dot * (double)a->scale);
    }
    return (float)sum;
}

/* Returns whether position j ranks before position i. */
static int before(const float *score, int j, int i)
{
    if (isnan(score[j]) || isnan(score[i]))
        return isnan(score[j]) && isnan(score[i]) ? j < i : isnan(score[i]);
    return score[j] > score[i] || (score[j] == score[i] && j < i);
}

void ref_index(struct queue *queue, const struct index_args *a)
{
    if (!a->rows)
        return;
    const float *q = ref_floats(queue, a->q, ref_span(a->rows, a->q_stride, (int64_t)a->heads * a->dim));
    const float *weight = ref_floats(queue, a->weight, (int64_t)a->rows * a->heads);
    const void *keys = ref_bytes(queue, a->k, (uint64_t)a->capacity * (uint64_t)a->key_stride * cache_size(a->format));
    const int32_t *prefix = ref_integers(queue, a->prefix, a->rows), *start = ref_integers(queue, a->path_start,
                                                                                           (int64_t)a->rows + 1);
    const int32_t *path = start[a->rows] > 0 ? ref_integers(queue, a->path, start[a->rows]) : start;
    float *score = ref_floats(queue, a->score, (int64_t)a->rows * a->longest);
    int32_t *chosen = ref_integers(queue, a->chosen, (int64_t)a->rows * a->top_k);
    int32_t *begin = ref_integers(queue, a->chosen_start, (int64_t)a->rows + 1);
    int32_t *none = ref_integers(queue, a->chosen_prefix, a->rows), count = 0;
    for (int r = 0; r < a->rows; r++) {
        const int length = prefix[r] + start[r + 1] - start[r];
        float *own = score + (int64_t)r * a->longest;
        begin[r] = count;
        none[r] = 0;
        for (int j = 0; j < length; j++) {
            const int slot = j < prefix[r] ? j : path[start[r] + j - prefix[r]];
            own[j] = score_of(a, q + (int64_t)r * a->q_stride, weight + (int64_t)r * a->heads, keys, slot);
        }
        for (int j = 0; j < length; j++) {
            int ahead = 0;
            for (int i = 0; i < length; i++)
                ahead += before(own, i, j);
            if (ahead < a->top_k)
                chosen[count++] = j < prefix[r] ? j : path[start[r] + j - prefix[r]];
        }
    }
    begin[a->rows] = count;
}
