/* Operations of training on a device's buffers: forward, gradients, losses and the optimiser's step. common/train queues them
 * on a device and does not depend on the processor.
 *
 * All numbers are f32, unless f64, i32 or i64 is written. Rows are contiguous, unless a stride is given, which counts floats.
 * Any number of rows, columns or elements may be 0, and there may be more elements than an i32 can count. Buffers that are read
 * and buffers that are written must not overlap, unless it is allowed. Row numbers and other indices are valid, because the
 * caller has checked them. Operations return no errors; errors that a device notices later are reported by queue_wait.
 *
 * Gradients are ADDED: a `gradient_to` receives +=, so its contents must be defined. A buffer of address 0 is "none", where
 * that is allowed.
 *
 * Order of sums: a result depends on the arguments only, never on threads, timing or earlier calls. So the same call is
 * bit-identical each time, and training continues from a checkpoint to the same bytes. Other shapes may change bits: a row's
 * bits may depend on the number of rows. Floating-point atomics are therefore not allowed. The host's bits also do not depend
 * on the number of threads or on the instruction set: it sums f64 in ascending order, and sums within a row in 16 lanes (index
 * mod 16, stretches of 1024, each added to an f64); its products are OpenBLAS's, in blocks that depend on the shape. Devices
 * match the reference within the tolerances of tests/kernel/test_learn.c. A NaN among the inputs of a row's result makes that
 * result NaN, and a loss computed from an infinity is not finite, so that training notices both. */
#ifndef MOE_KERNELS_LEARN_H
#define MOE_KERNELS_LEARN_H

#include <stdbool.h>

#include "kernels/buffer.h"
#include "kernels/formats.h"

struct queue;                            /* kernels/ops.h */

/* ---- products ---- */

enum learn_product {
    LEARN_ROWS,             /* c = a b^T:  a [rows][depth], b [columns][depth]       y = x W^T */
    LEARN_PLAIN,            /* c = a b:    a [rows][depth], b [depth][columns]       dx = dy W */
    LEARN_OUTER             /* c = a^T b:  a [depth][rows], b [depth][columns]       dW = dy^T x */
};

/* c [rows][columns]. Each matrix has its own stride, at least its width. add: adds to c; otherwise c is replaced, whatever it
 * contains (NaNs, too). Sums of f32 products in f32 or better: a GPU must not round factors below f32 (no TF32). depth 0: c =
 * 0, or unchanged with add. */
struct learn_product_args {
    enum learn_product kind;
    struct buffer a, b, c;
    int rows, columns, depth, a_stride, b_stride, c_stride;
    bool add;
};

/* out[o - first][i] = weight [o][i] for o = first .. first + rows - 1, exactly as matrix_at of formats.h returns it.
 * matrix  MATRIX [outputs][inputs] in `format`, any of formats.h. first is a multiple of UNIT_OUTPUTS.
 * out     [rows][inputs] */
struct learn_unpack_args {
    struct buffer matrix, out;
    enum weight_format format;
    int outputs, inputs, first, rows;
};

/* ---- elements and rows ---- */

struct learn_clear_args {
    struct buffer out;                   /* [count] = 0 */
    size_t count;
};

/* add: out[i] = a[i] + b[i]; a and b may be the same buffer. */
struct learn_add_args {
    struct buffer a, b, out;
    size_t count;
};

/* copy:        out[r][i] = in[r][i]
 * accumulate:  out[r][i] += in[r][i]
 * i < width; strides are at least width. Used to concatenate values by columns and to split their gradients. */
struct learn_copy_args {
    struct buffer in, out;
    int rows, width, in_stride, out_stride;
};

/* add_row:    out[r][i] += in[i]: a bias.                  in [width], out [rows][width]
 * sum_rows:   out[i] += sum over r of in[r][i].            in [rows][width], out [width]; the host adds row by row. */
struct learn_row_args {
    struct buffer in, out;
    int rows, width;
};

/* select:      out[i] = in[row[i]], zeros if row[i] is -1.      in [..][width], out [rows][width], row [rows] i32
 * scatter:     out[row[i]] += in[i], nothing if row[i] is -1.   in [rows][width], out [..][width]; several i may have the same
 *              row[i], and their rows are added in ascending i. */
