/* kernels/top.h in two steps on the pool. The first processes chunk after chunk, computing maxima and then sums; a chunk is
 * still in the first-level cache for its second reading. The second step processes rows. The k-th largest maximum of the chunks
 * is a floor: no token below it is among the best k. So chunks whose maximum is below the floor are skipped; the others are
 * compared, 16 tokens at a time, with the current limit. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/table.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/math.h"

struct chunk {
    float max, sum;
};

static struct chunk *chunks_of(const struct top_args *a, size_t row)
{
    return (struct chunk *)work_pointer(a->scratch) + row * top_chunks(a->vocab);
}

static const float *logits_of(const struct top_args *a, size_t row)
{
    return (const float *)work_pointer(a->logits) + row * (size_t)row_stride(a->stride, a->vocab);
}

static float chunk_max(const float *restrict x, int count)
{
    float lane[TOP_LANES];
    int whole = count - count % TOP_LANES;
    for (int j = 0; j < TOP_LANES; j++)
        lane[j] = -INFINITY;
    for (int i = 0; i < whole; i += TOP_LANES)
        for (int j = 0; j < TOP_LANES; j++)
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (int i = whole; i < count; i++)
        lane[i - whole] = x[i] > lane[i - whole] ? x[i] : lane[i - whole];
    for (int half = TOP_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] = lane[j + half] > lane[j] ? lane[j + half] : lane[j];
    return lane[0];
}

static float chunk_sum(const float *restrict x, int count, float base)
{
    float lane[TOP_LANES] = {0};
    int whole = count - count % TOP_LANES;
    for (int i = 0; i < whole; i += TOP_LANES)
        for (int j = 0; j < TOP_LANES; j++)
            lane[j] += plain_exp(x[i + j] - base);
    for (int i = whole; i < count; i++)
        lane[i - whole] += plain_exp(x[i] - base);
    for (int half = TOP_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

static void sum_chunks(void *argument, int member, int members)
{
    const struct top_args *a = argument;
    const size_t chunks = top_chunks(a->vocab);
    size_t begin, end;
    thread_pool_part((size_t)a->rows * chunks, member, members, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        int first = (int)(i % chunks) * TOP_CHUNK, left = a->vocab - first, count = left < TOP_CHUNK ? left : TOP_CHUNK;
        const float *x = logits_of(a, i / chunks) + first;
        float max = chunk_max(x, count);
        chunks_of(a, 0)[i] = (struct chunk){max, chunk_sum(x, count, max > -INFINITY ? max : 0)};
    }
}

/* The best tokens so far, in order; `limit` is value[k - 1] once there are k. */
struct best {
    float value[TOP_MAX];
    int id[TOP_MAX];
    int count, k;
};

/* Inserts a value that belongs to the best; ids ascend, so it goes after all equal values. */
static void best_add(struct best *best, float value, int id)
{
    int i = best->count < best->k ? best->count++ : best->k - 1;
    for (; i > 0 && best->value[i - 1] < value; i--) {
        best->value[i] = best->value[i - 1];
        best->id[i] = best->id[i - 1];
    }
    best->value[i] = value;
    best->id[i] = id;
}

/* Returns a value that at least k tokens reach: the k-th largest maximum of the chunks, if there are that many. */
static float floor_of(const struct chunk *chunk, size_t chunks, int k)
{
    struct best best = {.k = k};
    if (chunks < (size_t)k)
        return -INFINITY;
    for (size_t c = 0; c < chunks; c++)
        if (best.count < k || chunk[c].max > best.value[k - 1])
            best_add(&best, chunk[c].max, (int)c);
    return best.value[k - 1];
}

/* Returns whether any of x[0 .. 15] reaches the floor. */
static int any_reaches(const float *x, float floor)
{
    int reached = 0;
    for (int i = 0; i < 16; i++)
        reached |= x[i] >= floor;
    return reached;
}

/* Inserts all tokens of a chunk that belong to the best: until there are k, all that reach the floor; then those above the last
 * of the best. */
static void best_of_chunk(struct best *best, const float *x, int first, int count, float floor)
{
    for (int i = 0; i < count; i++) {
        const float limit = best->count < best->k ? floor : best->value[best->k - 1];
        if (i % 16 == 0 && count - i >= 16 && !any_reaches(x + i, limit)) {
            i += 15;
            continue;
        }
        if (best->count < best->k ? x[i] >= limit : x[i] > limit)
            best_add(best, x[i], first + i);
    }
}

static void choose_row(const struct top_args *a, size_t r)
{
    const struct chunk *chunk = chunks_of(a, r);
    const size_t chunks = top_chunks(a->vocab), k = (size_t)a->k;
    const float *x = logits_of(a, r);
    const int32_t *map = work_pointer(a->map);
    int32_t *token = (int32_t *)work_pointer(a->token) + r * k;
    float *logp = (float *)work_pointer(a->logp) + r * k, max = -INFINITY, sum = 0;
    for (size_t c = 0; c < chunks; c++)
        max = chunk[c].max > max ? chunk[c].max : max;
    for (size_t c = 0; c < chunks; c++)
        sum = __builtin_fmaf(chunk[c].sum, plain_exp(chunk[c].max - max), sum);
    const bool none = isnan(sum);
    const float log_sum = none ? NAN : plain_log(sum);
    if (a->log_sum.address)
        ((float *)work_pointer(a->log_sum))[r] = none ? NAN : max + log_sum;
    struct best best = {.k = a->k};
    const float floor = none ? INFINITY : floor_of(chunk, chunks, a->k);
    for (size_t c = 0; c < chunks && !none; c++)
        if (best.count < best.k ? chunk[c].max >= floor : chunk[c].max > best.value[k - 1]) {
            int first = (int)c * TOP_CHUNK, left = a->vocab - first;
            best_of_chunk(&best, x + first, first, left < TOP_CHUNK ? left : TOP_CHUNK, floor);
        }
    for (size_t i = 0; i < k; i++) {
        token[i] = none ? -1 : map ? map[best.id[i]] : best.id[i];
        logp[i] = none ? NAN : best.value[i] - max - log_sum;
    }
}

static void choose_rows(void *argument, int member, int members)
{
    const struct top_args *a = argument;
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++)
        choose_row(a, r);
}

void cpu_top(struct queue *queue, const struct top_args *args)
{
    struct top_args copy = *args;
    const size_t bytes = (size_t)args->rows * (size_t)args->vocab * sizeof(float);
    work_run(queue, 4 * bytes, sum_chunks, &copy);
    work_run(queue, bytes, choose_rows, &copy);
}
