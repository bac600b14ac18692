/* kernels/delta.h: short_conv, delta_keys and delta. Rows depend on rows before them in the same call, by slots; so threads
 * own columns (a channel of the convolution, a decay, 32 values of a head) and compute all rows of these in order. Only what
 * a row computes from a state that exists is shared among warps: products with the state, and dot products of keys. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/norm.h"
#include "kernels/plain/math.h"

/* ---- short_conv ---- */

__global__ void conv_store_kernel(struct short_conv_args a, const int32_t *live)
{
    pdl_begin();
    const int64_t c = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (c >= a.width || not_live(live, row))
        return;
    device_pointer<float>(a.cache)[device_pointer<int32_t>(a.slot)[row] * (int64_t)a.width + c] =
        device_pointer<float>(a.in)[row * a.in_stride + c];
}

/* store: a call of one row stores its input here. */
__global__ void conv_kernel(struct short_conv_args a, bool store, const int32_t *live)
{
    const int64_t c = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    const int past = a.taps - 1;
    pdl_begin();
    if (c >= a.width || not_live(live, row))
        return;
    float *cache = device_pointer<float>(a.cache) + c;
    const float own = device_pointer<float>(a.in)[row * a.in_stride + c];
    float sum = 0.0f;
    if (store)
        cache[device_pointer<int32_t>(a.slot)[row] * (int64_t)a.width] = own;
    for (int t = 0; t < a.taps; t++) {
        const int32_t from = t < past ? device_pointer<int32_t>(a.before)[row * past + t] : 0;
        if (from >= 0)
            sum = fmaf(device_pointer<float>(a.weight)[(int64_t)t * a.width + c],
                       t < past ? cache[from * (int64_t)a.width] : own, sum);
    }
    if (a.bias.address)
        sum = sum + device_pointer<float>(a.bias)[c];
    device_pointer<float>(a.out)[row * a.out_stride + c] = a.silu ? plain_silu(sum) : sum;
}

void cuda_short_conv(struct queue *queue, const struct short_conv_args *args)
{
    const dim3 grid(blocks_for(args->width, 128), (unsigned)args->rows), block(128);
    if (args->rows < 1)
        return;
    if (args->rows > 1)
        LAUNCH_PDL(conv_store_kernel, grid, block, 0, cuda_stream(queue), *args, cuda_live(queue));
    LAUNCH_PDL(conv_kernel, grid, block, 0, cuda_stream(queue), *args, args->rows == 1, cuda_live(queue));
}

/* ---- delta_keys ---- */

enum { KEYS_WARPS = 4, KEYS_THREADS = KEYS_WARPS * WARP };

/* A warp norms one q or k of one row, and stores k. */
DEVICE void keys_norm(const struct delta_keys_args *a, int64_t row, int part)
{
    const int dim = a->key_dim;
    float *own = device_pointer<float>(a->x) + row * a->stride + (int64_t)part * dim;
    if (recurrence_corrects(a->kind)) {
        const float factor = 1.0f / sqrtf(sum_chains(norm_chain<true>(own, dim)) + a->epsilon);
        const float more = part < a->key_heads ? 1.0f / sqrtf((float)dim) : 1.0f;
        __syncwarp();
        for (int i = lane_id(); i < dim; i += WARP)
            own[i] = own[i] * factor * more;
    }
    if (part < a->key_heads)
        return;
    const int64_t slot = device_pointer<int32_t>(a->slot)[row];
    float *key = device_pointer<float>(a->key) + (slot * a->key_heads + part - a->key_heads) * dim;
    for (int i = lane_id(); i < dim; i += WARP)
        key[i] = own[i];
}

