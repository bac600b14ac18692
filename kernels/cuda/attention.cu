/* kernels/attention.h: attention. Every rounding is the contract's, so the bits are the host's; the chunks lie at logical
 * positions, so a node of a tree has the bits of its path decoded alone.
 *
 * A block of 128 threads takes the heads of one kv head for one row: its keys and values are read once for all of them. In a
 * chunk of 64 positions a half-warp makes the dot products of a key (its 16 lanes are the 16 partial sums), a warp the shares
 * of a head, a thread the weighted sum of one float of the values; four heads at a time, so that a key or value once loaded
 * serves four.
 *
 * Two ways, the same arithmetic. Few rows: a block a chunk, which leaves maximum, sum and values in scratch, and a second
 * launch joins them ascending. Many rows, or no scratch: a block walks the chunks and joins as it goes. */
#include "kernels/cuda/cache.h"
#include "kernels/cuda/cuda.h"
#include "kernels/plain/math.h"

enum { ATTENTION_THREADS = 128, ATTENTION_WARPS = 4, ATTENTION_CHAINS = 16, ATTENTION_HEADS = 4, ATTENTION_SPLIT_ROWS = 64 };

/* What a row sees. */
struct attention_view {
    const int32_t *path;
    int prefix, first, length;          /* visible: logical positions first .. length-1 */
};

DEVICE struct attention_view view_of(const struct attention_args &a, int row)
{
    const int32_t *start = device_pointer<int32_t>(a.path_start);
    int prefix = device_pointer<int32_t>(a.prefix)[row], length = prefix + start[row + 1] - start[row];
    int first = a.window && length > a.window ? length - a.window : 0;
    return {device_pointer<int32_t>(a.path) + start[row], prefix, first, length};
}

/* A block's shared memory. M, L, A: what its chunks have come to. */
struct attention_memory {
    float *q, *share, *chunk_most, *chunk_sum, *most, *sum, *before, *now, *value;
};

static inline size_t attention_floats(const struct attention_args *a)
{
    size_t group = (size_t)(a->heads / a->kv_heads);
    return group * (size_t)(a->head_dim + ATTENTION_CHUNK + 6 + a->value_dim);
}

DEVICE struct attention_memory memory_of(const struct attention_args &a, int group, float *at)
{
    struct attention_memory m;
    m.q = at;
    m.share = m.q + group * a.head_dim;
    m.chunk_most = m.share + group * ATTENTION_CHUNK;
    m.chunk_sum = m.chunk_most + group;
    m.most = m.chunk_sum + group;
    m.sum = m.most + group;
    m.before = m.sum + group;
    m.now = m.before + group;
    m.value = m.now + group;
    return m;
}

DEVICE float sum_of_chains(float value)
{
    for (int step = ATTENTION_CHAINS / 2; step > 0; step /= 2)
        value = value + __shfl_xor_sync(FULL_MASK, value, step);
    return value;
}

/* share[head][j] = scale * q . k for the chunk's visible positions, -inf for the rest. */
template <int FORMAT>
DEVICE void chunk_scores(const struct attention_args &a, int group, const int *slot, int visible, int kv_head,
                         const struct attention_memory &m)
{
    int half = (int)threadIdx.x / ATTENTION_CHAINS, chain = (int)threadIdx.x % ATTENTION_CHAINS;
    const void *k = device_pointer<void>(a.k);
    for (int j = half; j - half < visible; j += ATTENTION_THREADS / ATTENTION_CHAINS) {
        int64_t key = ((int64_t)kv_head * a.capacity + slot[j < visible ? j : 0]) * a.head_dim;
        for (int h = 0; h < group; h += ATTENTION_HEADS) {
            float dot[ATTENTION_HEADS] = {0, 0, 0, 0};
            for (int i = chain; i < a.head_dim; i += ATTENTION_CHAINS) {
                float x = cache_at((enum cache_format)FORMAT, k, key + i);
                UNROLL for (int n = 0; n < ATTENTION_HEADS; n++)
                    dot[n] = fmaf(m.q[(h + n < group ? h + n : h) * a.head_dim + i], x, dot[n]);
            }
            UNROLL for (int n = 0; n < ATTENTION_HEADS; n++) {
                float score = sum_of_chains(dot[n]) * a.scale;
                if (chain == 0 && h + n < group && j < visible)
                    m.share[(h + n) * ATTENTION_CHUNK + j] = score;
            }
        }
    }
    for (int i = (int)threadIdx.x; i < group * ATTENTION_CHUNK; i += ATTENTION_THREADS)
        if (i % ATTENTION_CHUNK >= visible)
            m.share[i] = -INFINITY;
}

