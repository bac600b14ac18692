/* kernels/learn.h: smooth, target, judge, total. Memory-bound: of [rows][vocabulary], target and judge read each number twice
 * and write it once.
 *
 * smooth: one block of 256 threads per row, which is read once.
 * target, judge: one block of 1024 threads per row, in two passes. In the first pass each thread keeps the largest of every
 *     1024th number and the sum of exponentials relative to it, four numbers at a time, so that four numbers need only five
 *     exponentials; the second pass computes the outputs. A row of logits is still in the second-level cache then, if the rows
 *     in progress fit: 250 rows of 50,304 are 50 MB. The threads' sums, all scaled to the largest number, are added by halves
 *     within a warp, then warps in their order.
 * total: one block of 256 threads: 256 chains of f64, added as learn_block_sum does (learn.h of this folder), then added to the
 *     previous total. */
#include "kernels/cuda/learn.h"
#include "kernels/cuda/rank.h"

enum { LOGIT_THREADS = 1024, LOGIT_WARPS = LOGIT_THREADS / WARP, LOGIT_EACH = 4 };

__global__ void __launch_bounds__(LEARN_THREADS) learn_smooth_kernel(struct learn_smooth_args s)
{
    SHARED(float, part, LEARN_WARPS);
    const int64_t at = (int64_t)blockIdx.x * s.width;
    const int from = device_pointer<int32_t>(s.target_row)[blockIdx.x];
    const float *x = device_pointer<float>(s.x) + at, *target = device_pointer<float>(s.target) + (int64_t)from * s.width;
    const float weight = device_pointer<float>(s.weight)[blockIdx.x], share = s.scale * weight / (float)s.width;
    float *to = device_pointer<float>(s.gradient_to), sum = 0;
    if (from < 0) {
        if (threadIdx.x == 0)
            device_pointer<double>(s.loss)[blockIdx.x] = 0;
        return;
    }
    for (int i = (int)threadIdx.x; i < s.width; i += LEARN_THREADS) {
        const float d = x[i] - target[i];
        sum += fabsf(d) < 1 ? 0.5f * d * d : fabsf(d) - 0.5f;
        if (to)
            to[at + i] += share * (d > 1 ? 1 : d < -1 ? -1 : d);
    }
    sum = learn_block_sum(sum, part);
    if (threadIdx.x == 0)
        device_pointer<double>(s.loss)[blockIdx.x] = (double)weight * (double)sum / s.width;
}

void cuda_learn_smooth(struct queue *queue, const struct learn_smooth_args *s)
{
    if (s->rows && s->width)
        LAUNCH(learn_smooth_kernel, dim3((unsigned)s->rows), dim3(LEARN_THREADS), 0, cuda_stream(queue), *s);
}

/* ---- rows of logits ---- */

/* The largest of some numbers, and the sum of exp(number - largest). */
struct logit_sum {
    float largest, sum;
};

/* Returns the value subtracted from logits before exp: 0 if all are -infinity. */
DEVICE float logit_shift(float largest) { return largest > -INFINITY ? largest : 0; }

DEVICE void logit_take(struct logit_sum *s, const float (&x)[LOGIT_EACH])
{
    const float largest = fmaxf(s->largest, fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3]))), shift = logit_shift(largest);
    s->sum *= plain_exp(s->largest - shift);
    UNROLL for (int n = 0; n < LOGIT_EACH; n++)
        s->sum += plain_exp(x[n] - shift);
    s->largest = largest;
}

/* Joins the sums of all threads of the block; `part` is shared, [LOGIT_WARPS]. */
DEVICE struct logit_sum logit_join(struct logit_sum own, struct logit_sum *part)
{
    const float largest = warp_max(own.largest), sum = warp_sum(own.sum * plain_exp(own.largest - logit_shift(largest)));
    struct logit_sum all = {-INFINITY, 0};
    if (lane_id() == 0)
        part[warp_id()] = {largest, sum};
    __syncthreads();
    for (int w = 0; w < LOGIT_WARPS; w++)
        all.largest = fmaxf(all.largest, part[w].largest);
    for (int w = 0; w < LOGIT_WARPS; w++)
        all.sum = fmaf(part[w].sum, plain_exp(part[w].largest - logit_shift(all.largest)), all.sum);
    return all;
}

/* Sums a row's numbers, number(i) for i < count, over the block's threads. */
template <typename F> DEVICE struct logit_sum logit_row(int count, struct logit_sum *part, F number)
{
    struct logit_sum own = {-INFINITY, 0};
    for (int first = (int)threadIdx.x; first < count; first += LOGIT_EACH * LOGIT_THREADS) {
        float x[LOGIT_EACH];
        UNROLL for (int n = 0; n < LOGIT_EACH; n++)
            x[n] = first + n * LOGIT_THREADS < count ? number(first + n * LOGIT_THREADS) : -INFINITY;
        logit_take(&own, x);
    }
    return logit_join(own, part);
}

__global__ void __launch_bounds__(LOGIT_THREADS) learn_target_kernel(struct learn_target_args t)
{
    SHARED(struct logit_sum, part, LOGIT_WARPS);
    float *row = device_pointer<float>(t.logits) + (int64_t)blockIdx.x * t.vocab;
    const struct logit_sum all = logit_row(t.vocab, part, [=](int i) { return row[i]; });
    const float shift = logit_shift(all.largest);
    for (int i = (int)threadIdx.x; i < t.vocab; i += LOGIT_THREADS)
        row[i] = plain_exp(row[i] - shift) / all.sum;
}

/* Computes p and counts with a map of words. The first one of the largest logits is found by distinct keys (rank.h), so the
 * order of the maxima does not matter. */
