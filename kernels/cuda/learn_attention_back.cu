/* kernels/learn.h: attention, backward, in three launches that write different parts of the gradients. Each makes the
 * probabilities anew, P = exp(score - log of the row's sum), and dS = P (dP - D) scale, with dP = dO . v and D = dO . O.
 *
 * attend_q: blocks as in attention forward, 32 rows of one head; dq = sum of dS k over tiles of keys, ascending, then over the
 *     row's own keys.
 * attend_kv: a block has 32 keys of one text and one head of keys, a warp four keys; a lane has one query. It goes over the heads
 *     that share the key, ascending, and of each over tiles of queries from its own on: dk = sum of dS q, dv = sum of P dO.
 * attend_own: a warp has one row, one head of keys, and one step's own key of it: dk and dv over the heads, ascending.
 *
 * So no two blocks add to one number, and its sum has one order. Bound by fused multiply-adds and shared memory about alike. */
#include "kernels/cuda/learn_attention.h"
#include "kernels/plain/math.h"

/* D of the rows of two tiles, the four that a warp owns: all lanes get them. */
template <int EACH> DEVICE float attend_whole(const float *out, const float *gradient, int dim)
{
    return attend_dot(gradient, out, dim);
}

template <int EACH> __global__ void __launch_bounds__(ATTEND_THREADS) attend_q_kernel(struct attend_args a)
{
    typedef attend_tile<EACH> shape;
    SHARED_DYN(float, q);
    SHARED(float, weights, ATTEND_ROWS * ATTEND_ROWS);
    float *dy = q + shape::FLOATS, *k = dy + shape::FLOATS, *v = k + shape::FLOATS;
    float *weight = weights + warp_id() * ATTEND_OWN * ATTEND_ROWS;
    const struct attend_place p = attend_place_of(a, (int)blockIdx.z, (int)blockIdx.y);
    const int first = (int)blockIdx.x * ATTEND_ROWS, own = warp_id() * ATTEND_OWN, lane = lane_id();
    float sum[ATTEND_OWN][EACH] = {}, whole[ATTEND_OWN] = {}, shift[ATTEND_OWN] = {};
    if (first >= p.rows)
        return;
    attend_load<EACH>(q, attend_q(a, p, first), a.stride, p.rows - first, a.dim);
    attend_load<EACH>(dy, attend_dy(a, p, first), a.out_stride, p.rows - first, a.dim);
    __syncthreads();
    UNROLL for (int i = 0; i < ATTEND_OWN; i++)
        if (first + own + i < p.rows) {
            whole[i] = attend_dot(dy + (own + i) * shape::PITCH, attend_out(a, p, first + own + i), a.dim);
            shift[i] = *attend_logsum(a, p, first + own + i);
        }
    for (int key = 0; key <= first; key += ATTEND_ROWS) {
        __syncthreads();
        attend_load<EACH>(k, attend_k(a, p, 0, key), a.stride, p.rows - key, a.dim);
        attend_load<EACH>(v, attend_v(a, p, 0, key), a.stride, p.rows - key, a.dim);
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
        __syncwarp();
    }
    UNROLL for (int i = 0; i < ATTEND_OWN; i++) {
        const int row = first + own + i;
        if (row >= p.rows)
            continue;
        for (int step = 1; step <= a.steps; step++) {
            const float *key = attend_k(a, p, step, row);
            const float score = attend_dot(q + (own + i) * shape::PITCH, key, a.dim) * a.scale;
            const float slope = attend_dot(dy + (own + i) * shape::PITCH, attend_v(a, p, step, row), a.dim);
            const float change = plain_exp(score - shift[i]) * (slope - whole[i]) * a.scale;
            UNROLL for (int n = 0; n < EACH; n++)
                if (lane + n * WARP < a.dim)
                    sum[i][n] = fmaf(change, key[lane + n * WARP], sum[i][n]);
        }
        float *to = attend_dq(a, p, row);
        UNROLL for (int n = 0; n < EACH; n++)
            if (lane + n * WARP < a.dim)
                to[lane + n * WARP] += sum[i][n];
    }
}

template <int EACH> __global__ void __launch_bounds__(ATTEND_THREADS) attend_kv_kernel(struct attend_args a)
{
    typedef attend_tile<EACH> shape;
    SHARED_DYN(float, k);
    SHARED(float, weights, ATTEND_ROWS * ATTEND_ROWS);
    SHARED(float, changes, ATTEND_ROWS * ATTEND_ROWS);
    SHARED(float, wholes, ATTEND_ROWS);
    SHARED(float, shifts, ATTEND_ROWS);
    float *v = k + shape::FLOATS, *q = v + shape::FLOATS, *dy = q + shape::FLOATS;
    float *weight = weights + warp_id() * ATTEND_OWN * ATTEND_ROWS, *change = changes + warp_id() * ATTEND_OWN * ATTEND_ROWS;
    struct attend_place p = attend_place_of(a, (int)blockIdx.z, (int)blockIdx.y * a.group);
    const int first = (int)blockIdx.x * ATTEND_ROWS, own = warp_id() * ATTEND_OWN, lane = lane_id();
    float dk[ATTEND_OWN][EACH] = {}, dv[ATTEND_OWN][EACH] = {};
    if (first >= p.rows)
        return;
    attend_load<EACH>(k, attend_k(a, p, 0, first), a.stride, p.rows - first, a.dim);
    attend_load<EACH>(v, attend_v(a, p, 0, first), a.stride, p.rows - first, a.dim);
    for (int head = 0; head < a.group; head++, p.head++)
        for (int query = first; query < p.rows; query += ATTEND_ROWS) {
            __syncthreads();
            attend_load<EACH>(q, attend_q(a, p, query), a.stride, p.rows - query, a.dim);
            attend_load<EACH>(dy, attend_dy(a, p, query), a.out_stride, p.rows - query, a.dim);
            __syncthreads();
            for (int i = own; i < own + ATTEND_OWN && query + i < p.rows; i++) {
                const float whole = attend_dot(dy + i * shape::PITCH, attend_out(a, p, query + i), a.dim);
                if (lane == 0) {
                    wholes[i] = whole;
                    shifts[i] = *attend_logsum(a, p, query + i);
                }
            }
            __syncthreads();
            float score[ATTEND_OWN], slope[ATTEND_OWN];
            attend_dots<EACH>(score, k + own * shape::PITCH, q);
            attend_dots<EACH>(slope, v + own * shape::PITCH, dy);
            UNROLL for (int i = 0; i < ATTEND_OWN; i++) {
                const bool seen = first + own + i <= query + lane && query + lane < p.rows;
                const float share = seen ? plain_exp(score[i] * a.scale - shifts[lane]) : 0;
                weight[i * ATTEND_ROWS + lane] = share;
                change[i * ATTEND_ROWS + lane] = seen ? share * (slope[i] - wholes[lane]) * a.scale : 0;
            }
            __syncwarp();
            attend_sums<EACH>(dv, weight, dy);
            attend_sums<EACH>(dk, change, q);
            __syncwarp();
        }
    p.head = (int)blockIdx.y * a.group;
    UNROLL for (int i = 0; i < ATTEND_OWN; i++) {
        if (first + own + i >= p.rows)
            continue;
        float *to_k = attend_dk(a, p, 0, first + own + i), *to_v = attend_dv(a, p, 0, first + own + i);
        UNROLL for (int n = 0; n < EACH; n++)
            if (lane + n * WARP < a.dim) {
                to_k[lane + n * WARP] += dk[i][n];
                to_v[lane + n * WARP] += dv[i][n];
            }
    }
}
