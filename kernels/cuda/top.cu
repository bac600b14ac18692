/* kernels/top.h in two launches of blocks of 256 threads.
 *
 * top_chunk: one block per chunk of a row. A thread is a lane of the contract, with eight tokens in registers: so the 8 KB of a
 * block are in flight at once, and are read once. Maximum and sum are reduced by halves in shared memory, in the contract's
 * order; then the chunk's k best tokens are found, each as a maximum over the block.
 *
 * top_row: one block per row. The first thread joins the chunks' sums in their order; then all threads find, k times, the
 * largest of the first remaining keys of the chunks' sorted lists. Each thread owns two of the at most 512 lists. Keys are all
 * different, so the order of maxima does not matter. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/rank.h"
#include "kernels/plain/math.h"

enum { TOP_EACH = TOP_CHUNK / TOP_LANES, TOP_LISTS = TOP_VOCAB_MAX / TOP_CHUNK / RANK_THREADS };

static_assert((int)RANK_THREADS == (int)TOP_LANES, "a thread is a lane");
static_assert((int)RANK_TOKENS == (int)TOP_VOCAB_MAX, "a key has room for every token");

struct top_chunk {
    float max, sum;
};

/* Scratch of all rows: first the keys, [row][chunk][k], then the sums, [row][chunk]. */
DEVICE rank_type *keys_of(const struct top_args &a) { return device_pointer<rank_type>(a.scratch); }

DEVICE struct top_chunk *chunks_of(const struct top_args &a, int chunks)
{
    return (struct top_chunk *)(keys_of(a) + (size_t)a.rows * (size_t)chunks * (size_t)a.k);
}

/* Reduces the lanes' values by halves; all threads receive the result. */
DEVICE float join_lanes(float *lane, float value, bool largest)
{
    int j = (int)threadIdx.x;
    lane[j] = value;
    for (int half = TOP_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (j < half)
            lane[j] = !largest ? lane[j] + lane[j + half] : lane[j + half] > lane[j] ? lane[j + half] : lane[j];
    }
    __syncthreads();
    value = lane[0];
    __syncthreads();
    return value;
}

__global__ void __launch_bounds__(RANK_THREADS) top_chunk_kernel(struct top_args a, const int32_t *live)
{
    pdl_begin();
    SHARED(float, lane, TOP_LANES);
    int64_t row = blockIdx.y, chunk_index = row * gridDim.x + blockIdx.x;
    int first = (int)blockIdx.x * TOP_CHUNK + (int)threadIdx.x;
    const float *logit = device_pointer<float>(a.logits) + row * a.stride;
    float x[TOP_EACH], max = -INFINITY, sum = 0;
    rank_type last = ~(rank_type)0;
    if (not_live(live, row))
        return;
    UNROLL for (int i = 0; i < TOP_EACH; i++)
        x[i] = first + i * TOP_LANES < a.vocab ? logit[first + i * TOP_LANES] : -INFINITY;
    UNROLL for (int i = 0; i < TOP_EACH; i++)
        max = x[i] > max ? x[i] : max;
    max = join_lanes(lane, max, true);
    UNROLL for (int i = 0; i < TOP_EACH; i++)               /* tokens beyond the end add 0 */
        sum = sum + plain_exp(x[i] - (max > -INFINITY ? max : 0));
    sum = join_lanes(lane, sum, false);
    if (threadIdx.x == 0)
        chunks_of(a, (int)gridDim.x)[chunk_index] = {max, sum};
    for (int n = 0; n < a.k; n++) {
        rank_type best = 0;
        UNROLL for (int i = 0; i < TOP_EACH; i++) {
            int token = first + i * TOP_LANES;
            rank_type key = token < a.vocab && x[i] == x[i] ? rank_key(x[i], token) : 0;
            best = key < last && key > best ? key : best;
        }
        last = largest_key(best);
        if (threadIdx.x == 0)
            keys_of(a)[chunk_index * a.k + n] = last;
    }
}

__global__ void __launch_bounds__(RANK_THREADS) top_row_kernel(struct top_args a, int chunks, const int32_t *live)
{
    pdl_begin();
    SHARED(float, of_row, 3);                               /* the row's maximum, sum, and logarithm of the sum */
    int64_t row = blockIdx.x;
    const struct top_chunk *chunk = chunks_of(a, chunks) + row * chunks;
    const rank_type *keys = keys_of(a) + row * chunks * a.k;
    int taken[TOP_LISTS];
    rank_type head[TOP_LISTS];
    if (not_live(live, row))
        return;
    UNROLL for (int l = 0; l < TOP_LISTS; l++) {
        int c = (int)threadIdx.x + l * RANK_THREADS;
        taken[l] = 0;
        head[l] = c < chunks ? keys[(int64_t)c * a.k] : 0;
    }
    if (threadIdx.x == 0) {
        float max = -INFINITY, sum = 0;
        for (int c = 0; c < chunks; c++)
            max = chunk[c].max > max ? chunk[c].max : max;
        for (int c = 0; c < chunks; c++)
            sum = fmaf(chunk[c].sum, plain_exp(chunk[c].max - max), sum);
        of_row[0] = max;
        of_row[1] = sum;
        of_row[2] = sum == sum ? plain_log(sum) : NAN;
        if (a.log_sum.address)
            device_pointer<float>(a.log_sum)[row] = sum == sum ? max + of_row[2] : NAN;
    }
    __syncthreads();
    bool none = of_row[1] != of_row[1];
    for (int n = 0; n < a.k; n++) {
        rank_type best = 0;
        UNROLL for (int l = 0; l < TOP_LISTS; l++)
            best = head[l] > best ? head[l] : best;
        best = largest_key(best);
        UNROLL for (int l = 0; l < TOP_LISTS; l++)
            if (best && head[l] == best) {
                int c = (int)threadIdx.x + l * RANK_THREADS;
                taken[l]++;
                head[l] = taken[l] < a.k ? keys[(int64_t)c * a.k + taken[l]] : 0;
            }
        if (threadIdx.x == 0) {
            int token = none ? -1 : token_of(best);
            float logit = float_of_key((uint32_t)(best >> RANK_TOKEN_BITS));
            if (token >= 0 && a.map.address)
                token = device_pointer<int32_t>(a.map)[token];
            device_pointer<int32_t>(a.token)[row * a.k + n] = token;
            device_pointer<float>(a.logp)[row * a.k + n] = none ? NAN : logit - of_row[0] - of_row[2];
        }
    }
}

void cuda_top(struct queue *queue, const struct top_args *args)
{
    struct top_args a = *args;
    a.stride = row_stride(a.stride, a.vocab);
    if (a.rows < 1 || a.k < 1)
        return;
    unsigned chunks = (unsigned)top_chunks(a.vocab);
    LAUNCH_PDL(top_chunk_kernel, dim3(chunks, (unsigned)a.rows), dim3(RANK_THREADS), 0, cuda_stream(queue), a,
               cuda_live(queue));
    LAUNCH_PDL(top_row_kernel, dim3((unsigned)a.rows), dim3(RANK_THREADS), 0, cuda_stream(queue), a, (int)chunks,
               cuda_live(queue));
}
