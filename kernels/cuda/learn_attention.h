/* Shared by attention forward and backward of kernels/learn.h: a tile of 32 rows of q, k, v or of a gradient in shared memory,
 * and the two products that a warp computes from such tiles.
 *
 * The stride between rows is WIDTH + 4 floats. WIDTH = 32 EACH is the least such number that holds a head, padded with zeros.
 * With this stride, lanes that read one row each, 16 bytes at a time, read from all banks. Each warp owns four rows of the
 * result: 8 warps, 32 rows. */
#ifndef MOE_KERNELS_CUDA_LEARN_ATTENTION_H
#define MOE_KERNELS_CUDA_LEARN_ATTENTION_H

#include "kernels/cuda/learn.h"

enum { ATTEND_ROWS = 32, ATTEND_WARPS = 8, ATTEND_THREADS = ATTEND_WARPS * WARP, ATTEND_OWN = ATTEND_ROWS / ATTEND_WARPS,
       ATTEND_INVALID = 1 };             /* cudaErrorInvalidValue */

template <int EACH> struct attend_tile {
    enum { WIDTH = WARP * EACH, PITCH = WIDTH + 4, FLOATS = ATTEND_ROWS * PITCH };
};

/* One head of one text. */
struct attend_of {
    int64_t begin;           /* the text's first row */
    int rows, head;          /* rows of the text; head of q */
};

DEVICE struct attend_of attend_of_text(const struct learn_attention_args &a, int text, int head)
{
    const int32_t *offset = device_pointer<int32_t>(a.offset) + text;
    return {offset[0], offset[1] - offset[0], head};
}

/* Return the stride in floats between rows of qkv, and between rows of out. */
DEVICE int attend_width(const struct learn_attention_args &a) { return (a.heads + 2 * a.kv_heads) * a.head_dim; }
DEVICE int attend_out_width(const struct learn_attention_args &a) { return a.heads * a.head_dim; }

/* Returns the address of a row's q (0), k (1) or v (2) of head p.head, in memory that has the layout of qkv. */
DEVICE float *attend_at(const struct learn_attention_args &a, struct buffer qkv, const struct attend_of &p, int row, int which)
{
    const int kv = p.head / (a.heads / a.kv_heads);
    const int head = which == 0 ? p.head : a.heads + (which == 2 ? a.kv_heads : 0) + kv;
    return device_pointer<float>(qkv) + (p.begin + row) * attend_width(a) + (int64_t)head * a.head_dim;
}
DEVICE const float *attend_q(const struct learn_attention_args &a, const struct attend_of &p, int row)
{
    return attend_at(a, a.qkv[a.steps], p, row, 0);
}
DEVICE const float *attend_k(const struct learn_attention_args &a, const struct attend_of &p, int step, int row)
{
    return attend_at(a, a.qkv[step], p, row, 1);
}
DEVICE const float *attend_v(const struct learn_attention_args &a, const struct attend_of &p, int step, int row)
{
    return attend_at(a, a.qkv[step], p, row, 2);
}

/* Returns the address of a row of the text in memory shaped like out. */
DEVICE float *attend_out(const struct learn_attention_args &a, struct buffer out, const struct attend_of &p, int row)
{
    return device_pointer<float>(out) + (p.begin + row) * attend_out_width(a) + (int64_t)p.head * a.head_dim;
}

/* Returns the address of a row's number in memory shaped [heads][rows]. */
DEVICE float *attend_number(const struct learn_attention_args &a, struct buffer numbers, const struct attend_of &p, int row)
{
    return device_pointer<float>(numbers) + (int64_t)p.head * a.rows + p.begin + row;
}

/* Loads rows of one head, row 0 from `from`, with all threads of a block. Rows from `count` on become zeros. */
template <int EACH> DEVICE void attend_load(float *tile, const float *from, int stride, int count, int dim)
{
    typedef attend_tile<EACH> shape;
    for (int i = (int)threadIdx.x; i < ATTEND_ROWS * shape::WIDTH; i += ATTEND_THREADS) {
        const int row = i / shape::WIDTH, d = i % shape::WIDTH;
        tile[row * shape::PITCH + d] = row < count && d < dim ? from[(int64_t)row * stride + d] : 0;
    }
}

/* Computes out[i] = own[i] . other[lane], over the width in ascending order; own: the warp's four rows. */
template <int EACH> DEVICE void attend_dots(float (&out)[ATTEND_OWN], const float *own, const float *other)
{
    typedef attend_tile<EACH> shape;
    UNROLL for (int i = 0; i < ATTEND_OWN; i++)
        out[i] = 0;
    for (int d = 0; d < shape::WIDTH; d += 4) {
        const float4 y = *(const float4 *)(other + lane_id() * shape::PITCH + d);
        UNROLL for (int i = 0; i < ATTEND_OWN; i++) {
            const float4 x = *(const float4 *)(own + i * shape::PITCH + d);
            out[i] = fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, out[i]))));
        }
    }
}

/* Computes sum[i][n] += sum over r of weight[i][r] * other[r][lane + 32 n], r ascending; weight: the warp's [4][32]. */
template <int EACH>
DEVICE void attend_sums(float (&sum)[ATTEND_OWN][EACH], const float *weight, const float *other)
{
    typedef attend_tile<EACH> shape;
    for (int r = 0; r < ATTEND_ROWS; r += 4) {
        float4 w[ATTEND_OWN];
        UNROLL for (int i = 0; i < ATTEND_OWN; i++)
            w[i] = *(const float4 *)(weight + i * ATTEND_ROWS + r);
        UNROLL for (int n = 0; n < EACH; n++) {
            const float *y = other + r * shape::PITCH + lane_id() + n * WARP;
            const float y0 = y[0], y1 = y[shape::PITCH], y2 = y[2 * shape::PITCH], y3 = y[3 * shape::PITCH];
            UNROLL for (int i = 0; i < ATTEND_OWN; i++)
                sum[i][n] = fmaf(w[i].w, y3, fmaf(w[i].z, y2, fmaf(w[i].y, y1, fmaf(w[i].x, y0, sum[i][n]))));
        }
    }
}

/* Returns the dot product of a row of shared memory and one of device memory, `dim` long, in all lanes. */
DEVICE float attend_dot(const float *shared, const float *y, int dim)
{
    float sum = 0;
    for (int d = lane_id(); d < dim; d += WARP)
        sum = fmaf(shared[d], y[d], sum);
    return warp_sum(sum);
}

/* Launches the kernel for this width of heads, with this number of tiles of shared memory. Wider heads do not fit: the queue
 * reports an error. */
#define ATTEND_TRY(kernel, each, tiles, grid, stream, args) \
    LAUNCH((kernel<each>), grid, dim3(ATTEND_THREADS), sizeof(float) * tiles * attend_tile<each>::FLOATS, stream, args)
#define ATTEND_LAUNCH(kernel, tiles, grid, stream, args)                                                    \
    ((args).head_dim <= WARP       ? ATTEND_TRY(kernel, 1, tiles, grid, stream, args)                       \
     : (args).head_dim <= 2 * WARP ? ATTEND_TRY(kernel, 2, tiles, grid, stream, args)                       \
     : (args).head_dim <= 4 * WARP ? ATTEND_TRY(kernel, 4, tiles, grid, stream, args)                       \
     : (args).head_dim <= 8 * WARP ? ATTEND_TRY(kernel, 8, tiles, grid, stream, args)                       \
                                   : dev_launched(stream, ATTEND_INVALID, "attention of heads wider than 256", \
                                                  __FILE__, __LINE__))

#endif