/* A thread computes one decay of all rows: it continues that of the row's parent. */
DEVICE void keys_decay(const struct delta_keys_args *a, int64_t i, int each, int rows)
{
    const int64_t h = i / each, all = (int64_t)a->value_heads * each;
    const int32_t *slot = device_pointer<int32_t>(a->slot), *parent = device_pointer<int32_t>(a->parent);
    const float bias = device_pointer<float>(a->step_bias)[i], *step = device_pointer<float>(a->step) + i;
    const float neg_a = a->kind == RECURRENCE_SCAN ? 0.0f : device_pointer<float>(a->neg_a)[h];
    float *decay = device_pointer<float>(a->decay) + i;
    for (int64_t r = 0; r < rows; r++) {
        const float x = step[r * a->step_stride] + bias, t = a->floor < 0 ? 0.0f : plain_log_add(x, 0.0f);
        if (a->kind == RECURRENCE_SCAN) {
            decay[slot[r] * all] = t;
            continue;
        }
        const float g = a->floor < 0 ? a->floor * plain_sigmoid(-neg_a * x) : neg_a * t;
        decay[slot[r] * all] = parent[r] < 0 ? g : g + decay[parent[r] * all];
        if (i % each == 0)
            device_pointer<float>(a->beta)[r * a->value_heads + h] =
                recurrence_corrects(a->kind) ? plain_sigmoid(device_pointer<float>(a->rate)[r * a->gate_stride + h]) : t;
    }
}

/* norm_blocks: the blocks from 0 on that norm; the others compute decays. */
__global__ void keys_kernel(struct delta_keys_args a, unsigned norm_blocks, const int32_t *live)
{
    pdl_begin();
    const int rows = live_rows(live, a.rows), each = recurrence_decays(a.kind, a.key_dim, a.value_dim);
    if (blockIdx.x < norm_blocks) {
        const int64_t at = (int64_t)blockIdx.x * KEYS_WARPS + warp_id(), row = at / (2 * a.key_heads);
        if (row < rows)
            keys_norm(&a, row, (int)(at % (2 * a.key_heads)));
    } else {
        const int64_t i = (int64_t)(blockIdx.x - norm_blocks) * KEYS_THREADS + threadIdx.x;
        if (i < (int64_t)a.value_heads * each)
            keys_decay(&a, i, each, rows);
    }
}

void cuda_delta_keys(struct queue *queue, const struct delta_keys_args *args)
{
    const int64_t decays = (int64_t)args->value_heads * recurrence_decays(args->kind, args->key_dim, args->value_dim);
    const unsigned norm_blocks = blocks_for((int64_t)args->rows * 2 * args->key_heads, KEYS_WARPS);
    if (args->rows > 0)
        LAUNCH_PDL(keys_kernel, dim3(norm_blocks + blocks_for(decays, KEYS_THREADS)), dim3(KEYS_THREADS), 0,
                   cuda_stream(queue), *args, norm_blocks, cuda_live(queue));
}

/* ---- delta ---- */

/* A block computes 32 values of a head, one for each lane of a warp, with eight warps. Rows are taken GROUP at a time while
 * they read the same state. A state is read in tiles of TILE_KEYS keys. */
enum { GROUP = 4, DELTA_WARPS = 8, DELTA_THREADS = DELTA_WARPS * WARP, TILE_KEYS = 128 };

/* One value head, and one of its values. */
struct delta_head {
    const float *key, *decay;            /* at slot 0, of this head */
    float *correction, *state;           /* at slot 0 and state 0, of this head and value */
    int64_t key_step, value_step, decay_step, state_step;
    int number, key_number, value;
    bool inside;                         /* value < value_dim */
};

DEVICE struct delta_head delta_head_of(const struct delta_args *a)
{
    struct delta_head head;
    const int decays = recurrence_decays(a->kind, a->key_dim, a->value_dim);
    head.number = (int)blockIdx.x;
    head.key_number = a->tiled ? head.number % a->key_heads : head.number * a->key_heads / a->value_heads;
    head.value = (int)blockIdx.y * WARP + lane_id();
    head.inside = head.value < a->value_dim;
    head.key_step = (int64_t)a->key_heads * a->key_dim;
    head.value_step = (int64_t)a->value_heads * a->value_dim;
    head.decay_step = (int64_t)a->value_heads * decays;
    head.state_step = head.value_step * a->key_dim;
    head.key = device_pointer<float>(a->key) + (int64_t)head.key_number * a->key_dim;
    head.decay = device_pointer<float>(a->decay) + (int64_t)head.number * decays;
    head.correction = device_pointer<float>(a->correction) + (int64_t)head.number * a->value_dim + head.value;
    head.state = device_pointer<float>(a->state) + (int64_t)head.number * a->key_dim * a->value_dim + head.value;
    return head;
}

/* The path of a row: `count` slots of its segment, and before them those of the segment before if `before` is not
 * DELTA_KEPT. */
struct delta_row {
    const int32_t *path;
    int own, before, count;
};

