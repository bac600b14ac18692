/* What draft heads need beside the operations of their targets: activations of layers without a gate, and sums of experts whose
 * weights a head makes itself.
 *
 * `rows` is at most 512. All numbers are f32. A row's bits depend on that row alone. Strides count floats, 0: rows lie without
 * a gap. Every step is rounded as written, so that the bits are the same on all devices. */
#ifndef MOE_KERNELS_MIX_H
#define MOE_KERNELS_MIX_H

#include "kernels/buffer.h"
#include "kernels/plain/blend.h"

enum activation {
    ACTIVATION_SILU,                     /* x sigmoid(x), plain_silu of kernels/plain/math.h */
    ACTIVATION_GELU                      /* 0.5 x (1 + erf(x / sqrt 2)), plain_gelu there: the exact form, not that of tanh */
};

/* out[r][i] = add[r][i] + activation(in[r][i]), or without add the activation alone; i < width.
 * in, add (may be none), out [rows] of their strides; out may be the same buffer as in or add, with the same stride. */
struct activate_args {
    struct buffer in, add, out;
    enum activation activation;
    int rows, width, in_stride, add_stride, out_stride;
};

/* out[r][i] = in[r][i] + sum over the slots s of weight[r][s] * part[r][s][i], i < width.
 * in, out [rows] of their strides; may be the same buffer with the same stride
 * part    [rows*slots] of part_stride: row r's slots are r*slots .. ; as expert_ffn leaves `partial`
 * weight  [rows][slots]
 * Order:  sum = in; then sum = fma(weight, part, sum), slot after slot. A slot of weight 0 is no exception: it makes an
 *         infinity NaN. */
struct blend_args {
    struct buffer in, part, weight, out;
    int rows, slots, width, in_stride, part_stride, out_stride;
};

/* weight[r][s] = rule(logits[r][:])[s] as kernels/plain/blend.h has it, which also says in what order: the weights that blend
 * takes. With a softmax a NaN among the logits, or a largest one that is infinite, makes all of the row's weights NaN.
 * logits  [rows] of logits_stride, the first `slots` floats; weight [rows][slots], another buffer */
struct blend_weights_args {
    struct buffer logits, weight;
    enum blend_rule rule;
    int rows, slots, logits_stride;
};

#endif
