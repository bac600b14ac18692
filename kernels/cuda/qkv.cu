/* kernels/attention.h: qkv, five operations in one launch. A block of 128 threads loads a head of a row, of q or k (and then
 * of v), into shared memory, norms it as norm.cu does, rotates it, and writes it back or into the cache. Where one norm covers
 * all heads (OLMoE), a block of 512 threads loads all of q or of k. The weights of norms are prefetched while the previous
 * launch still runs. Every rounding is that of the separate operations, which compute all other shapes (other norms, a limit,
 * or no keys of their own). */
#include "kernels/cuda/cache.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/norm.h"

enum { WHOLE_THREADS = 512 };

/* Returns float i of a head x after rotation; `turn` contains cosine and sine of each pair. */
DEVICE float rotated(const float *x, const float *turn, int half, int i)
{
    if (i >= 2 * half)
        return x[i];
    int pair = i < half ? i : i - half;
    float low = x[pair], high = x[pair + half], cosine = turn[2 * pair], sine = turn[2 * pair + 1];
    return i < half ? low * cosine - high * sine : high * cosine + low * sine;
}

/* Processes one head of q or of k (WHOLE: all heads, which share one norm) with THREADS threads. */
template <bool WHOLE, int THREADS> DEVICE void qkv_part(const struct qkv_args &a, const int32_t *live)
{
    SHARED_DYN(float, x);
    SHARED(float, factor, 1);
    const int parts = WHOLE ? 1 : a.q_rope.heads;               /* of q */
    const bool query = (int)blockIdx.x < parts, first = blockIdx.x == 0 || (int)blockIdx.x == parts;
    const int64_t head = query ? (int)blockIdx.x : (int)blockIdx.x - parts, row = blockIdx.y;
    const int heads = WHOLE ? (query ? a.q_rope.heads : a.k_rope.heads) : 1;
    const int width = a.write.head_dim, all = heads * width, half = a.q_rope.rotary / 2, wide = query ? 0 : a.write.value_dim;
    const float *weight = device_pointer<float>(query ? a.q_norm.weight : a.k_norm.weight);
    if (first && blockIdx.y == 0 && threadIdx.x == 0 && weight)
        prefetch_floats(weight, all);
    pdl_begin();
    if (not_live(live, blockIdx.y))
        return;
    const int64_t slot = query ? 0 : device_pointer<int32_t>(a.write.slot)[row];
    float *in = device_pointer<float>(query ? a.q_rope.x : a.k_rope.x) + row * a.write.stride + head * width;
    const float *v = device_pointer<float>(a.write.in_v) + row * a.write.stride + head * wide;
    const float *turn = device_pointer<float>(a.q_rope.table);
    turn += (int64_t)device_pointer<int32_t>(a.q_rope.position)[row] * 2 * half;
    for (int i = (int)threadIdx.x; i < all; i += THREADS)
        x[i] = in[i];
    __syncthreads();
    if (weight) {
        if (warp_id() == 0) {
            float found = norm_factor(x, all, query ? a.q_norm.epsilon : a.k_norm.epsilon);
            if (lane_id() == 0)
                factor[0] = found;
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < all; i += THREADS)
            x[i] = x[i] * factor[0] * weight[i];
        __syncthreads();
    }
    for (int i = (int)threadIdx.x; i < all; i += THREADS) {
        const int own = WHOLE ? i / width : 0, at = i - own * width;
        float value = rotated(x + own * width, turn, half, at);
        if (query)
            in[i] = value;
        else
            cache_put(a.write.format, device_pointer<void>(a.write.k),
                      ((head + own) * a.write.capacity + slot) * width + at, value);
    }
    for (int i = (int)threadIdx.x; i < heads * wide; i += THREADS) {
        const int own = WHOLE ? i / wide : 0;
        cache_put(a.write.format, device_pointer<void>(a.write.v),
                  ((head + own) * a.write.capacity + slot) * wide + i - own * wide, v[i]);
    }
}

__global__ void __launch_bounds__(NORM_THREADS) qkv_kernel(struct qkv_args a, const int32_t *live)
{
    qkv_part<false, NORM_THREADS>(a, live);
}

__global__ void __launch_bounds__(WHOLE_THREADS) qkv_whole_kernel(struct qkv_args a, const int32_t *live)
{
    qkv_part<true, WHOLE_THREADS>(a, live);
}

/* Returns whether the norm is in place, on the rows that are rotated. */
static bool in_place(const struct norm_args *norm, const struct rope_args *rope)
{
    return !norm->center && norm->in.address == rope->x.address && norm->out.address == rope->x.address &&
           norm->in_stride == rope->stride && norm->out_stride == rope->stride;
}

static bool by_heads(const struct norm_args *norm, const struct rope_args *rope)
{
    return !norm->weight.address || (in_place(norm, rope) && norm->parts == rope->heads && norm->width == rope->head_dim);
}

static bool of_all(const struct norm_args *norm, const struct rope_args *rope)
{
    return norm->weight.address && in_place(norm, rope) && norm->parts == 1 && norm->width == rope->heads * rope->head_dim;
}

void cuda_qkv(struct queue *queue, const struct qkv_args *a)
{
    const struct rope_args *q = &a->q_rope, *k = &a->k_rope;
    bool alike = q->head_dim == k->head_dim && q->rotary == k->rotary && q->stride == k->stride &&
                 q->table.address == k->table.address && q->position.address == k->position.address;
    bool own = a->write.shared_width == 0 && a->write.in_k.address == k->x.address && a->write.kv_heads == k->heads &&
               a->write.head_dim == k->head_dim && a->write.stride == k->stride;
    const bool whole = of_all(&a->q_norm, q) && of_all(&a->k_norm, k);
    if (a->clamp.limit > 0 || !alike || !own || (!whole && (!by_heads(&a->q_norm, q) || !by_heads(&a->k_norm, k))))
        ops_qkv_in_turn(&cuda_ops, queue, a);
    else if (a->write.rows < 1)
        return;
    else if (whole)
        LAUNCH_PDL(qkv_whole_kernel, dim3(2, (unsigned)a->write.rows), dim3(WHOLE_THREADS),
                   (size_t)(q->heads > k->heads ? q->heads : k->heads) * (size_t)q->head_dim * sizeof(float),
                   cuda_stream(queue), *a, cuda_live(queue));
    else
        LAUNCH_PDL(qkv_kernel, dim3((unsigned)(q->heads + k->heads), (unsigned)a->write.rows), dim3(NORM_THREADS),
                   (size_t)q->head_dim * sizeof(float), cuda_stream(queue), *a, cuda_live(queue));
}