DEVICE struct delta_row delta_row_of(const struct delta_args *a, int row)
{
    const int32_t *start = device_pointer<int32_t>(a->path_start) + row;
    const int before = device_pointer<int32_t>(a->before)[row], past = before == DELTA_KEPT ? 0 : DELTA_BORDER;
    return {device_pointer<int32_t>(a->path) + start[0] + past, device_pointer<int32_t>(a->own)[row], before,
            start[1] - start[0] - past};
}

/* Returns e^(decay at slot `end` - that at slot `begin`) of key i; begin < 0: e^(decay at `end`). */
DEVICE float delta_factor(const struct delta_head *head, bool channels, int64_t end, int64_t begin, int i)
{
    const float *decay = head->decay + (channels ? i : 0);
    const float last = decay[end * head->decay_step];
    return plain_exp(begin < 0 ? last : last - decay[begin * head->decay_step]);
}

/* Computes the block's part of the state after the segment before the row's: each warp some of its keys. */
DEVICE void make_state(const struct delta_args *a, const struct delta_head *head, const struct delta_row *row, float *share)
{
    const int32_t *path = row->path - DELTA_BORDER;
    const bool channels = a->kind == RECURRENCE_CHANNEL;
    const int64_t end = path[DELTA_BORDER - 1];
    const float *from = head->state + row->before * head->state_step;
    float *to = head->state + row->own * head->state_step, u[DELTA_BORDER];
    if (threadIdx.x < DELTA_BORDER && !channels)
        share[threadIdx.x] = delta_factor(head, false, end, path[threadIdx.x], 0);
    UNROLL for (int s = 0; s < DELTA_BORDER; s++)
        u[s] = head->inside ? head->correction[path[s] * head->value_step] : 0.0f;
    __syncthreads();
    for (int i = warp_id(); i < a->key_dim; i += DELTA_WARPS) {
        const float factor = delta_factor(head, channels, end, -1, i);
        float sum = row->before >= 0 && head->inside ? factor * from[(int64_t)i * a->value_dim] : 0.0f;
        UNROLL for (int s = 0; s < DELTA_BORDER; s++) {
            const float key = head->key[path[s] * head->key_step + i];
            sum = fmaf(channels ? key * delta_factor(head, true, end, path[s], i) : share[s] * key, u[s], sum);
        }
        if (head->inside)
            to[(int64_t)i * a->value_dim] = sum;
    }
}

/* Returns number `of` of what a row multiplies a state by: of its key, or of its query. With decays of channels, these are
 * applied. */
DEVICE float operand(const struct delta_args *a, const struct delta_head *head, int row, int64_t slot, bool query, int i)
{
    const float x = query ? device_pointer<float>(a->q)[(int64_t)row * a->stride + (int64_t)head->key_number * a->key_dim + i]
                          : head->key[slot * head->key_step + i];
    return a->kind == RECURRENCE_CHANNEL ? x * delta_factor(head, true, slot, -1, i) : x;
}

/* Computes k^T S and q^T S for each row of the group: products 2 r and 2 r + 1, each of a float for each lane. A warp computes
 * one of them. */
DEVICE void state_products(const struct delta_args *a, const struct delta_head *head, const struct delta_row *row, int first,
                           int rows, float *tile, float *product)
{
    const float *state = head->state + row->own * head->state_step;
    const int item = warp_id(), r = item / 2;
    const bool query = item % 2 != 0, computes = r < rows && (query || recurrence_corrects(a->kind));
    const struct delta_row own = delta_row_of(a, first + (computes ? r : 0));
    const int64_t slot = own.path[own.count - 1];
    float sum = 0.0f;
    for (int begin = 0; begin < a->key_dim; begin += TILE_KEYS) {
        const int keys = a->key_dim - begin < TILE_KEYS ? a->key_dim - begin : TILE_KEYS;
        __syncthreads();
        UNROLL for (int n = 0; n < TILE_KEYS / DELTA_WARPS; n++) {
            const int i = warp_id() + n * DELTA_WARPS;
            if (i < keys)
                tile[i * WARP + lane_id()] = head->inside ? state[(int64_t)(begin + i) * a->value_dim] : 0.0f;
        }
        __syncthreads();
        for (int base = 0; computes && base < keys; base += WARP) {
            const float x = base + lane_id() < keys ? operand(a, head, first + r, slot, query, begin + base + lane_id()) : 0.0f;
            for (int i = 0; i < WARP; i++) {
                const float by = __shfl_sync(FULL_MASK, x, i);
                if (base + i < keys)
                    sum = fmaf(by, tile[(base + i) * WARP + lane_id()], sum);
            }
        }
    }
    if (computes)
        product[item * WARP + lane_id()] = sum;
}

