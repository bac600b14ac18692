/* A row is one task. The k-th largest score is found by counting: scores become integers of the same order, and each of four
 * rounds counts the values of eight bits among the scores that are still candidates. */
#include "kernels/index.h"

#include <string.h>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/widen.h"
#include "kernels/cpu/work.h"

/* Converts a score to an integer of the same order; a NaN becomes the smallest. */
static uint32_t order_of(float score)
{
    uint32_t bits;
    score += 0.0f;                                              /* -0 becomes 0 */
    memcpy(&bits, &score, sizeof bits);
    if (score != score)
        return 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Returns the `rank`-th largest of the integers; *more becomes the number of larger ones. */
static uint32_t ranked(const float *score, int count, int rank, int *more)
{
    uint32_t found = 0, mask = 0;
    *more = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int of[256] = {0}, byte = 255;
        for (int j = 0; j < count; j++) {
            const uint32_t order = order_of(score[j]);
            of[order >> shift & 255] += (order & mask) == found;
        }
        while (*more + of[byte] < rank)
            *more += of[byte--];
        found |= (uint32_t)byte << shift;
        mask |= 255u << shift;
    }
    return found;
}

static void score_row(const struct index_args *a, size_t r, int length, float *score)
{
    const int32_t *prefix = work_pointer(a->prefix), *start = work_pointer(a->path_start), *path = work_pointer(a->path);
    const float *q = (const float *)work_pointer(a->q) + r * (size_t)a->q_stride;
    const float *weight = (const float *)work_pointer(a->weight) + r * (size_t)a->heads;
    const unsigned char *keys = work_pointer(a->k);
    float key[ATTENTION_HEAD_DIM_MAX];
    for (int j = 0; j < length; j++) {
        const int slot = j < prefix[r] ? j : path[start[r] + j - prefix[r]];
        float sum = 0;
        widen(a->format, keys + (size_t)slot * (size_t)a->key_stride * cache_size(a->format), (size_t)a->dim, key);
        for (int h = 0; h < a->heads; h++) {
            const float dot = lanes_dot(q + (size_t)h * (size_t)a->dim, key, a->dim) * a->scale;
            sum = __builtin_fmaf(weight[h], dot > 0 ? dot : 0, sum);
        }
        score[j] = sum;
    }
}

static void choose_row(const struct index_args *a, size_t r)
{
    const int32_t *prefix = work_pointer(a->prefix), *start = work_pointer(a->path_start), *path = work_pointer(a->path);
    const int length = prefix[r] + start[r + 1] - start[r];
    float *score = (float *)work_pointer(a->score) + r * (size_t)a->longest;
    int32_t *chosen = (int32_t *)work_pointer(a->chosen) + ((const int32_t *)work_pointer(a->chosen_start))[r];
    const bool all = length <= a->top_k;
    uint32_t limit = 0;
    int more = 0;
    if (!all) {
        score_row(a, r, length, score);
        limit = ranked(score, length, a->top_k, &more);
    }
    for (int j = 0, equal = a->top_k - more; j < length; j++) {
        const uint32_t order = all ? 1 : order_of(score[j]);
        if (order < limit || (!all && order == limit && equal-- <= 0))
            continue;
        *chosen++ = j < prefix[r] ? j : path[start[r] + j - prefix[r]];
    }
}

static void choose_rows(void *argument, int member, int members)
{
    const struct index_args *a = argument;
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++)
        choose_row(a, r);
}

void cpu_index(struct queue *queue, const struct index_args *args)
{
    const int32_t *prefix = work_pointer(args->prefix), *start = work_pointer(args->path_start);
    int32_t *chosen_start = work_pointer(args->chosen_start), *none = work_pointer(args->chosen_prefix);
    struct index_args copy = *args;
    size_t positions = 0;
    chosen_start[0] = 0;
    for (int r = 0; r < args->rows; r++) {
        const int length = prefix[r] + start[r + 1] - start[r];
        none[r] = 0;
        positions += (size_t)length;
        chosen_start[r + 1] = chosen_start[r] + (length < args->top_k ? length : args->top_k);
    }
    work_run(queue, positions * (size_t)args->heads * (size_t)args->dim * sizeof(float), choose_rows, &copy);
}
