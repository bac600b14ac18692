/* Rotary positions, the KV cache, and attention over it.
 *
 * CACHE of one layer: k [kv_heads][capacity][head_dim] and v [kv_heads][capacity][value_dim], in the cache's format: f32, f16,
 * bf16 or q8. Values are rounded to the format when they are written (to nearest, ties to even; f16 limits them to +-65504) and
 * converted exactly to f32 when they are read. In q8 the key or value of one token and one head is a row of int8 codes with one
 * f32 scale, made by plain_quantise_row (kernels/plain/quantise.h). The scales [kv_heads][capacity] follow the codes, from the
 * next multiple of 4 bytes on. The index of a token in the cache is its SLOT. Committed tokens have slot = logical position;
 * the nodes of a draft tree have the slots after them, in the order in which they were added.
 *
 * A query sees a sequence of slots in LOGICAL order: slots 0 .. prefix[r]-1, then the slots path[path_start[r]] ..
 * path[path_start[r+1]-1]. The j-th of them has logical position j, whatever its slot is. The last one is the query's own slot,
 * so there is always at least one. */
#ifndef MOE_KERNELS_ATTENTION_H
#define MOE_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/buffer.h"
#include "kernels/plain/plain.h"
#include "kernels/rows.h"

enum cache_format { CACHE_F32, CACHE_F16, CACHE_BF16, CACHE_Q8, CACHE_FORMATS };

/* Returns the bytes of one number in the cache; the scale of its row is not included. */
static inline size_t cache_size(enum cache_format format) { return format == CACHE_F32 ? 4 : format == CACHE_Q8 ? 1 : 2; }

/* Returns the bytes of the scale of a row. */
static inline size_t cache_scale(enum cache_format format) { return format == CACHE_Q8 ? sizeof(float) : 0; }

/* Returns the offset in bytes of the scales in a cache of `rows` rows. */
static inline size_t cache_scales(enum cache_format format, size_t rows, size_t width)
{
    return (rows * width * cache_size(format) + 3) / 4 * 4;
}

/* Returns the bytes of a cache of `rows` rows. */
static inline size_t cache_rows_bytes(enum cache_format format, size_t rows, size_t width)
{
    if (!cache_scale(format))
        return rows * width * cache_size(format);
    return cache_scales(format, rows, width) + rows * cache_scale(format);
}

enum { ATTENTION_CHUNK = 64, ATTENTION_HEAD_DIM_MAX = 1024 };

/* Rotates `heads` adjacent heads of each row in place. With c, s = table[position[r]][i] for i < rotary/2:
 *     halves: (x[i], x[i + rotary/2]) -> (x[i] c - x[i + rotary/2] s, x[i + rotary/2] c + x[i] s)
 * Floats rotary .. head_dim-1 of a head stay unchanged. Each product and each sum is rounded (no fused multiply-add).
 * x         [rows] of stride floats, heads*head_dim used
 * table     [positions][rotary/2][2] f32: cos, sin, including any scale factor
 * position  [rows] i32, each below the table's positions */
struct rope_args {
    struct buffer x, table, position;
    int rows, heads, head_dim, rotary, stride;
};

/* k[h][slot[r]][:] = shared[r][:] then in_k[r][h][:];   v[h][slot[r]][:] = in_v[r][h][:].
 * in_k    [rows] of stride floats, kv_heads * (head_dim - shared_width) used;   in_v likewise, kv_heads * value_dim
 * shared  [rows] of shared_stride floats, shared_width used: the beginning of the keys of all heads; none if shared_width is 0
 * slot    [rows] i32, distinct, each below capacity */
struct kv_write_args {
    struct buffer in_k, in_v, shared, k, v, slot;
    enum cache_format format;
    int rows, kv_heads, head_dim, value_dim, capacity, stride, shared_width, shared_stride;
};

/* All steps between a layer's projections and its attention in one operation. The result is bit-identical to the members one
 * after the other, except that in_k of `write` is undefined afterwards.
 * q_norm, k_norm  address of weight 0: none;   clamp  limit 0: none;   q_rope, k_rope and write process the same rows */
struct qkv_args {
    struct norm_args q_norm, k_norm;
    struct clamp_args clamp;
    struct rope_args q_rope, k_rope;
    struct kv_write_args write;
};

/* Copies slot from[i] to slot to[i], one after the other in ascending i. from must ascend, and from[i] >= to[i]. */
struct kv_move_args {
    struct buffer k, v, from, to;
    enum cache_format format;
    int count, kv_heads, head_dim, value_dim, capacity;
};

/* out[r][h][:] = sum over the visible j of softmax_j(scale * q[r][h] . k[h'][slot_j]) * v[h'][slot_j],
 * h' = h * kv_heads / heads. kv_heads divides heads; head_dim and value_dim are at most ATTENTION_HEAD_DIM_MAX.
 *
 * q           [rows] of stride floats, heads*head_dim used;   out [rows][heads*value_dim], not overlapping q
 * sink        [heads] f32: one more score per head in the softmax, without a value; address 0: none
 * prefix      [rows] i32;   path_start [rows+1] i32;   path i32 (see above)
 * window      0: every j is visible; else only j > own position - window, or with `aligned` only j >= own position - own
 *             position % window (chunked attention)
 * longest     upper bound of the positions of a row's sequence; 0: unknown, so the capacity is the bound
 *
 * In q8, k and v are codes, and sums are integers (below 2^24). The query is quantised like a key, to codes with a scale t:
 * s_j = (dot * scale of key j) * (scale * t), where dot is the integer product of codes, and each product is rounded. After l
 * was summed, w_j = p_j * scale of value j (rounded) are quantised together, to codes c_j with a scale u
 * (plain_quantise_shares). a = sum of c_j * v_j is an integer, and A = fma(A, f, a * (g * u)); before the first chunk A is 0,
 * and there f and g are 1.
 *
 * Order:  The logical positions are divided into chunks of 64, from position 0. In a chunk, over its visible positions
 *         ascending: score s_j = scale * dot(q, k_j); m = max s_j; p_j = exp(s_j - m); l = sum of p_j: 16 partial sums (the
 *         j-th visible position of the chunk, mod 16), then halves; a = sum of p_j * v_j by fused multiply-add from 0. The
 *         chunks are joined in ascending order: M' = max(M, m), f = exp(M - M'), g = exp(m - M'), L = fma(L, f, l * g), A =
 *         fma(A, f, a * g), starting with the values of the first chunk. A sink is joined last, as a chunk of m = sink, l = 1,
 *         a = 0. out = A / L. A dot product is 16 partial sums (index mod 16) by fused multiply-add in ascending order, then
 *         halves. "Halves" means additions 8+8, 4+4, 2+2, 1+1. exp is plain_exp of kernels/plain/math.h. So a row's bits depend
 *         on its own sequence only. */
struct attention_args {
    struct buffer q, k, v, sink, prefix, path_start, path, out;
    float scale;
    enum cache_format format;
    int rows, heads, kv_heads, head_dim, value_dim, capacity, stride, window, longest;
    bool aligned;
};

/* Returns the first visible position of a query whose sequence has `length` positions. */
PLAIN int attention_first(const struct attention_args *args, int length)
{
    const int window = args->window;
    return !window || length <= window ? 0 : args->aligned ? (length - 1) / window * window : length - window;
}

#endif
