/* Operations that draft heads need in addition to those of their targets: activations of layers without a gate, sums of experts
 * whose weights the head computes itself, and logits of two branches under one softmax. Layers that norm their output before
 * the residual addition use `activate`, too.
 *
 * `rows` is at most 512. All numbers are f32. A row's bits depend on that row only. Strides count floats; 0: contiguous rows.
 * Every step is rounded as written, so that all devices give the same bits. */
#ifndef MOE_KERNELS_MIX_H
#define MOE_KERNELS_MIX_H

#include "kernels/buffer.h"
#include "kernels/plain/blend.h"

enum activation {
    ACTIVATION_SILU,                     /* x sigmoid(x), plain_silu of kernels/plain/math.h */
    ACTIVATION_GELU,             /* 0.5 x (1 + erf(x / sqrt 2)), plain_gelu there: the exact form, not the tanh approximation */
    ACTIVATION_TANH,                     /* plain_tanh there */
    ACTIVATION_NONE                      /* x */
};

/* out[r][i] = add[r][i] + [scale *] activation(in[r][i]), or the same without add; i < width.
 * in, add (or none), out [rows] of their strides; out may be the same buffer as in or add, with the same stride. */
struct activate_args {
    struct buffer in, add, out;
    enum activation activation;
    float scale;                         /* 0: no scale */
    int rows, width, in_stride, add_stride, out_stride;
};

/* out[r][i] = log(exp(in[r][i]) + exp(add[r][i])), plain_log_add of kernels/plain/math.h; i < width. The result is -inf for two
 * logits of -inf, and NaN if one of them is NaN.
 * in, add, out [rows] of their strides; out may be the same buffer as in or add, with the same stride. */
struct log_add_args {
    struct buffer in, add, out;
    int rows, width, in_stride, add_stride, out_stride;
};

/* out[r][i] = in[r][i] + sum over the slots s of weight[r][s] * part[r][s][i], i < width.
 * in, out [rows] of their strides; may be the same buffer with the same stride. in none: zeros, so without slots out is cleared
 * part    [rows*slot_stride] of part_stride: the slots of row r begin at r*slot_stride, as in `partial` of expert_ffn
 * weight  [rows][slot_stride]
 * slot_stride counts slots per row, of which only the first `slots` are used; 0: the same as `slots`
 * Order:  sum = in; then sum = fma(weight, part, sum), in slot order. A slot of weight 0 is not skipped, so an infinite part
 *         makes the sum NaN. */
struct blend_args {
    struct buffer in, part, weight, out;
    int rows, slots, slot_stride, width, in_stride, part_stride, out_stride;
};

/* weight[r][s] = rule(logits[r][:])[s], specified in kernels/plain/blend.h with its order: the weights for blend. With a
 * softmax, all weights of a row are NaN if a logit is NaN or the largest one is infinite.
 * logits  [rows] of logits_stride: the first `slots` floats, or those that column selects
 * weight  [rows] of weight_stride, another buffer
 * column  [rows] of column_stride i32, or none: slot s uses logits[r][column[r][s]] */
struct blend_weights_args {
    struct buffer logits, weight, column;
    enum blend_rule rule;
    int rows, slots, logits_stride, weight_stride, column_stride;
};

#endif
