/* kernels/attention.h: attention. Every operation is rounded as the contract specifies, so the results are bit-identical to the
 * host's. Chunks begin at logical positions, so a node of a tree is bit-identical to its path decoded alone.
 *
 * A block of 128 threads processes, for one row, all heads of one kv head, so it reads their keys and values once. It starts
 * the copies of all keys and all values of a chunk of 64 positions before it waits for the first one. The copies need no
 * registers: with heads of 128 numbers of 16 bits, 32 KB are in flight, and values still arrive while the keys are processed.
 * Then a half-warp computes the dot products of keys (its 16 lanes are the 16 partial sums), four keys by four heads at a time;
 * a warp computes the shares of a head; a thread computes the weighted sum of one float of the values for four heads. Chunks
 * that are too large are read in pieces (some of the keys, some floats of all values); the pieces change no bit of the result.
 *
 * Rows of a tree share all chunks before the draft. If there are enough blocks, one block processes a chunk for several rows,
 * one after the other, and keeps the chunk in shared memory for all of them.
 *
 * A block processes a chunk, writes maximum, sum and values to scratch, and continues with its next chunk; a second launch
 * joins the chunks in ascending order. The number of blocks per row is the number that fills a GPU, because the row's length
 * may be known on the device only. Both launches are repeated for as many rows as fit into the scratch; or, if the chunks of
 * one row do not fit, for as many chunks as fit, and the joined part of a head stays in the scratch until the next launch. */
#include <assert.h>

#include "kernels/cuda/cache.h"
#include "kernels/cuda/cuda.h"
#include "kernels/plain/math.h"

enum { ATTENTION_THREADS = 128, ATTENTION_WARPS = 4, ATTENTION_CHAINS = 16, ATTENTION_HEADS = 4, ATTENTION_KEYS = 4 };
enum { ATTENTION_HALVES = ATTENTION_THREADS / ATTENTION_CHAINS };

/* Blocks per row, if the row is long enough: as many as run at a time on a large GPU. */
enum { ATTENTION_BLOCKS = 512 };

/* Max rows that share a chunk in one block. */
enum { ATTENTION_SHARED = 8 };

/* Bytes of shared memory: limits for pieces of keys and for pieces of values, and a soft limit for a whole block. The smallest
 * multiprocessors have that much shared memory; larger ones fit two or more blocks. */
static const size_t ATTENTION_PIECE = 36 << 10, ATTENTION_ROOM = 96 << 10;

/* Pieces of a chunk in shared memory: `keys` keys and `wide` numbers of each value. Their strides start neighbouring keys in
 * different banks, because neighbouring half-warps read them at the same time. */
struct attention_pieces {
    int keys, key_pitch, wide;
    bool by_16;                         /* addresses and sizes of all keys and values are multiples of 16 bytes */
};

/* The positions that a row attends to. */
struct attention_view {
    const int32_t *path;
    int prefix, first, length;          /* visible: logical positions first .. length-1 */
};

DEVICE struct attention_view view_of(const struct attention_args &a, int row)
{
    const int32_t *start = device_pointer<int32_t>(a.path_start);
    int prefix = device_pointer<int32_t>(a.prefix)[row], length = prefix + start[row + 1] - start[row];
    int first = attention_first(&a, length);
    return {device_pointer<int32_t>(a.path) + start[row], prefix, first, length};
}

/* A block's shared memory: the pieces; q; shares; then maximum, sum and values of the chunk. */
struct attention_memory {
    unsigned char *keys, *values;
    float *share, *q, *max, *sum, *value;
};

static inline size_t attention_floats(const struct attention_args *a)
{
    size_t group = (size_t)(a->heads / a->kv_heads);
    return group * (size_t)(ATTENTION_CHUNK + a->head_dim + 2 + a->value_dim);
}

static __host__ __device__ inline size_t piece_bytes(const struct attention_pieces &p, size_t number, bool keys)
{
    return number * (size_t)(keys ? p.keys * p.key_pitch : ATTENTION_CHUNK * p.wide);
}

DEVICE struct attention_memory memory_of(const struct attention_args &a, const struct attention_pieces &p, size_t number,
                                         unsigned char *at)
{
    struct attention_memory m;
    int group = a.heads / a.kv_heads;
    m.keys = at;
    m.values = m.keys + piece_bytes(p, number, true);
    m.share = (float *)(m.values + piece_bytes(p, number, false));
    m.q = m.share + group * ATTENTION_CHUNK;
    m.max = m.q + group * a.head_dim;
    m.sum = m.max + group;
    m.value = m.sum + group;
    return m;
}

