/* What draft heads need beside the operations of their targets: activations of layers without a gate, sums of experts whose
 * weights a head makes itself, and logits of two branches under one softmax. Layers that norm what they add use activate, too.
 *
 * `rows` is at most 512. All numbers are f32. A row's bits depend on that row alone. Strides count floats, 0: rows lie without
 * a gap. Every step is rounded as written, so that the bits are the same on all devices. */
#ifndef MOE_KERNELS_MIX_H
#define MOE_KERNELS_MIX_H

#include "kernels/buffer.h"
#include "kernels/plain/blend.h"

enum activation {
    ACTIVATION_SILU,                     /* x sigmoid(x), plain_silu of kernels/plain/math.h */
    ACTIVATION_GELU,                     /* 0.5 x (1 + erf(x / sqrt 2)), plain_gelu there: the exact form, not that of tanh */
    ACTIVATION_TANH,                     /* plain_tanh there */
    ACTIVATION_NONE                      /* x */
};

/* out[r][i] = add[r][i] + [scale *] activation(in[r][i]), or the same without add; i < width.
 * in, add (may be none), out [rows] of their strides; out may be the same buffer as in or add, with the same stride. */
struct activate_args {
    struct buffer in, add, out;
    enum activation activation;
    float scale;                         /* 0: none */
    int rows, width, in_stride, add_stride, out_stride;
};

/* out[r][i] = log(exp(in[r][i]) + exp(add[r][i])), plain_log_add of kernels/plain/math.h; i < width. Of two logits of -inf it
 * is -inf, and NaN if one of them is NaN.
 * in, add, out [rows] of their strides; out may be the same buffer as in or add, with the same stride. */
struct log_add_args {
    struct buffer in, add, out;
    int rows, width, in_stride, add_stride, out_stride;
};

/* out[r][i] = in[r][i] + sum over the slots s of weight[r][s] * part[r][s][i], i < width.
 * in, out [rows] of their strides; may be the same buffer with the same stride. in may be none: zeros; so without slots out is
 *         cleared
 * part    [rows*slot_stride] of part_stride: row r's slots are r*slot_stride .. ; as expert_ffn leaves `partial`
 * weight  [rows][slot_stride]
 * slot_stride counts slots; 0: there are no others than those `slots`, which come first
 * Order:  sum = in; then sum = fma(weight, part, sum), slot after slot. A slot of weight 0 is no exception: it makes an
 *         infinity NaN. */
struct blend_args {
    struct buffer in, part, weight, out;
    int rows, slots, slot_stride, width, in_stride, part_stride, out_stride;
};

/* weight[r][s] = rule(logits[r][:])[s] as kernels/plain/blend.h has it, which also says in what order: the weights that blend
 * takes. With a softmax a NaN among the logits, or a largest one that is infinite, makes all of the row's weights NaN.
 * logits  [rows] of logits_stride, the first `slots` floats, or those that column names
 * weight  [rows] of weight_stride, another buffer
 * column  [rows] of column_stride i32, or none: slot s takes logits[r][column[r][s]] */
struct blend_weights_args {
    struct buffer logits, weight, column;
    enum blend_rule rule;
    int rows, slots, logits_stride, weight_stride, column_stride;
};

#endif