/* Scores become shares; the chunk's maximum and sum join those of the chunks before, unless it is the first. */
DEVICE void chunk_shares(int group, bool begun, const struct attention_memory &m)
{
    int lane = lane_id(), chain = lane % ATTENTION_CHAINS;
    for (int h = warp_id(); h < group; h += ATTENTION_WARPS) {
        float *share = m.share + h * ATTENTION_CHUNK;
        float most = warp_max(fmaxf(share[lane], share[lane + WARP]));
        float low = plain_exp(share[lane] - most), high = plain_exp(share[lane + WARP] - most);
        share[lane] = low;
        share[lane + WARP] = high;
        __syncwarp();
        float sum = sum_of_chains(((share[chain] + share[chain + 16]) + share[chain + 32]) + share[chain + 48]);
        if (lane == 0) {
            m.chunk_most[h] = most;
            m.chunk_sum[h] = sum;
            if (!begun) {
                m.most[h] = most;
                m.sum[h] = sum;
            } else {
                float now = m.most[h] > most ? m.most[h] : most, f = plain_exp(m.most[h] - now), g = plain_exp(most - now);
                m.sum[h] = fmaf(m.sum[h], f, sum * g);
                m.most[h] = now;
                m.before[h] = f;
                m.now[h] = g;
            }
        }
    }
}

template <int FORMAT>
DEVICE void chunk_values(const struct attention_args &a, int group, bool begun, const int *slot, int visible, int kv_head,
                         const struct attention_memory &m)
{
    const void *v = device_pointer<void>(a.v);
    int64_t first = (int64_t)kv_head * a.capacity;
    for (int i = (int)threadIdx.x; i < a.value_dim; i += ATTENTION_THREADS)
        for (int h = 0; h < group; h += ATTENTION_HEADS) {
            float sum[ATTENTION_HEADS] = {0, 0, 0, 0};
            for (int j = 0; j < visible; j++) {
                float x = cache_at((enum cache_format)FORMAT, v, (first + slot[j]) * a.value_dim + i);
                UNROLL for (int n = 0; n < ATTENTION_HEADS; n++)
                    sum[n] = fmaf(m.share[(h + n < group ? h + n : h) * ATTENTION_CHUNK + j], x, sum[n]);
            }
            UNROLL for (int n = 0; n < ATTENTION_HEADS; n++)
                if (h + n < group) {
                    float *value = m.value + (h + n) * a.value_dim + i;
                    *value = begun ? fmaf(*value, m.before[h + n], sum[n] * m.now[h + n]) : sum[n];
                }
        }
}

/* Chunks first .. end-1 of a row for the heads of one kv head; at least one position of them is visible. */
template <int FORMAT>
DEVICE void walk(const struct attention_args &a, const struct attention_view &view, int row, int kv_head, int first, int end,
                 const struct attention_memory &m)
{
    SHARED(int, slot, ATTENTION_CHUNK);
    int group = a.heads / a.kv_heads;
    const float *q = device_pointer<float>(a.q) + (int64_t)row * a.stride + (int64_t)kv_head * group * a.head_dim;
    for (int i = (int)threadIdx.x; i < group * a.head_dim; i += ATTENTION_THREADS)
        m.q[i] = q[i];
    for (int chunk = first; chunk < end; chunk++) {
        int low = chunk * ATTENTION_CHUNK, high = low + ATTENTION_CHUNK;
        low = low > view.first ? low : view.first;
        high = high < view.length ? high : view.length;
        if ((int)threadIdx.x < high - low) {
            int j = low + (int)threadIdx.x;
            slot[threadIdx.x] = j < view.prefix ? j : view.path[j - view.prefix];
        }
        __syncthreads();
        chunk_scores<FORMAT>(a, group, slot, high - low, kv_head, m);
        __syncthreads();
        chunk_shares(group, chunk > first, m);
        __syncthreads();
        chunk_values<FORMAT>(a, group, chunk > first, slot, high - low, kv_head, m);
        __syncthreads();
    }
}

/* A sink takes its share, and a float of a head is given out. */
DEVICE float given_out(const struct attention_args &a, int head, float most, float sum, float value)
{
    float before = 1;
    if (a.sink.address) {
        float sink = device_pointer<float>(a.sink)[head], now = most > sink ? most : sink;
        before = plain_exp(most - now);
        sum = fmaf(sum, before, plain_exp(sink - now));
    }
    return value * before / sum;
}