DEVICE float sum_of_chains(float value)
{
    for (int step = ATTENTION_CHAINS / 2; step > 0; step /= 2)
        value = value + __shfl_xor_sync(FULL_MASK, value, step);
    return value;
}

/* Does one reduction step: a lane keeps half of its 2 * STEP values and sends the other half to the lane that keeps that
 * half. */
template <int STEP> DEVICE void chains_reduce(float (&value)[ATTENTION_CHAINS])
{
    bool upper = lane_id() & STEP;
    UNROLL for (int i = 0; i < STEP; i++) {
        float kept = upper ? value[i + STEP] : value[i], given = upper ? value[i] : value[i + STEP];
        value[i] = kept + __shfl_xor_sync(FULL_MASK, given, STEP);
    }
}

/* Computes sum_of_chains for 16 values at once: lane n of a half-warp returns the sum of value n. */
DEVICE float sums_of_chains(float (&value)[ATTENTION_CHAINS])
{
    chains_reduce<8>(value);
    chains_reduce<4>(value);
    chains_reduce<2>(value);
    chains_reduce<1>(value);
    return value[0];
}

/* Starts the copies of the first `wide` numbers of rows slot[0 .. rows-1] of a cache whose rows have this stride; one half-warp
 * per row. */
template <int FORMAT>
DEVICE void fetch(unsigned char *piece, int pitch, const typename cache_of<FORMAT>::number *from, int stride, int wide,
                  const int *slot, int rows, bool by_16)
{
    typedef typename cache_of<FORMAT>::number number;
    constexpr int EACH = 16 / sizeof(number);
    int lane = (int)threadIdx.x % ATTENTION_CHAINS;
    for (int j = (int)threadIdx.x / ATTENTION_CHAINS; j < rows; j += ATTENTION_HALVES) {
        const number *row = from + (int64_t)slot[j] * stride;
        number *to = (number *)piece + j * pitch;
        if (by_16)
            for (int i = lane * EACH; i < wide; i += ATTENTION_CHAINS * EACH)
                cp_async16(to + i, row + i);
        else
            for (int i = lane; i < wide; i += ATTENTION_CHAINS)
                to[i] = row[i];
    }
    cp_async_commit();
}

/* Computes share[head][first + j] = scale * q . k for the `rows` keys of the piece. */
template <int FORMAT>
DEVICE void piece_scores(const struct attention_args &a, const struct attention_pieces &p, int group, int first, int rows,
                         const struct attention_memory &m)
{
    int half = (int)threadIdx.x / ATTENTION_CHAINS, chain = (int)threadIdx.x % ATTENTION_CHAINS;
    for (int j = half; j - half < rows; j += ATTENTION_KEYS * ATTENTION_HALVES)
        for (int h = 0; h < group; h += ATTENTION_HEADS) {
            float dot[ATTENTION_KEYS * ATTENTION_HEADS];
            int key[ATTENTION_KEYS], head[ATTENTION_HEADS];
            UNROLL for (int n = 0; n < ATTENTION_KEYS * ATTENTION_HEADS; n++)
                dot[n] = 0;
            UNROLL for (int n = 0; n < ATTENTION_KEYS; n++)
                key[n] = (j + n * ATTENTION_HALVES < rows ? j + n * ATTENTION_HALVES : 0) * p.key_pitch;
            UNROLL for (int n = 0; n < ATTENTION_HEADS; n++)
                head[n] = (h + n < group ? h + n : h) * a.head_dim;
            for (int i = chain; i < a.head_dim; i += ATTENTION_CHAINS) {
                float q[ATTENTION_HEADS];
                UNROLL for (int n = 0; n < ATTENTION_HEADS; n++)
                    q[n] = m.q[head[n] + i];
                UNROLL for (int k = 0; k < ATTENTION_KEYS; k++) {
                    float x = cache_at((enum cache_format)FORMAT, m.keys, key[k] + i);
                    UNROLL for (int n = 0; n < ATTENTION_HEADS; n++)
                        dot[k * ATTENTION_HEADS + n] = fmaf(q[n], x, dot[k * ATTENTION_HEADS + n]);
                }
            }
            float score = sums_of_chains(dot) * a.scale;
            int own = j + chain / ATTENTION_HEADS * ATTENTION_HALVES, n = h + chain % ATTENTION_HEADS;
            if (own < rows && n < group)
                m.share[n * ATTENTION_CHUNK + first + own] = score;
        }
}

