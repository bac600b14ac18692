/* Matrix product with one weight matrix, for the rows of one forward.
 *
 *   out[r][o] = [out[r][o] +] [scale *] ((sum over k of weight[o][k] * in[r][k]) [+ bias[o]])
 *
 * in      [rows] of in_stride floats, the first `inputs` used
 * weight  MATRIX [outputs][inputs] in any format of formats.h
 * bias    [outputs] f32, or none
 * out     [rows] of out_stride floats, the first `outputs` written; must not overlap in
 * operand [rows] scratch of operand_bytes(format, inputs)
 *
 * Order:  two chains of fused multiply-adds in f32 from 0, one over even k and one over odd k, each ascending; their sum
 *         (even + odd); q8 and q4: as formats.h has it. Then + bias; then times scale, rounded; then added to out. So a row's
 *         bits do not depend on rows, threads or instruction set. CUDA keeps this order for f32, q8 and q4; other formats meet
 *         unrounded f32 activations on tensor cores, whose order is in kernels/cuda/tile.h.
 *         The instruction set amx keeps it for all formats but bf16. There an activation is the sum of three bf16 parts
 *         (cpu/parts.h). Each part has a sum of its own, from 0: for each 32 inputs in turn two chains from 0 of fused
 *         multiply-adds, over the even and the odd of them, and sum = sum + (even + odd); zeros stand for subnormal parts and
 *         results. Then upper + (middle + lower).
 * Slab:   rows of a SLAB are a stretch of a prompt that is whole: of a fixed length, at a multiple of that length from the
 *         prompt's beginning (engine_prompt of common/engine/engine.h). A device may sum their products in an order that it
 *         chooses for many rows, within the tolerance of tests/kernel/tolerance.h; a row's bits may then depend on all rows
 *         of its slab, on their number, and on nothing else. Who sets it sees to it that a token's rows are always in the
 *         same slab, or always in none. CUDA does so (cuda/slab.h); the host and the reference take no notice.
 * Cost:   each weight is read once for up to 512 rows (in passes that keep a unit in cache). */
#ifndef MOE_KERNELS_LINEAR_H
#define MOE_KERNELS_LINEAR_H

#include <stdbool.h>

#include "kernels/buffer.h"
#include "kernels/formats.h"

struct linear_args {
    struct buffer in, weight, bias, out, operand;
    enum weight_format format;
    bool add;                            /* add to out instead of replacing it */
    bool slab;                           /* rows are a slab */
    float scale;                         /* 0: none */
    int rows, inputs, outputs, in_stride, out_stride;
};

#endif
