/* Operations that process each row of a forward by itself: embedding, norm, clamp, gather.
 *
 * `rows` is at most 512. All activations are f32. A row's bits depend on that row only. Strides count floats. */
#ifndef MOE_KERNELS_ROWS_H
#define MOE_KERNELS_ROWS_H

#include <stdbool.h>

#include "kernels/buffer.h"
#include "kernels/formats.h"

/* out[r][:] = table[token[r]][:], converted exactly to f32, times scale (0: none).
 * token [rows] i32, each in 0 .. vocab-1; table a MATRIX [vocab][hidden]; out [rows] of out_stride (0: hidden), the first
 * `hidden` floats are written, so that several rows can be concatenated in one buffer. */
struct embed_args {
    struct buffer token, table, out;
    enum weight_format format;
    float scale;
    int rows, vocab, hidden, out_stride;
};

/* Root-mean-square norm of `parts` adjacent pieces of each row:
 *     out[r][p][i] = in[r][p][i] / sqrt(mean over i of in[r][p][i]^2 + epsilon) * weight[i]
 * or, with center, LayerNorm, which subtracts the mean first (variance without correction) and adds bias [width] f32:
 *     out[r][p][i] = (in[r][p][i] - mean of in[r][p]) / sqrt(variance of in[r][p] + epsilon) * weight[i] + bias[i]
 * in  [rows] of in_stride,  first parts*width floats used;  out [rows] of out_stride; may be the same buffer as in
 * weight [width] f32, none: 1; bias none: 0. All parts share them (one part: a layer's norm, or OLMoE's norm over all of q;
 *        heads as parts: Qwen3's). With `apart` each part has weights of its own, [parts][width], and there is no bias (the
 *        groups of Mamba-2's norm).
 * Order: 16 partial sums (index mod 16) by fused multiply-add in ascending index, then halves added: 8+8, 4+4, 2+2, 1+1;
 *        the mean is their sum / width; out = in * (1 / sqrt(mean + epsilon)) * weight from left to right, without weight the
 *        first product only. With center the mean is summed in the same way, with additions only, and subtracted from each
 *        value first; then + bias. */
struct norm_args {
    struct buffer in, weight, bias, out;
    float epsilon;
    bool center, apart;
    int rows, parts, width, in_stride, out_stride;
};

/* x = min(max(x, -limit), limit) for the first `width` floats of each row, in place (OLMo's clip_qkv). */
struct clamp_args {
    struct buffer x;
    float limit;
    int rows, width, stride;
};

/* out[i][:] = in[index[i]][:]; index [count] i32 in 0 .. rows-1; in [rows] of in_stride, out [count] of out_stride (0: width),
 * the first `width` floats of each. in and out must not overlap. */
struct gather_args {
    struct buffer in, index, out;
    int rows, count, width, in_stride, out_stride;
};

#endif