/* Replaces the scores of a chunk by shares, exp(score - maximum), and sets maximum and sum. */
DEVICE void chunk_shares(int group, const struct attention_memory &m)
{
    int lane = lane_id(), chain = lane % ATTENTION_CHAINS;
    for (int h = warp_id(); h < group; h += ATTENTION_WARPS) {
        float *share = m.share + h * ATTENTION_CHUNK;
        float max = warp_max(fmaxf(share[lane], share[lane + WARP]));
        float low = plain_exp(share[lane] - max), high = plain_exp(share[lane + WARP] - max);
        share[lane] = low;
        share[lane + WARP] = high;
        __syncwarp();
        float sum = sum_of_chains(((share[chain] + share[chain + 16]) + share[chain + 32]) + share[chain + 48]);
        if (lane == 0) {
            m.max[h] = max;
            m.sum[h] = sum;
        }
    }
}

/* Adds the contributions of the visible positions to floats first .. first + wide - 1 of all heads. */
template <int FORMAT>
DEVICE void piece_values(const struct attention_args &a, const struct attention_pieces &p, int group, int first, int wide,
                         int visible, const struct attention_memory &m)
{
    int fours = (group + ATTENTION_HEADS - 1) / ATTENTION_HEADS;
    for (int u = (int)threadIdx.x; u < fours * wide; u += ATTENTION_THREADS) {
        int h = u / wide * ATTENTION_HEADS, i = u % wide, j = 0;
        const float *share[ATTENTION_HEADS];
        float sum[ATTENTION_HEADS];
        UNROLL for (int n = 0; n < ATTENTION_HEADS; n++) {
            share[n] = m.share + (h + n < group ? h + n : h) * ATTENTION_CHUNK;
            sum[n] = 0;
        }
        for (; j + 4 <= visible; j += 4) {
            float x[4];
            UNROLL for (int k = 0; k < 4; k++)
                x[k] = cache_at((enum cache_format)FORMAT, m.values, (j + k) * p.wide + i);
            UNROLL for (int n = 0; n < ATTENTION_HEADS; n++) {
                float4 by = *(const float4 *)(share[n] + j);
                sum[n] = fmaf(by.w, x[3], fmaf(by.z, x[2], fmaf(by.y, x[1], fmaf(by.x, x[0], sum[n]))));
            }
        }
        for (; j < visible; j++) {
            float x = cache_at((enum cache_format)FORMAT, m.values, j * p.wide + i);
            UNROLL for (int n = 0; n < ATTENTION_HEADS; n++)
                sum[n] = fmaf(share[n][j], x, sum[n]);
        }
        UNROLL for (int n = 0; n < ATTENTION_HEADS; n++)
            if (h + n < group)
                m.value[(h + n) * a.value_dim + first + i] = sum[n];
    }
}

/* Computes a chunk of a row for the heads of one kv head; at least one position of the chunk is visible. held: the chunk is
 * already complete in shared memory. */
