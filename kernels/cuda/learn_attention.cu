/* kernels/learn.h: attention, forward. A block of 8 warps computes 32 rows of one head of one text, four rows per warp. It
 * processes the keys of the text in tiles of 32, from the first tile to the one that contains its own last row. Each lane
 * computes the scores of one key of the tile with the warp's four rows; then the lanes are distributed over the width, and
 * accumulate the values.
 *
 * Sums: a score is summed over the width in ascending order. Maximum, sum of exponentials and weighted values are carried from
 * tile to tile (and scaled down when a larger score appears). Within a tile, exponentials are added by halves of the warp, and
 * values key by key. After all tiles, the row's own keys of steps 1, 2, ... follow, one at a time. So a row's bits depend on
 * its text only.
 *
 * No [rows][rows] matrix is ever in memory: keys and values of a head are read once for each 32 rows, mostly from the
 * second-level cache. Fused multiply-adds and shared memory limit the speed about equally (16 multiply-adds for 5 reads of 16
 * bytes). */
#include "kernels/cuda/learn_attention.h"

/* The running state of a row; equal in all lanes of its warp. */
struct attend_state {
    float largest, sum;
};

/* Sets the largest score, and scales the earlier sum down accordingly. Returns the factor, by which the caller must scale the
 * values. */
DEVICE float attend_raise(struct attend_state *s, float largest)
{
    const float left = plain_exp(s->largest - largest);
    s->sum *= left;
    s->largest = largest;
    return left;
}

template <int EACH> __global__ void __launch_bounds__(ATTEND_THREADS, 1) attend_kernel(struct learn_attention_args a)
{
    typedef attend_tile<EACH> shape;
    SHARED_DYN(float, q);
    SHARED(float, weights, ATTEND_ROWS * ATTEND_ROWS);
    float *k = q + shape::FLOATS, *v = k + shape::FLOATS, *weight = weights + warp_id() * ATTEND_OWN * ATTEND_ROWS;
    const struct attend_of p = attend_of_text(a, (int)blockIdx.z, (int)blockIdx.y);
    const int first = (int)blockIdx.x * ATTEND_ROWS, own = warp_id() * ATTEND_OWN, lane = lane_id();
    struct attend_state state[ATTEND_OWN];
    float sum[ATTEND_OWN][EACH] = {};
    if (first >= p.rows)
        return;
    UNROLL for (int i = 0; i < ATTEND_OWN; i++)
        state[i] = {-INFINITY, 0};
    attend_load<EACH>(q, attend_q(a, p, first), attend_width(a), p.rows - first, a.head_dim);
    for (int key = 0; key <= first; key += ATTEND_ROWS) {
        __syncthreads();
        attend_load<EACH>(k, attend_k(a, p, 0, key), attend_width(a), p.rows - key, a.head_dim);
        attend_load<EACH>(v, attend_v(a, p, 0, key), attend_width(a), p.rows - key, a.head_dim);
        __syncthreads();
        float score[ATTEND_OWN];
        attend_dots<EACH>(score, q + own * shape::PITCH, k);
        UNROLL for (int i = 0; i < ATTEND_OWN; i++) {
            const float mine = key + lane <= first + own + i ? score[i] * a.scale : -INFINITY;
            const float left = attend_raise(&state[i], fmaxf(state[i].largest, warp_max(mine)));
            const float share = plain_exp(mine - state[i].largest);
            state[i].sum += warp_sum(share);
            weight[i * ATTEND_ROWS + lane] = share;
            UNROLL for (int n = 0; n < EACH; n++)
                sum[i][n] *= left;
        }
        __syncwarp();
        attend_sums<EACH>(sum, weight, v);
    }
    UNROLL for (int i = 0; i < ATTEND_OWN; i++) {
        const int row = first + own + i;
        if (row >= p.rows)
            continue;
        for (int step = 1; step <= a.steps; step++) {
            const float *value = attend_v(a, p, step, row);
            const float score = attend_dot(q + (own + i) * shape::PITCH, attend_k(a, p, step, row), a.head_dim) * a.scale;
            const float left = attend_raise(&state[i], fmaxf(state[i].largest, score));
            const float share = plain_exp(score - state[i].largest);
            state[i].sum += share;
            UNROLL for (int n = 0; n < EACH; n++)
                if (lane + n * WARP < a.head_dim)
                    sum[i][n] = fmaf(share, value[lane + n * WARP], sum[i][n] * left);
        }
        float *out = attend_out(a, a.out, p, row);
        UNROLL for (int n = 0; n < EACH; n++)
            if (lane + n * WARP < a.head_dim)
                out[lane + n * WARP] = sum[i][n] / state[i].sum;
        if (lane == 0)
            *attend_number(a, a.log_sum, p, row) = state[i].largest + learn_log(state[i].sum);
    }
}

size_t cuda_learn_attention_scratch(struct queue *queue, const struct learn_attention_args *a)
{
    (void)queue;
    return (size_t)a->heads * (size_t)a->rows * sizeof(float);           /* D of learn_attention_back.cu */
}

void cuda_learn_attention(struct queue *queue, const struct learn_attention_args *a)
{
    const dim3 grid(blocks_for(a->longest, ATTEND_ROWS), (unsigned)a->heads, (unsigned)a->texts);
    if (a->rows)
        ATTEND_LAUNCH(attend_kernel, 3, grid, cuda_stream(queue), *a);
}