__global__ void __launch_bounds__(LOGIT_THREADS) learn_target_words_kernel(struct learn_target_args t)
{
    SHARED(struct logit_sum, part, LOGIT_WARPS);
    SHARED(rank_type, keys, LOGIT_WARPS);
    SHARED(int, among, LOGIT_WARPS);
    const float *row = device_pointer<float>(t.logits) + (int64_t)blockIdx.x * t.vocab;
    const int32_t *word = device_pointer<int32_t>(t.word);
    float *p = device_pointer<float>(t.p) + (int64_t)blockIdx.x * t.words;
    rank_type best = 0;
    int found = 0;
    for (int v = (int)threadIdx.x; v < t.vocab; v += LOGIT_THREADS) {
        const rank_type key = rank_key(row[v], v);
        best = key > best ? key : best;
    }
    for (int step = WARP / 2; step > 0; step /= 2) {
        const rank_type other = __shfl_xor_sync(FULL_MASK, best, step);
        best = other > best ? other : best;
    }
    if (lane_id() == 0)
        keys[warp_id()] = best;
    __syncthreads();
    for (int w = 0; w < LOGIT_WARPS; w++)
        best = keys[w] > best ? keys[w] : best;
    const struct logit_sum all = logit_row(t.words, part, [=](int w) { return row[word[w]]; });
    const float shift = logit_shift(all.largest);
    for (int w = (int)threadIdx.x; w < t.words; w += LOGIT_THREADS) {
        p[w] = plain_exp(row[word[w]] - shift) / all.sum;
        found |= word[w] == token_of(best);
    }
    found = __any_sync(FULL_MASK, found);
    if (lane_id() == 0)
        among[warp_id()] = found;
    __syncthreads();
    for (int w = 0; threadIdx.x == 0 && w < LOGIT_WARPS; w++)
        found |= among[w];
    if (threadIdx.x == 0)
        device_pointer<int32_t>(t.counts)[blockIdx.x] = found != 0;
}

void cuda_learn_target(struct queue *queue, const struct learn_target_args *t)
{
    if (!t->rows || !t->vocab)
        return;
    if (t->word.address)
        LAUNCH(learn_target_words_kernel, dim3((unsigned)t->rows), dim3(LOGIT_THREADS), 0, cuda_stream(queue), *t);
    else
        LAUNCH(learn_target_kernel, dim3((unsigned)t->rows), dim3(LOGIT_THREADS), 0, cuda_stream(queue), *t);
}

/* LABEL: the loss is computed from label, else from p. */
template <bool LABEL> __global__ void __launch_bounds__(LOGIT_THREADS) learn_judge_kernel(struct learn_judge_args j)
{
    SHARED(struct logit_sum, part, LOGIT_WARPS);
    SHARED(float, sums, LOGIT_WARPS);
    float *q = device_pointer<float>(j.logits) + (int64_t)blockIdx.x * j.words, expected = 0;
    const float *bias = device_pointer<float>(j.bias), weight = device_pointer<float>(j.weight)[blockIdx.x];
    const int label = LABEL ? device_pointer<int32_t>(j.label)[blockIdx.x] : -1;
    const int64_t from = LABEL ? 0 : device_pointer<int32_t>(j.from)[blockIdx.x];
    const float *p = device_pointer<float>(j.p) + from * j.words;
    const struct logit_sum all = logit_row(j.words, part, [&](int w) {
        const float x = bias ? q[w] + bias[w] : q[w];
        expected = LABEL ? (w == label ? x : expected) : fmaf(p[w], x, expected);
        return x;
    });
    expected = warp_sum(expected);
    if (lane_id() == 0)
        sums[warp_id()] = expected;
    __syncthreads();
    const float shift = logit_shift(all.largest), scale = j.scale * weight, factor = scale / all.sum;
    for (int w = (int)threadIdx.x; w < j.words; w += LOGIT_THREADS) {
        const float share = plain_exp((bias ? q[w] + bias[w] : q[w]) - shift) * factor;
        q[w] = LABEL ? (w == label ? share - scale : share) : share - scale * p[w];
    }
    if (threadIdx.x == 0) {
        double wanted = 0;
        for (int w = 0; w < LOGIT_WARPS; w++)
            wanted += (double)sums[w];
        device_pointer<double>(j.loss)[blockIdx.x] =
            (double)weight * ((double)all.largest + (double)learn_log(all.sum) - wanted);
    }
}

void cuda_learn_judge(struct queue *queue, const struct learn_judge_args *j)
{
    if (!j->rows || !j->words)
        return;
    if (j->label.address)
        LAUNCH((learn_judge_kernel<true>), dim3((unsigned)j->rows), dim3(LOGIT_THREADS), 0, cuda_stream(queue), *j);
    else
        LAUNCH((learn_judge_kernel<false>), dim3((unsigned)j->rows), dim3(LOGIT_THREADS), 0, cuda_stream(queue), *j);
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_total_kernel(struct learn_total_args t)
{
    SHARED(double, part, LEARN_WARPS);
    double sum = 0;
    for (int r = (int)threadIdx.x; r < t.rows; r += LEARN_THREADS)
        sum += device_pointer<double>(t.loss)[r];
    sum = learn_block_sum(sum, part);
    if (threadIdx.x == 0)
        *device_pointer<double>(t.sum) += sum;
}

void cuda_learn_total(struct queue *queue, const struct learn_total_args *t)
{
    if (t->rows)
        LAUNCH(learn_total_kernel, dim3(1), dim3(LEARN_THREADS), 0, cuda_stream(queue), *t);
}