template <int FORMAT>
DEVICE void attend_chunk(const struct attention_args &a, const struct attention_pieces &p, const struct attention_view &view,
                         int row, int kv_head, int chunk, bool held, const struct attention_memory &m)
{
    typedef typename cache_of<FORMAT>::number number;
    SHARED(int, slot, ATTENTION_CHUNK);
    int group = a.heads / a.kv_heads, thread = (int)threadIdx.x;
    const number *keys = device_pointer<number>(a.k) + (int64_t)kv_head * a.capacity * a.head_dim;
    const number *values = device_pointer<number>(a.v) + (int64_t)kv_head * a.capacity * a.value_dim;
    const float *q = device_pointer<float>(a.q) + (int64_t)row * a.stride + (int64_t)kv_head * group * a.head_dim;
    int low = chunk * ATTENTION_CHUNK, high = low + ATTENTION_CHUNK;
    low = low > view.first ? low : view.first;
    high = high < view.length ? high : view.length;
    int visible = high - low;
    if (!held && thread < visible)
        slot[thread] = low + thread < view.prefix ? low + thread : view.path[low + thread - view.prefix];
    __syncthreads();
    if (!held) {
        fetch<FORMAT>(m.keys, p.key_pitch, keys, a.head_dim, a.head_dim, slot, min(p.keys, visible), p.by_16);
        fetch<FORMAT>(m.values, p.wide, values, a.value_dim, min(p.wide, a.value_dim), slot, visible, p.by_16);
    }
    for (int i = thread; i < group * a.head_dim; i += ATTENTION_THREADS)
        m.q[i] = q[i];
    for (int i = thread; i < group * ATTENTION_CHUNK; i += ATTENTION_THREADS)
        if (i % ATTENTION_CHUNK >= visible)
            m.share[i] = -INFINITY;
    for (int j = 0; j < visible; j += p.keys) {
        if (j == 0) {
            cp_async_wait<1>();
        } else {
            __syncthreads();
            fetch<FORMAT>(m.keys, p.key_pitch, keys, a.head_dim, a.head_dim, slot + j, min(p.keys, visible - j), p.by_16);
            cp_async_wait<0>();
        }
        __syncthreads();
        piece_scores<FORMAT>(a, p, group, j, min(p.keys, visible - j), m);
    }
    __syncthreads();
    chunk_shares(group, m);
    for (int i = 0; i < a.value_dim; i += p.wide) {
        int wide = min(p.wide, a.value_dim - i);
        if (i > 0) {
            __syncthreads();
            fetch<FORMAT>(m.values, p.wide, values + i, a.value_dim, wide, slot, visible, p.by_16);
        }
        cp_async_wait<0>();
        __syncthreads();
        piece_values<FORMAT>(a, p, group, i, wide, visible, m);
    }
    __syncthreads();
}

/* Returns one float of a head's output, after adding the share of the sink, if there is one. */
DEVICE float normalised_output(const struct attention_args &a, int head, float max, float sum, float value)
{
    float before = 1;
    if (a.sink.address) {
        float sink = device_pointer<float>(a.sink)[head], now = max > sink ? max : sink;
        before = plain_exp(max - now);
        sum = fmaf(sum, before, plain_exp(sink - now));
    }
    return value * before / sum;
}

/* A batch in the scratch: chunks begin .. begin + chunks - 1 of the rows from `first` on, counted from the first chunk that a
 * row attends to. */
struct attention_batch {
    struct buffer scratch;
    int first, begin, chunks;
    int each;                           /* rows per block */
};