/* Computes weight[2 r][i] and weight[2 r + 1][i], by which row r multiplies the correction of slot i of its path: for its own
 * correction and for its output. The row's own slot has a weight for the output alone. A warp computes one dot product. */
DEVICE void path_weights(const struct delta_args *a, const struct delta_head *head, int first, int rows, float *weight)
{
    const bool channels = a->kind == RECURRENCE_CHANNEL;
    for (int item = warp_id(); item < rows * 2 * DELTA_BORDER; item += DELTA_WARPS) {
        const int r = item / (2 * DELTA_BORDER), query = item / DELTA_BORDER % 2, i = item % DELTA_BORDER;
        const struct delta_row row = delta_row_of(a, first + r);
        if (i >= row.count - !query || (!query && !recurrence_corrects(a->kind)))
            continue;
        const int64_t slot = row.path[row.count - 1], other = row.path[i];
        const bool own = i == row.count - 1;
        const float *past = head->key + other * head->key_step, *x = head->key + slot * head->key_step;
        float total = 0.0f;
        if (query)
            x = device_pointer<float>(a->q) + (int64_t)(first + r) * a->stride + (int64_t)head->key_number * a->key_dim;
        for (int n = lane_id() % NORM_CHAINS; n < a->key_dim; n += NORM_CHAINS)
            total = fmaf(x[n], channels && !own ? past[n] * delta_factor(head, true, slot, other, n) : past[n], total);
        total = sum_chains(total);
        if (!channels && !own)
            total = delta_factor(head, false, slot, other, 0) * total;
        if (lane_id() == 0)
            weight[item] = query ? total : -total;
    }
}

/* Stores a row's corrections and outputs: one warp, a value for each lane. */
DEVICE void finish_row(const struct delta_args *a, const struct delta_head *head, int row, const float *weight,
                       const float *product)
{
    const struct delta_row at = delta_row_of(a, row);
    const int64_t slot = at.path[at.count - 1];
    const float v = device_pointer<float>(a->v)[(int64_t)row * a->value_stride + (int64_t)head->number * a->value_dim +
                                                head->value];
    const bool corrects = recurrence_corrects(a->kind);
    const float factor = a->kind == RECURRENCE_CHANNEL ? 1.0f : delta_factor(head, false, slot, -1, 0);
    float u = at.own >= 0 && corrects ? v - factor * product[lane_id()] : v;
    float out = at.own >= 0 ? factor * product[WARP + lane_id()] : 0.0f;
    for (int i = 0; i < at.count - 1; i++) {
        const float past = head->correction[at.path[i] * head->value_step];
        u = corrects ? fmaf(weight[i], past, u) : u;
        out = fmaf(weight[DELTA_BORDER + i], past, out);
    }
    u = device_pointer<float>(a->beta)[(int64_t)row * a->value_heads + head->number] * u;
    out = fmaf(weight[DELTA_BORDER + at.count - 1], u, out);
    if (a->kind == RECURRENCE_SPACE)
        out = fmaf(device_pointer<float>(a->skip)[head->number], v, out);
    head->correction[slot * head->value_step] = u;
    device_pointer<float>(a->out)[row * head->value_step + (int64_t)head->number * a->value_dim + head->value] = out;
}

__global__ void __launch_bounds__(DELTA_THREADS) delta_kernel(struct delta_args a, const int32_t *live)
{
    SHARED(float, tile, TILE_KEYS * WARP);
    SHARED(float, product, GROUP * 2 * WARP);
    SHARED(float, weight, GROUP * 2 * DELTA_BORDER);
    SHARED(float, share, DELTA_BORDER);
    pdl_begin();
    const struct delta_head head = delta_head_of(&a);
    const int count = live_rows(live, a.rows);
    for (int first = 0, rows; first < count; first += rows) {
        const struct delta_row row = delta_row_of(&a, first);
        for (rows = 1; rows < GROUP && first + rows < count; rows++) {
            const struct delta_row next = delta_row_of(&a, first + rows);
            if (next.own != row.own || next.before != DELTA_KEPT)
                break;
        }
        if (row.before != DELTA_KEPT)
            make_state(&a, &head, &row, share);
        if (row.own >= 0)
            state_products(&a, &head, &row, first, rows, tile, product);
        path_weights(&a, &head, first, rows, weight);
        __syncthreads();
        if (warp_id() == 0 && head.inside)
            for (int r = 0; r < rows; r++)
                finish_row(&a, &head, first + r, weight + r * 2 * DELTA_BORDER, product + r * 2 * WARP);
        __syncthreads();
    }
}