struct learn_select_args {
    struct buffer in, row, out;
    int rows, width;
};

/* norm:        inverse[r] = 1 / sqrt(mean over i of x[r][i]^2 + epsilon); out[r][i] = weight[i] * (x[r][i] * inverse[r])
 * norm_back:   x's gradient:       gradient_to[r][i] += inverse[r] * (weight[i] g[r][i] - x[r][i] * share), share =
 *                                  inverse[r]^2 * mean over i of (weight[i] g[r][i] x[r][i])
 * norm_weight_back: weight's:      gradient_to[i] += sum over r of g[r][i] * (x[r][i] * inverse[r]); the host row by row
 * x, out, gradient (g, of out) [rows][width]; weight [width]; inverse [rows], written by the forward and read by the others.
 * gradient_to [rows][width] in norm_back, [width] in norm_weight_back. */
struct learn_norm_args {
    struct buffer x, weight, inverse, out, gradient, gradient_to;       /* out: only norm; the last two: only the others */
    float epsilon;
    int rows, width;
};

enum learn_function {
    LEARN_SILU,             /* x / (1 + exp(-x)) */
    LEARN_GELU              /* x (1 + erf(x / sqrt 2)) / 2 */
};

/* function:        out[i] = f(x[i])
 * function_back:   gradient_to[i] += gradient[i] * f'(x[i]) */
struct learn_function_args {
    enum learn_function function;
    struct buffer x, out, gradient, gradient_to;        /* out: only the forward; the last two: only back */
    size_t count;
};

/* x [rows][2 width]: gate, then up.
 * gated:           out[r][i] = silu(gate[r][i]) * up[r][i]
 * gated_back:      both halves of gradient_to [rows][2 width], from gradient [rows][width] */
struct learn_gated_args {
    struct buffer x, out, gradient, gradient_to;
    int rows, width;
};

/* ---- experts ---- */

enum learn_mix {
    LEARN_MIX_SUM,          /* softmax over the columns of all experts */
    LEARN_MIX_PAIR,         /* over those of the two experts chosen first; used is 2 */
    LEARN_MIX_CONTRAST      /* as PAIR, but the expert with the smaller column is subtracted, the first one if they are equal */
};
enum { LEARN_EXPERTS_MAX = 64 };

/* The outputs of the first `used` chosen experts of a row, each weighted by a softmax over columns of the router:
 *     column of slot s: first + choice[r][s]; softmax over the columns first .. first + experts - 1 (SUM), or over those of
 *     slots 0 and 1 (PAIR, CONTRAST)
 *     out[r] = u[r] + sum over s < used of sign[s] * weight[r][s] * made[choice[r][s]][place[r][s]]
 *     sign is 1, except with CONTRAST: -1 for slot 1 if router[column of 0] > router[column of 1], else -1 for slot 0
 * u, out  [rows][width];  router [rows][router_width]
 * choice  [rows][slots] i32 experts, distinct within a row;  place [rows][slots] i32: the row's index among those of the
 *         expert, all distinct. slots >= used, and >= 2 for PAIR and CONTRAST
 * made    [e] [..][width] outputs of expert e; none for experts that no row chose
 * back:   gradient of out [rows][width]. u_to [rows][width] or none: += gradient. router_to [rows][router_width] or none:
 *         for the softmax's columns i with weight p_i: += p_i (slope_i - sum over j of p_j slope_j), slope = sign * (gradient .
 *         made) for used slots, 0 for others. made_to[e], each as made[e] or none: += sign * weight * gradient.
 *         The sign is a constant: it has no gradient. */
struct learn_mix_args {
    enum learn_mix kind;
    /* out: only the forward; the last three: only back */
    struct buffer u, router, choice, place, out, gradient, u_to, router_to;
    struct buffer made[LEARN_EXPERTS_MAX], made_to[LEARN_EXPERTS_MAX];
    int rows, width, router_width, first, experts, slots, used;
};