/* Returns the number of chunks that a row attends to. */
DEVICE int chunks_seen(const struct attention_view &view)
{
    return (view.length + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK - view.first / ATTENTION_CHUNK;
}

/* Returns the address of maximum, sum and values of one chunk of a head of a row in the scratch. Row and chunk are relative
 * to the batch. Chunk -1 is the joined result of earlier batches. */
DEVICE float *part_of(const struct attention_args &a, const struct attention_batch &batch, int row, int head, int chunk)
{
    int64_t at = ((int64_t)row * a.heads + head) * (batch.chunks + 1) + chunk + 1;
    return device_pointer<float>(batch.scratch) + at * (a.value_dim + 2);
}

/* Computes a chunk of a row and writes the result to the scratch. `index` of the row and `chunk` are relative to the batch. */
template <int FORMAT>
DEVICE void store_chunk(const struct attention_args &a, const struct attention_pieces &p, const struct attention_batch &batch,
                        const struct attention_view &view, int index, int chunk, bool held, const struct attention_memory &m)
{
    int kv_head = (int)blockIdx.y, group = a.heads / a.kv_heads;
    attend_chunk<FORMAT>(a, p, view, batch.first + index, kv_head, view.first / ATTENTION_CHUNK + batch.begin + chunk, held, m);
    for (int h = 0; h < group; h++) {
        float *part = part_of(a, batch, index, kv_head * group + h, chunk);
        if (threadIdx.x == 0) {
            part[0] = m.max[h];
            part[1] = m.sum[h];
        }
        for (int i = (int)threadIdx.x; i < a.value_dim; i += ATTENTION_THREADS)
            part[2 + i] = m.value[h * a.value_dim + i];
    }
    __syncthreads();
}

/* Computes the parts. Grid (chunks at a time, kv heads, rows of the batch / batch.each). Rows whose prefixes contain the whole
 * chunk share it: the block fetches it for the first of them. The host lets rows share chunks only if chunks are fetched as a
 * whole and there is no window. */
template <int FORMAT>
__global__ void __launch_bounds__(ATTENTION_THREADS, 4) attention_part_kernel(struct attention_args a,
                                                                                struct attention_pieces p,
                                                                                struct attention_batch batch, int rows,
                                                                                const int32_t *live)
{
    pdl_begin();
    SHARED_DYN(unsigned char, bytes);
    const int index = (int)blockIdx.z * batch.each;
    const int end = min(index + batch.each, min(rows, live_rows(live, a.rows) - batch.first));
    struct attention_memory m = memory_of(a, p, sizeof(typename cache_of<FORMAT>::number), bytes);
    int chunks = 0;
    for (int i = index; i < end; i++)
        chunks = max(chunks, min(chunks_seen(view_of(a, batch.first + i)) - batch.begin, batch.chunks));
    for (int chunk = (int)blockIdx.x; chunk < chunks; chunk += (int)gridDim.x) {
        bool held = false;
        for (int i = index; i < end; i++) {
            const struct attention_view view = view_of(a, batch.first + i);
            const bool whole = batch.each > 1 && (batch.begin + chunk + 1) * ATTENTION_CHUNK <= view.prefix;
            if (chunk >= chunks_seen(view) - batch.begin)
                continue;
            store_chunk<FORMAT>(a, p, batch, view, i, chunk, held && whole, m);
            held = whole;
        }
    }
}

/* Joins the parts, one lane per float of the values. Grid (heads, rows). A warp loads 32 parts at a time, all in flight before
 * the first is used. Each lane computes the factor of one part, and the factor of all earlier parts before it, so no warp waits
 * for another. A sum of values begins with -0, because -0 + x is x for every x. */
__global__ void __launch_bounds__(ATTENTION_THREADS) attention_join_kernel(struct attention_args a,
                                                                            struct attention_batch batch, const int32_t *live)
{
    pdl_begin();
    int head = (int)blockIdx.x, row = batch.first + (int)blockIdx.y, lane = lane_id();
    if (not_live(live, row))
        return;
    int left = chunks_seen(view_of(a, row)) - batch.begin, chunks = min(left, batch.chunks);
    float *so_far = part_of(a, batch, (int)blockIdx.y, head, -1);
    if (chunks < 1)
        return;
    float before_max = batch.begin ? so_far[0] : -INFINITY, before_sum = batch.begin ? so_far[1] : 0;
    __syncthreads();
    for (int first = (int)threadIdx.x - lane; first < a.value_dim; first += ATTENTION_THREADS) {
        int i = first + lane < a.value_dim ? first + lane : first;
        float max = before_max, sum = before_sum, value = batch.begin && first + lane == i ? so_far[2 + i] : -0.0f;
        for (int chunk = 0; chunk < chunks; chunk += WARP) {
            const float *part = part_of(a, batch, (int)blockIdx.y, head, chunk), *own = part + lane * (a.value_dim + 2);
            bool valid = chunk + lane < chunks;
            float peak = valid ? own[0] : -INFINITY, total = valid ? own[1] : 0, x[WARP];
            UNROLL for (int n = 0; n < WARP; n++)
                x[n] = chunk + n < chunks ? part[n * (a.value_dim + 2) + 2 + i] : 0;
            float now = fmaxf(peak, max);
            for (int step = 1; step < WARP; step *= 2)
                now = fmaxf(now, __shfl_up_sync(FULL_MASK, now, (unsigned)step));
            float last = __shfl_up_sync(FULL_MASK, now, 1);
            float f = plain_exp((lane ? last : max) - now), g = plain_exp(peak - now);
            UNROLL for (int n = 0; n < WARP; n++) {
                float before = __shfl_sync(FULL_MASK, f, n), by = __shfl_sync(FULL_MASK, g, n);
                float more = __shfl_sync(FULL_MASK, total, n);
                if (chunk + n < chunks) {
                    sum = fmaf(sum, before, more * by);
                    value = fmaf(value, before, x[n] * by);
                }
            }
            max = __shfl_sync(FULL_MASK, now, WARP - 1);
        }
        if (left > chunks && threadIdx.x == 0 && first == 0) {
            so_far[0] = max;
            so_far[1] = sum;
        }
        if (first + lane < a.value_dim) {
            if (left > chunks)
                so_far[2 + i] = value;
            else
                device_pointer<float>(a.out)[((int64_t)row * a.heads + head) * a.value_dim + i] =
                    normalised_output(a, head, max, sum, value);
        }
    }
}

static struct attention_pieces pieces_of(const struct attention_args *a)
{
    size_t number = cache_size(a->format), key = (size_t)a->head_dim * number, value = (size_t)a->value_dim * number;
    size_t pitch = (key + 127) / 128 * 128 + ATTENTION_CHAINS * number, rest = attention_floats(a) * sizeof(float);
    size_t room = rest < ATTENTION_ROOM ? (ATTENTION_ROOM - rest) / 2 : 0;
    room = room < ATTENTION_PIECE ? room : ATTENTION_PIECE;
    int keys = (int)(room / pitch) / ATTENTION_HALVES * ATTENTION_HALVES;
    keys = min(keys, (int)ATTENTION_CHUNK);
    size_t wide = room / ATTENTION_CHUNK / 16 * 16, all = (value + 15) / 16 * 16;
    wide = wide < all ? wide : all;
    return {keys ? keys : (int)ATTENTION_HALVES, (int)(pitch / number), (int)((wide ? wide : 16) / number),
            (a->k.address | a->v.address | key | value) % 16 == 0};
}

/* Returns the max chunks of a row. */
static int chunks_of(const struct attention_args *a)
{
    int chunks = (int)blocks_for(a->longest ? a->longest : a->capacity, ATTENTION_CHUNK);
    int within = a->window / ATTENTION_CHUNK + 2;
    return a->window && within < chunks ? within : chunks;
}

/* Returns the rows that fit into the scratch at a time. If not even one row fits, reduces batch->chunks to the chunks that
 * fit. */
static int batch_of(const struct attention_args *a, struct attention_batch *batch)
{
    uint64_t part = (uint64_t)a->heads * (uint64_t)(a->value_dim + 2) * sizeof(float), fit = batch->scratch.bytes / part;
    uint64_t rows = fit / (unsigned)(batch->chunks + 1);
    assert(fit >= 2);                               /* the plug-in allocates enough */
    if (rows < 1)
        batch->chunks = (int)fit - 1;
    return rows < 1 ? 1 : rows < (unsigned)a->rows ? (int)rows : a->rows;
}

/* Returns the number of rows per block: the largest that leaves enough blocks for the device. */
static int rows_each(const struct queue *queue, const struct attention_args *a, const struct attention_pieces *p, int rows,
                     int chunks)
{
    const struct cuda_context *context = (const struct cuda_context *)queue->state;
    const int64_t enough = context->blocks ? context->blocks : ATTENTION_BLOCKS;
    int each = ATTENTION_SHARED;
    if (!cuda_enabled(queue, CUDA_TREE) || a->window || p->keys < ATTENTION_CHUNK || p->wide < a->value_dim)
        return 1;
    while (each > 1 && (int64_t)blocks_for(rows, each) * a->kv_heads * chunks < enough)
        each /= 2;
    return each;
}

template <int FORMAT> static void attention_launch(struct queue *queue, const struct attention_args *a)
{
    struct attention_pieces p = pieces_of(a);
    const int chunks = chunks_of(a);
    struct attention_batch batch = {((const struct cuda_context *)queue->state)->scratch, 0, 0, chunks, 1};
    size_t number = cache_size(a->format), rest = attention_floats(a) * sizeof(float);
    size_t bytes = piece_bytes(p, number, true) + piece_bytes(p, number, false) + rest;
    const int fit = batch_of(a, &batch);
    batch.each = rows_each(queue, a, &p, fit, batch.chunks);
    unsigned wide = (unsigned)min((int)blocks_for(ATTENTION_BLOCKS, a->kv_heads), batch.chunks);
    dev_stream stream = cuda_stream(queue);
    for (; batch.first < a->rows; batch.first += fit)
        for (batch.begin = 0; batch.begin < chunks; batch.begin += batch.chunks) {
            unsigned rows = (unsigned)min(fit, a->rows - batch.first);
            LAUNCH_PDL((attention_part_kernel<FORMAT>),
                       dim3(wide, (unsigned)a->kv_heads, blocks_for(rows, batch.each)), dim3(ATTENTION_THREADS), bytes,
                       stream, *a, p, batch, (int)rows, cuda_live(queue));
            LAUNCH_PDL(attention_join_kernel, dim3((unsigned)a->heads, rows), dim3(ATTENTION_THREADS), 0, stream, *a, batch,
                       cuda_live(queue));
        }
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