/* ---- RECURRENCE_SCAN ---- */

/* Returns a float of the state after `count` slots of a path, from the state `own` on. */
DEVICE float scanned(const struct delta_head *head, float slope, int own, const int32_t *path, int count, int i, int64_t at)
{
    float sum = own >= 0 ? head->state[own * head->state_step + at] : 0.0f;
    for (int s = 0; s < count; s++)
        sum = fmaf(head->key[path[s] * head->key_step + i], head->correction[path[s] * head->value_step],
                   plain_exp(slope * head->decay[path[s] * head->decay_step + head->value]) * sum);
    return sum;
}

/* Each warp computes some keys of the state after a row; one warp sums them. */
__global__ void __launch_bounds__(DELTA_THREADS) scan_kernel(struct delta_args a, const int32_t *live)
{
    SHARED(float, tile, TILE_KEYS * WARP);
    pdl_begin();
    const struct delta_head head = delta_head_of(&a);
    const int64_t values = (int64_t)head.number * a.value_dim + head.value;
    const float *slope = device_pointer<float>(a.neg_a) + (int64_t)head.number * a.key_dim * a.value_dim + head.value;
    const int count = live_rows(live, a.rows);
    for (int r = 0; r < count; r++) {
        const struct delta_row row = delta_row_of(&a, r);
        const int64_t slot = row.path[row.count - 1];
        const float *q = device_pointer<float>(a.q) + (int64_t)r * a.stride + (int64_t)head.key_number * a.key_dim;
        const float v = head.inside ? device_pointer<float>(a.v)[(int64_t)r * a.value_stride + values] : 0.0f;
        float out = 0.0f;
        if (warp_id() == 0 && head.inside)
            head.correction[slot * head.value_step] = head.decay[slot * head.decay_step + head.value] * v;
        for (int i = warp_id(); row.before != DELTA_KEPT && head.inside && i < a.key_dim; i += DELTA_WARPS) {
            const int64_t at = (int64_t)i * a.value_dim;
            head.state[row.own * head.state_step + at] =
                scanned(&head, slope[at], row.before, row.path - DELTA_BORDER, DELTA_BORDER, i, at);
        }
        for (int begin = 0; begin < a.key_dim; begin += TILE_KEYS) {
            const int keys = a.key_dim - begin < TILE_KEYS ? a.key_dim - begin : TILE_KEYS;
            __syncthreads();
            for (int i = warp_id(); head.inside && i < keys; i += DELTA_WARPS) {
                const int64_t at = (int64_t)(begin + i) * a.value_dim;
                tile[i * WARP + lane_id()] = scanned(&head, slope[at], row.own, row.path, row.count, begin + i, at);
            }
            __syncthreads();
            for (int i = 0; warp_id() == 0 && head.inside && i < keys; i++)
                out = fmaf(q[begin + i], tile[i * WARP + lane_id()], out);
        }
        if (warp_id() == 0 && head.inside)
            device_pointer<float>(a.out)[(int64_t)r * head.value_step + values] =
                fmaf(device_pointer<float>(a.skip)[values], v, out);
    }
}

void cuda_delta(struct queue *queue, const struct delta_args *args)
{
    const dim3 grid((unsigned)args->value_heads, blocks_for(args->value_dim, WARP)), block(DELTA_THREADS);
    if (args->rows < 1)
        return;
    if (args->kind == RECURRENCE_SCAN)
        LAUNCH_PDL(scan_kernel, grid, block, 0, cuda_stream(queue), *args, cuda_live(queue));
    else
        LAUNCH_PDL(delta_kernel, grid, block, 0, cuda_stream(queue), *args, cuda_live(queue));
}
