/* Matrix product with one weight matrix, for the rows of one forward.
 *
 *   out[r][o] = [out[r][o] +] [scale *] ((sum over k of weight[o][k] * in[r][k]) [+ bias[o]])
 *
 * in      [rows] of in_stride floats, the first `inputs` used
 * weight  MATRIX [outputs][inputs] in any format of formats.h
 * bias    [outputs] f32, or none
 * out     [rows] of out_stride floats, the first `outputs` written; must not overlap in
 * operand [rows] scratch of operand_bytes(format, inputs)
 * ahead   memory that a later operation reads and no operation writes, such as weights: a hint, which a device may prefetch
 *         when it has read `weight`; none: no hint
 *
 * Order:  two chains of fused multiply-adds in f32 from 0, one over even k and one over odd k, each ascending; their sum
 *         (even + odd); quantised activations: see formats.h. Then + bias; then times scale, rounded; then added to out. So a
 *         row's bits do not depend on the other rows, on threads or on the instruction set. CUDA keeps this order for f32, q8
 *         and q4; for other formats it multiplies f32 activations on tensor cores, in the order that kernels/cuda/tile.h
 *         specifies. The instruction set amx keeps the order for all formats but bf16. There an activation is the sum of three
 *         bf16 parts (cpu/parts.h), and each part has its own sum, from 0: for each 32 inputs in turn two chains from 0 of
 *         fused multiply-adds, over the even and the odd ones, and sum = sum + (even + odd); subnormal parts and results are
 *         flushed to zero. Then upper + (middle + lower).
 * Rounded: if the queue has bf16_activations, products with bf16 weights round each activation to bf16 (to nearest, ties to
 *         even). Their order is one chain from 0 over the pairs of inputs 2i and 2i + 1, ascending; a missing last input is 0:
 *         sum = fma(weight[2i + 1], in[2i + 1], sum), then sum = fma(weight[2i], in[2i], sum). Subnormal factors count as zeros
 *         of their sign, and so does a result whose magnitude is below 2^-126 after rounding to 24 bits with an unbounded
 *         exponent. This is the arithmetic of x86's vdpbf16ps; all instruction sets have its bits, amx too, and the reference.
 *         Products with other formats do not change. CUDA ignores the flag, and so its device must refuse it.
 * Integers: if the queue has integer_activations, products with mxfp4 and all formats after it quantise activations as those
 *         with q8 and q4 do. All instruction sets and the reference have the same bits. CUDA ignores the flag.
 * Slab:   the rows of a SLAB are a complete section of a prompt: it has a fixed length and begins at a multiple of that length
 *         (engine_prompt of common/engine/engine.h). A device may sum the products of a slab in another order, suited to many
 *         rows, within the tolerance of tests/kernel/tolerance.h; a row's bits may then depend on all rows of its slab and on
 *         their number, but on nothing else. The caller that sets `slab` must ensure that a token's row is always in the same
 *         slab, or never in one. CUDA uses slabs (cuda/slab.h); the host and the reference ignore the flag.
 * Cost:   each weight is read once for up to 512 rows (in passes that keep a unit in cache). */
#ifndef MOE_KERNELS_LINEAR_H
#define MOE_KERNELS_LINEAR_H

#include <stdbool.h>

#include "kernels/buffer.h"
#include "kernels/formats.h"
#include "kernels/rows.h"

struct linear_args {
    struct buffer in, weight, bias, out, operand, ahead;
    enum weight_format format;
    bool add;                            /* adds to out instead of replacing it */
    bool slab;                           /* the rows are a slab */
    float scale;                         /* 0: no scale */
    int rows, inputs, outputs, in_stride, out_stride;
};

/* A norm and the product that reads its result, one after the other, bit-identical to the single operations: `out` of the norm
 * is `in` of the product, and is also written. `out` of the product must not overlap `in` of the norm. norm.rows 0: only the
 * product. */
struct norm_linear_args {
    struct norm_args norm;
    struct linear_args linear;
};

#endif