/* ---- attention ---- */

/* Rotary positions. Rows of q, k, v are [heads + 2 kv_heads][head_dim], width = (heads + 2 kv_heads) * head_dim.
 * rotate:       rotates the heads of q and k and copies v: with h = head_dim / 2, (c, s) = rotation[position[r]][i]:
 *               out[i] = x[i] c - x[h + i] s;  out[h + i] = x[h + i] c + x[i] s
 * rotate_back:  adds `gradient` to gradient_to, both [rows][width], rotated back (-s) for q and k
 * x, out [rows][width];  position [rows] i32;  rotation [positions][head_dim / 2][2] */
struct learn_rotate_args {
    struct buffer x, position, rotation, out, gradient, gradient_to;    /* x, out: only the forward; the last two: only back */
    int rows, heads, kv_heads, head_dim, positions;
};

/* Attention over several texts; text t has the rows offset[t] .. offset[t + 1] - 1 (offset [texts + 1] i32, first 0, last
 * `rows`). The queries are those of qkv[steps]. Row r of a text sees the keys of qkv[0] of the text's rows up to itself, and
 * from each of qkv[1] .. qkv[steps] only the key of row r (EAGLE-3's training on its own outputs, arXiv 2503.01840 section
 * 3.2). Head h of q uses head h / (heads / kv_heads) of k and v; heads is a multiple of kv_heads.
 *     p = softmax over all visible keys of scale * q . k;  out[r] = sum of p v
 * qkv[j]  [rows][(heads + 2 kv_heads) * head_dim], rotated;  out [rows][heads * head_dim]
 * log_sum [heads][rows]: log of the sum of exp(scale q . k) over the visible keys; written by the forward, read by back
 * back:   gradient [rows][heads * head_dim] of out, and out of the forward; gradient_to[j] as qkv[j], for all j.
 * scratch attention_scratch bytes, for forward and back; nothing is kept there. longest: rows of the longest text. */
enum { LEARN_STEPS_MAX = 16 };
struct learn_attention_args {
    struct buffer qkv[LEARN_STEPS_MAX], offset, out, log_sum, scratch;
    struct buffer gradient, gradient_to[LEARN_STEPS_MAX];               /* only back */
    float scale;
    int rows, texts, longest, heads, kv_heads, head_dim, steps;         /* steps 0 .. LEARN_STEPS_MAX - 1 */
};

/* ---- losses ---- */

/* Smooth L1 loss over the rows whose target_row is not -1:
 *     d = x[r][i] - target[target_row[r]][i];  e = d^2 / 2 where |d| < 1, else |d| - 1/2
 *     loss[r] = weight[r] * mean over i of e; 0 for other rows
 *     gradient_to[r][i] += scale * weight[r] / width * min(max(d, -1), 1)         (none: not needed)
 * x [rows][width];  target [..][width];  target_row [rows] i32;  weight [rows];  loss [rows] f64 */
struct learn_smooth_args {
    struct buffer x, target, target_row, weight, loss, gradient_to;
    float scale;
    int rows, width;
};

/* The target's own distribution, from its logits [rows][vocab]. Without words: the logits become probabilities in place; p,
 * word and counts are none. With words: p [rows][words] = softmax over the ids word[w] of the vocabulary (word [words] i32, all
 * distinct), and counts [rows] i32 is 1 if the first of the row's largest logits is one of them, else 0; p of rows with 0 is
 * undefined. logits may be overwritten. */
struct learn_target_args {
    struct buffer logits, word, p, counts;
    int rows, vocab, words;
};

/* Cross-entropy losses of logits q [rows][words], whose gradients replace the logits:
 *     q += bias (or none)
 *     loss[r] = weight[r] * (log sum over w of exp(q[r][w]) - expected),   loss [rows] f64
 *     q[r][w] = scale * weight[r] * (softmax(q[r])[w] - wanted)
 *     label none: expected = sum over w of p[from[r]][w] q[r][w], wanted = p[from[r]][w];  p [..][words], from [rows] i32
 *     label:      expected = q[r][label[r]], wanted = 1 at w = label[r], else 0;           label [rows] i32; p and from: none
 * weight [rows];  bias [words] */
