/* kernels/learn.h: attention, backward, in three launches that write different parts of the gradients. Each recomputes the
 * probabilities, P = exp(score - log of the row's sum), and dS = P (dP - D) scale, with dP = dO . v and D = dO . O.
 *
 * attend_q: blocks as in attention forward, 32 rows of one head; dq = sum of dS k over tiles of keys, ascending, then over the
 *     row's own keys. Writes D to scratch for the other two launches.
 * attend_kv: a block computes 32 keys of one text and one head of keys, four keys per warp and one query per lane. It iterates
 *     over the heads that share the key, ascending, and for each over tiles of queries from its own on: dk = sum of dS q, dv =
 *     sum of P dO.
 * attend_own: a warp computes one row, one head of keys, and the row's own key of one step: dk and dv over the heads,
 *     ascending.
 *
 * No two blocks add to the same number, and each sum has one order. Fused multiply-adds and shared memory limit the speed
 * about equally. */
#include "kernels/cuda/learn_attention.h"

template <int EACH> __global__ void __launch_bounds__(ATTEND_THREADS, 1) attend_q_kernel(struct learn_attention_args a)
{
    typedef attend_tile<EACH> shape;
    SHARED_DYN(float, q);
    SHARED(float, weights, ATTEND_ROWS * ATTEND_ROWS);
    float *dy = q + shape::FLOATS, *k = dy + shape::FLOATS, *v = k + shape::FLOATS;
    float *weight = weights + warp_id() * ATTEND_OWN * ATTEND_ROWS;
    const struct attend_of p = attend_of_text(a, (int)blockIdx.z, (int)blockIdx.y);
    const int first = (int)blockIdx.x * ATTEND_ROWS, own = warp_id() * ATTEND_OWN, lane = lane_id();
    float sum[ATTEND_OWN][EACH] = {}, whole[ATTEND_OWN] = {}, shift[ATTEND_OWN] = {};
    if (first >= p.rows)
        return;
    attend_load<EACH>(q, attend_q(a, p, first), attend_width(a), p.rows - first, a.head_dim);
    attend_load<EACH>(dy, attend_out(a, a.gradient, p, first), attend_out_width(a), p.rows - first, a.head_dim);
    __syncthreads();
    UNROLL for (int i = 0; i < ATTEND_OWN; i++)
        if (first + own + i < p.rows) {
            whole[i] = attend_dot(dy + (own + i) * shape::PITCH, attend_out(a, a.out, p, first + own + i), a.head_dim);
            shift[i] = *attend_number(a, a.log_sum, p, first + own + i);
            if (lane == 0)
                *attend_number(a, a.scratch, p, first + own + i) = whole[i];
        }
    for (int key = 0; key <= first; key += ATTEND_ROWS) {
        __syncthreads();
        attend_load<EACH>(k, attend_k(a, p, 0, key), attend_width(a), p.rows - key, a.head_dim);
        attend_load<EACH>(v, attend_v(a, p, 0, key), attend_width(a), p.rows - key, a.head_dim);
        __syncthreads();
        float score[ATTEND_OWN], slope[ATTEND_OWN];
        attend_dots<EACH>(score, q + own * shape::PITCH, k);
        attend_dots<EACH>(slope, dy + own * shape::PITCH, v);
        UNROLL for (int i = 0; i < ATTEND_OWN; i++) {
            const int row = first + own + i;
            const bool seen = key + lane <= row && row < p.rows;
            weight[i * ATTEND_ROWS + lane] =
                seen ? plain_exp(score[i] * a.scale - shift[i]) * (slope[i] - whole[i]) * a.scale : 0;
        }
        __syncwarp();
        attend_sums<EACH>(sum, weight, k);
    }
    UNROLL for (int i = 0; i < ATTEND_OWN; i++) {
        const int row = first + own + i;
        if (row >= p.rows)
            continue;
        for (int step = 1; step <= a.steps; step++) {
            const float *key = attend_k(a, p, step, row);
            const float score = attend_dot(q + (own + i) * shape::PITCH, key, a.head_dim) * a.scale;
            const float slope = attend_dot(dy + (own + i) * shape::PITCH, attend_v(a, p, step, row), a.head_dim);
            const float change = plain_exp(score - shift[i]) * (slope - whole[i]) * a.scale;
            UNROLL for (int n = 0; n < EACH; n++)
                if (lane + n * WARP < a.head_dim)
                    sum[i][n] = fmaf(change, key[lane + n * WARP], sum[i][n]);
        }
        float *to = attend_at(a, a.gradient_to[a.steps], p, row, 0);
        UNROLL for (int n = 0; n < EACH; n++)
            if (lane + n * WARP < a.head_dim)
                to[lane + n * WARP] += sum[i][n];
    }
}