/* Grid (kv heads, rows): a block walks all chunks. */
template <int FORMAT>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1) attention_kernel(struct attention_args a, const int32_t *live)
{
    in_turn();
    if (not_live(live, blockIdx.y))
        return;
    SHARED_DYN(float, floats);
    int kv_head = (int)blockIdx.x, row = (int)blockIdx.y, group = a.heads / a.kv_heads;
    struct attention_memory m = memory_of(a, group, floats);
    struct attention_view view = view_of(a, row);
    walk<FORMAT>(a, view, row, kv_head, view.first / ATTENTION_CHUNK, (view.length + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK, m);
    float *out = device_pointer<float>(a.out) + ((int64_t)row * a.heads + kv_head * group) * a.value_dim;
    for (int h = 0; h < group; h++)
        for (int i = (int)threadIdx.x; i < a.value_dim; i += ATTENTION_THREADS)
            out[h * a.value_dim + i] = given_out(a, kv_head * group + h, m.most[h], m.sum[h], m.value[h * a.value_dim + i]);
}

/* Of a chunk of a head of a row in scratch: maximum, sum, values. */
DEVICE float *part_of(const struct attention_args &a, struct buffer scratch, int chunks, int row, int head, int chunk)
{
    return device_pointer<float>(scratch) + (((int64_t)row * a.heads + head) * chunks + chunk) * (a.value_dim + 2);
}

/* Grid (chunks, kv heads, rows): a block a chunk; those that a row does not see end at once. */
template <int FORMAT>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1) attention_part_kernel(struct attention_args a, struct buffer scratch,
                                                                                const int32_t *live)
{
    in_turn();
    if (not_live(live, blockIdx.z))
        return;
    SHARED_DYN(float, floats);
    int chunk = (int)blockIdx.x, kv_head = (int)blockIdx.y, row = (int)blockIdx.z, group = a.heads / a.kv_heads;
    struct attention_memory m = memory_of(a, group, floats);
    struct attention_view view = view_of(a, row);
    if (chunk < view.first / ATTENTION_CHUNK || chunk * ATTENTION_CHUNK >= view.length)
        return;
    walk<FORMAT>(a, view, row, kv_head, chunk, chunk + 1, m);
    for (int h = 0; h < group; h++) {
        float *part = part_of(a, scratch, (int)gridDim.x, row, kv_head * group + h, chunk);
        if (threadIdx.x == 0) {
            part[0] = m.most[h];
            part[1] = m.sum[h];
        }
        for (int i = (int)threadIdx.x; i < a.value_dim; i += ATTENTION_THREADS)
            part[2 + i] = m.value[h * a.value_dim + i];
    }
}

/* Grid (heads, rows): joins the parts. Each thread makes maximum and sum anew, so that none waits for another. */
__global__ void attention_join_kernel(struct attention_args a, struct buffer scratch, int chunks, const int32_t *live)
{
    in_turn();
    if (not_live(live, blockIdx.y))
        return;
    int head = (int)blockIdx.x, row = (int)blockIdx.y;
    struct attention_view view = view_of(a, row);
    int first = view.first / ATTENTION_CHUNK, end = (view.length + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK;
    for (int i = (int)threadIdx.x; i < a.value_dim; i += ATTENTION_THREADS) {
        const float *part = part_of(a, scratch, chunks, row, head, first);
        float most = part[0], sum = part[1], value = part[2 + i];
        for (int chunk = first + 1; chunk < end; chunk++) {
            part += a.value_dim + 2;
            float now = most > part[0] ? most : part[0], f = plain_exp(most - now), g = plain_exp(part[0] - now);
            sum = fmaf(sum, f, part[1] * g);
            value = fmaf(value, f, part[2 + i] * g);
            most = now;
        }
        device_pointer<float>(a.out)[((int64_t)row * a.heads + head) * a.value_dim + i] = given_out(a, head, most, sum, value);
    }
}

template <int FORMAT> static void attention_launch(struct queue *queue, const struct attention_args *a)
{
    struct buffer scratch = ((const struct cuda_context *)queue->state)->scratch;
    size_t bytes = attention_floats(a) * sizeof(float);
    unsigned chunks = blocks_for(a->capacity, ATTENTION_CHUNK), rows = (unsigned)a->rows, kv_heads = (unsigned)a->kv_heads;
    uint64_t parts = (uint64_t)rows * (unsigned)a->heads * chunks * (uint64_t)(a->value_dim + 2) * sizeof(float);
    dev_stream stream = cuda_stream(queue);
    dim3 threads(ATTENTION_THREADS);
    if (a->rows > ATTENTION_SPLIT_ROWS || parts > scratch.bytes) {
        LAUNCH_PDL((attention_kernel<FORMAT>), dim3(kv_heads, rows), threads, bytes, stream, *a, cuda_live(queue));
        return;
    }
    LAUNCH_PDL((attention_part_kernel<FORMAT>), dim3(chunks, kv_heads, rows), threads, bytes, stream, *a, scratch,
           cuda_live(queue));
    LAUNCH_PDL(attention_join_kernel, dim3((unsigned)a->heads, rows), threads, 0, stream, *a, scratch, (int)chunks,
           cuda_live(queue));
}

void cuda_attention(struct queue *queue, const struct attention_args *a)
{
    if (a->rows < 1)
        return;
    switch (a->format) {
    case CACHE_F16: attention_launch<CACHE_F16>(queue, a); break;
    case CACHE_BF16: attention_launch<CACHE_BF16>(queue, a); break;
    default: attention_launch<CACHE_F32>(queue, a); break;
    }
}