struct learn_judge_args {
    struct buffer logits, bias, p, from, label, weight, loss;
    float scale;
    int rows, words;
};

/* sum[0] += loss[0] + loss[1] + .., all f64; the host adds in ascending order. */
struct learn_total_args {
    struct buffer loss, sum;
    int rows;
};

/* ---- the optimiser ---- */

/* For each block of LEARN_BLOCK elements of the gradient (the last one may be shorter): the sum of squares, f64, and the number
 * of elements with a magnitude above `bound` (a NaN does not count), i64. A NaN or an infinity makes the block's sum not
 * finite. */
enum { LEARN_BLOCK = 1 << 14 };
struct learn_measure_args {
    struct buffer gradient, squares, outside;           /* [count]; [blocks] f64; [blocks] i64 */
    size_t count;
    float bound;
};

/* One step of AdamW for `count` weights, with g = min(max(gradient[i] * factor, -bound), bound):
 *     first = beta1 first + (1 - beta1) g;  second = beta2 second + (1 - beta2) g g
 *     weight = weight * keep - rate * first / (sqrt(second) * root + epsilon)
 * bound may be infinite. The gradient is not changed. */
struct learn_adam {
    float keep;             /* weight decay: 1 - rate * decay */
    float beta1, beta2;
    float rate;             /* learning rate divided by the bias correction of the first moment */
    float root;             /* 1 / square root of the bias correction of the second moment */
    float epsilon;
    float factor;           /* factor of gradients, for clipping by norm */
    float bound;            /* gradients are clamped to -bound .. bound; INFINITY: no bound */
};
struct learn_adam_args {
    struct buffer weight, first, second, gradient;      /* [count] each */
    struct learn_adam step;
    size_t count;
};

/* ---- all of them ---- */

struct learn_ops {
    void (*product)(struct queue *, const struct learn_product_args *);
    void (*unpack)(struct queue *, const struct learn_unpack_args *);
    void (*clear)(struct queue *, const struct learn_clear_args *);
    void (*add)(struct queue *, const struct learn_add_args *);
    void (*copy)(struct queue *, const struct learn_copy_args *);
    void (*accumulate)(struct queue *, const struct learn_copy_args *);
    void (*add_row)(struct queue *, const struct learn_row_args *);
    void (*sum_rows)(struct queue *, const struct learn_row_args *);
    void (*select)(struct queue *, const struct learn_select_args *);
    void (*scatter)(struct queue *, const struct learn_select_args *);
    void (*norm)(struct queue *, const struct learn_norm_args *);
    void (*norm_back)(struct queue *, const struct learn_norm_args *);
    void (*norm_weight_back)(struct queue *, const struct learn_norm_args *);
    void (*function)(struct queue *, const struct learn_function_args *);
    void (*function_back)(struct queue *, const struct learn_function_args *);
    void (*gated)(struct queue *, const struct learn_gated_args *);
    void (*gated_back)(struct queue *, const struct learn_gated_args *);
    void (*mix)(struct queue *, const struct learn_mix_args *);
    void (*mix_back)(struct queue *, const struct learn_mix_args *);
    void (*rotate)(struct queue *, const struct learn_rotate_args *);
    void (*rotate_back)(struct queue *, const struct learn_rotate_args *);
    /* Returns the bytes of scratch that attention and attention_back need with these arguments, whose buffers may still be
     * none. */
    size_t (*attention_scratch)(struct queue *, const struct learn_attention_args *);
    void (*attention)(struct queue *, const struct learn_attention_args *);
    void (*attention_back)(struct queue *, const struct learn_attention_args *);
    void (*smooth)(struct queue *, const struct learn_smooth_args *);
    void (*target)(struct queue *, const struct learn_target_args *);
    void (*judge)(struct queue *, const struct learn_judge_args *);
    void (*total)(struct queue *, const struct learn_total_args *);
    void (*measure)(struct queue *, const struct learn_measure_args *);
    void (*adam)(struct queue *, const struct learn_adam_args *);
};

#endif