template <int EACH> __global__ void __launch_bounds__(ATTEND_THREADS, 1) attend_kv_kernel(struct learn_attention_args a)
{
    typedef attend_tile<EACH> shape;
    SHARED_DYN(float, k);
    SHARED(float, weights, ATTEND_ROWS * ATTEND_ROWS);
    SHARED(float, changes, ATTEND_ROWS * ATTEND_ROWS);
    float *v = k + shape::FLOATS, *q = v + shape::FLOATS, *dy = q + shape::FLOATS;
    float *weight = weights + warp_id() * ATTEND_OWN * ATTEND_ROWS, *change = changes + warp_id() * ATTEND_OWN * ATTEND_ROWS;
    const int group = a.heads / a.kv_heads;
    struct attend_of p = attend_of_text(a, (int)blockIdx.z, (int)blockIdx.y * group);
    const int first = (int)blockIdx.x * ATTEND_ROWS, own = warp_id() * ATTEND_OWN, lane = lane_id();
    float dk[ATTEND_OWN][EACH] = {}, dv[ATTEND_OWN][EACH] = {};
    if (first >= p.rows)
        return;
    attend_load<EACH>(k, attend_k(a, p, 0, first), attend_width(a), p.rows - first, a.head_dim);
    attend_load<EACH>(v, attend_v(a, p, 0, first), attend_width(a), p.rows - first, a.head_dim);
    for (int head = 0; head < group; head++, p.head++)
        for (int query = first; query < p.rows; query += ATTEND_ROWS) {
            __syncthreads();
            attend_load<EACH>(q, attend_q(a, p, query), attend_width(a), p.rows - query, a.head_dim);
            attend_load<EACH>(dy, attend_out(a, a.gradient, p, query), attend_out_width(a), p.rows - query, a.head_dim);
            __syncthreads();
            const bool valid = query + lane < p.rows;
            const float whole = valid ? *attend_number(a, a.scratch, p, query + lane) : 0;
            const float shift = valid ? *attend_number(a, a.log_sum, p, query + lane) : 0;
            float score[ATTEND_OWN], slope[ATTEND_OWN];
            attend_dots<EACH>(score, k + own * shape::PITCH, q);
            attend_dots<EACH>(slope, v + own * shape::PITCH, dy);
            UNROLL for (int i = 0; i < ATTEND_OWN; i++) {
                const bool seen = valid && first + own + i <= query + lane;
                const float share = seen ? plain_exp(score[i] * a.scale - shift) : 0;
                weight[i * ATTEND_ROWS + lane] = share;
                change[i * ATTEND_ROWS + lane] = seen ? share * (slope[i] - whole) * a.scale : 0;
            }
            __syncwarp();
            attend_sums<EACH>(dv, weight, dy);
            attend_sums<EACH>(dk, change, q);
        }
    p.head = (int)blockIdx.y * group;
    UNROLL for (int i = 0; i < ATTEND_OWN; i++) {
        if (first + own + i >= p.rows)
            continue;
        float *to_k = attend_at(a, a.gradient_to[0], p, first + own + i, 1);
        float *to_v = attend_at(a, a.gradient_to[0], p, first + own + i, 2);
        UNROLL for (int n = 0; n < EACH; n++)
            if (lane + n * WARP < a.head_dim) {
                to_k[lane + n * WARP] += dk[i][n];
                to_v[lane + n * WARP] += dv[i][n];
            }
    }
}

__global__ void __launch_bounds__(ATTEND_THREADS) attend_own_kernel(struct learn_attention_args a)
{
    const int row = (int)blockIdx.x * ATTEND_WARPS + warp_id(), step = (int)blockIdx.z + 1, group = a.heads / a.kv_heads;
    struct attend_of p = {0, a.rows, (int)blockIdx.y * group};
    if (row >= a.rows)
        return;
    const float *k = attend_k(a, p, step, row), *v = attend_v(a, p, step, row);
    float *to_k = attend_at(a, a.gradient_to[step], p, row, 1), *to_v = attend_at(a, a.gradient_to[step], p, row, 2);
    for (int head = 0; head < group; head++, p.head++) {
        const float *q = attend_q(a, p, row), *dy = attend_out(a, a.gradient, p, row);
        const float score = attend_dot(q, k, a.head_dim) * a.scale, slope = attend_dot(dy, v, a.head_dim);
        const float share = plain_exp(score - *attend_number(a, a.log_sum, p, row));
        const float change = share * (slope - *attend_number(a, a.scratch, p, row)) * a.scale;
        for (int d = lane_id(); d < a.head_dim; d += WARP) {
            to_k[d] = fmaf(change, q[d], to_k[d]);
            to_v[d] = fmaf(share, dy[d], to_v[d]);
        }
    }
}

void cuda_learn_attention_back(struct queue *queue, const struct learn_attention_args *a)
{
    const dev_stream stream = cuda_stream(queue);
    const unsigned tiles = blocks_for(a->longest, ATTEND_ROWS);
    const dim3 heads(tiles, (unsigned)a->heads, (unsigned)a->texts), keys(tiles, (unsigned)a->kv_heads, (unsigned)a->texts);
    if (!a->rows)
        return;
    ATTEND_LAUNCH(attend_q_kernel, 4, heads, stream, *a);
    ATTEND_LAUNCH(attend_kv_kernel, 4, keys, stream, *a);
    if (a->steps)
        LAUNCH(attend_own_kernel, dim3(blocks_for(a->rows, ATTEND_WARPS), (unsigned)a->kv_heads, (unsigned)a->steps),
               dim3(ATTEND_THREADS), 0, stream, *a);
}
