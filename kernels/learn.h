/* What training is made of: forwards, gradients, losses and the optimiser's step, over buffers of a device. common/train puts
 * them on a device's queue and knows of no processor.
 *
 * All numbers are f32, but where f64, i32 or i64 is written; rows lie without a gap, but where a stride is given, which counts
 * floats. Any number of rows, columns or elements may be 0, and elements may be more than an i32 counts. Buffers that are read
 * and buffers that are written do not overlap, but where it is allowed. Row numbers and the like are within what they index;
 * that was checked. Nothing here fails; what a device notices later is reported by queue_wait.
 *
 * Gradients are ADDED: a `gradient_to` receives += , and is read for that. A buffer of address 0 is "none", where that is
 * allowed.
 *
 * Order of sums: a result depends on the arguments alone, never on threads, timing or earlier calls; the same call gives the
 * same bits (training goes on from a checkpoint to the same bytes). Nothing is said of other shapes: a row's bits may depend
 * on how many there are. So there are no floating-point atomics. The host besides keeps its bits whatever its number of threads
 * and its instruction set: sums of f64 in ascending order, sums within a row in 16 lanes (index mod 16, stretches of 1024,
 * each added to an f64); its products are OpenBLAS's in blocks cut by shape. Devices meet the reference within
 * tests/kernel/test_learn.c's tolerances. A NaN among what a row's result is made of makes the row's result NaN, and a loss
 * that came of an infinity is not finite: so training notices. */
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

/* c [rows][columns]; each of a stride of its own, at least its width. add: to what is in c, else in place of it (c may then be
 * anything, NaNs too). Sums of f32 products in f32 or better: a GPU rounds no factor below f32 (no TF32). depth 0: c = 0, or
 * stays. */
struct learn_product_args {
    enum learn_product kind;
    struct buffer a, b, c;
    int rows, columns, depth, a_stride, b_stride, c_stride;
    bool add;
};

/* out[o - first][i] = weight [o][i] for o = first .. first + rows - 1, exactly as matrix_at of formats.h has it.
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

/* add:     out[i] = a[i] + b[i]; a and b may be the same. */
struct learn_add_args {
    struct buffer a, b, out;
    size_t count;
};

/* copy:        out[r][i] = in[r][i]
 * accumulate:  out[r][i] += in[r][i]
 * i < width, of strides at least width: so values are joined side by side, and parted again. */
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

/* select:      out[i] = in[row[i]], zeros where row[i] is -1.   in [..][width], out [rows][width], row [rows] i32
 * scatter:     out[row[i]] += in[i], none where it is -1.       in [rows][width], out [..][width]; a row of out may be named
 *              more than once, and gets its rows in ascending i. */
struct learn_select_args {
    struct buffer in, row, out;
    int rows, width;
};

/* norm:        inverse[r] = 1 / sqrt(mean over i of x[r][i]^2 + epsilon); out[r][i] = weight[i] * (x[r][i] * inverse[r])
 * norm_back:   x's gradient:       gradient_to[r][i] += inverse[r] * (weight[i] g[r][i] - x[r][i] * share), share =
 *                                  inverse[r]^2 * mean over i of (weight[i] g[r][i] x[r][i])
 * norm_weight_back: weight's:      gradient_to[i] += sum over r of g[r][i] * (x[r][i] * inverse[r]); the host row by row
 * x, out, gradient (g, of out) [rows][width]; weight [width]; inverse [rows], which the forward makes and the others read.
 * gradient_to [rows][width], or [width]. */
struct learn_norm_args {
    struct buffer x, weight, inverse, out, gradient, gradient_to;       /* out: norm alone; the last two: the others */
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
    struct buffer x, out, gradient, gradient_to;        /* out: forward alone; the last two: back alone */
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
    LEARN_MIX_SUM,          /* over the columns of all experts */
    LEARN_MIX_PAIR,         /* over those of the two chosen first; used is 2 */
    LEARN_MIX_CONTRAST      /* the same, and what has the smaller column, of equal ones the first, is taken away */
};
enum { LEARN_EXPERTS_MAX = 64 };

/* What the first `used` of its chosen experts make of a row, each weighed by a softmax of columns of the router:
 *     column of slot s: first + choice[r][s]; softmax over the columns first .. first + experts - 1 (SUM), or over those of
 *     slots 0 and 1 (PAIR, CONTRAST)
 *     out[r] = u[r] + sum over s < used of sign[s] * weight[r][s] * made[choice[r][s]][place[r][s]]
 *     CONTRAST: sign of slot 1 is -1 where router[column of 0] > router[column of 1], else that of slot 0
 * u, out  [rows][width];  router [rows][router_width]
 * choice  [rows][slots] i32 experts, those of a row all different;  place [rows][slots] i32: which row of the expert's it is,
 *         no two the same. slots >= used, and >= 2 for PAIR and CONTRAST
 * made    [e] [..][width], none of experts that no row chose
 * back:   gradient of out [rows][width]. u_to [rows][width] or none: += gradient. router_to [rows][router_width] or none:
 *         for the softmax's columns i with weight p_i: += p_i (slope_i - sum over j of p_j slope_j), slope = sign * (gradient .
 *         made) of slots that are used, 0 of others. made_to[e], each as made[e] or none: += sign * weight * gradient.
 *         The sign is a constant: it has no gradient. */
struct learn_mix_args {
    enum learn_mix kind;
    struct buffer u, router, choice, place, out, gradient, u_to, router_to;     /* out: forward alone; the last 3: back alone */
    struct buffer made[LEARN_EXPERTS_MAX], made_to[LEARN_EXPERTS_MAX];
    int rows, width, router_width, first, experts, slots, used;
};

/* ---- attention ---- */

/* Rows of q, k, v are [heads + 2 kv_heads][head_dim], width = (heads + 2 kv_heads) * head_dim.
 * rotate:       heads and kv_heads of q and k are turned, v is copied: with h = head_dim / 2,
 *               (c, s) = rotation[position[r]][i]:
 *               out[i] = x[i] c - x[h + i] s;  out[h + i] = x[h + i] c + x[i] s
 * rotate_back:  from gradient to gradient_to, both [rows][width]: turned back (-s), v as it is; added
 * x, out [rows][width];  position [rows] i32;  rotation [positions][head_dim / 2][2] */
struct learn_rotate_args {
    struct buffer x, position, rotation, out, gradient, gradient_to;    /* x, out: forward alone; the last two: back alone */
    int rows, heads, kv_heads, head_dim, positions;
};

/* Attention of several texts, whose rows are offset[t] .. offset[t + 1] - 1 (offset [texts + 1] i32, first 0, last `rows`).
 * Queries are those of qkv[steps]; row r of a text sees the keys of qkv[0] of the text's rows up to itself, and of each of
 * qkv[1] .. qkv[steps] that of row r alone (EAGLE-3's training by its own outputs, arXiv 2503.01840 section 3.2). Head h of q
 * has head h / (heads / kv_heads) of k and v; heads is a multiple of kv_heads.
 *     p = softmax over all keys seen of scale * q . k;  out[r] = sum of p v
 * qkv[j]  [rows][(heads + 2 kv_heads) * head_dim], turned;  out [rows][heads * head_dim]
 * log_sum [heads][rows]: log of the sum of exp(scale q . k) over the keys seen; the forward makes it, back reads it
 * back:   gradient [rows][heads * head_dim] of out, and out as the forward made it; gradient_to[j] as qkv[j], of all j.
 * scratch attention_scratch bytes, of forward and back; nothing is kept there. longest: rows of the longest text. */
enum { LEARN_STEPS_MAX = 16 };
struct learn_attention_args {
    struct buffer qkv[LEARN_STEPS_MAX], offset, out, log_sum, scratch;
    struct buffer gradient, gradient_to[LEARN_STEPS_MAX];               /* back alone */
    float scale;
    int rows, texts, longest, heads, kv_heads, head_dim, steps;         /* steps 0 .. LEARN_STEPS_MAX - 1 */
};

/* ---- losses ---- */

/* Smooth L1 of rows that count, those whose target_row is not -1:
 *     d = x[r][i] - target[target_row[r]][i];  e = d^2 / 2 where |d| < 1, else |d| - 1/2
 *     loss[r] = weight[r] * mean over i of e, 0 of rows that do not count
 *     gradient_to[r][i] += scale * weight[r] / width * min(max(d, -1), 1)         (none: not wanted)
 * x [rows][width];  target [..][width];  target_row [rows] i32;  weight [rows];  loss [rows] f64 */
struct learn_smooth_args {
    struct buffer x, target, target_row, weight, loss, gradient_to;
    float scale;
    int rows, width;
};

/* The target's own distribution, from its logits [rows][vocab].
 * Without words: logits become probabilities in place; p, word and counts are none.
 * With words: p [rows][words] = softmax over the words word[w] of the vocabulary (word [words] i32, all different), and
 * counts [rows] i32 is 1 where the first of the row's largest logits is one of them, else 0; p of those rows is undefined.
 * logits may be overwritten. */
struct learn_target_args {
    struct buffer logits, word, p, counts;
    int rows, vocab, words;
};

/* From logits q [rows][words] to losses, and to the logits' gradients in place of them:
 *     q += bias (or none)
 *     loss[r] = weight[r] * (log sum over w of exp(q[r][w]) - expected),   loss [rows] f64
 *     q[r][w] = scale * weight[r] * (softmax(q[r])[w] - wanted)
 *     label none: expected = sum over w of p[from[r]][w] q[r][w], wanted = p[from[r]][w];  p [..][words], from [rows] i32
 *     label:      expected = q[r][label[r]], wanted = 1 at w = label[r], else 0;           label [rows] i32, no p, no from
 * weight [rows];  bias [words] */
struct learn_judge_args {
    struct buffer logits, bias, p, from, label, weight, loss;
    float scale;
    int rows, words;
};

/* sum[0] += loss[0] + loss[1] + .., all f64; the host in ascending order. */
struct learn_total_args {
    struct buffer loss, sum;
    int rows;
};

/* ---- the optimiser ---- */

/* Of each block of LEARN_BLOCK elements of the gradient, the last one shorter: the sum of their squares, f64, and how many are
 * of larger magnitude than `bound` (a NaN is not), i64. A NaN or an infinity among them makes the sum one that is
 * not finite. */
enum { LEARN_BLOCK = 1 << 14 };
struct learn_measure_args {
    struct buffer gradient, squares, outside;           /* [count]; [blocks] f64; [blocks] i64 */
    size_t count;
    float bound;
};

/* One step of AdamW for `count` weights, with g = min(max(gradient[i] * factor, -bound), bound):
 *     first = beta1 first + (1 - beta1) g;  second = beta2 second + (1 - beta2) g g
 *     weight = weight * keep - rate * first / (sqrt(second) * root + epsilon)
 * bound may be infinite. The gradient stays. */
struct learn_adam {
    float keep;             /* what is left of a weight: 1 - rate * decay */
    float beta1, beta2;
    float rate;             /* divided by the first moment's correction */
    float root;             /* 1 / the root of the second moment's correction */
    float epsilon;
    float factor;           /* of gradients: clipping by norm */
    float bound;            /* gradients are cut to -bound .. bound; INFINITY: not */
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
    /* Bytes of scratch that attention and attention_back want with such arguments, whose buffers may be none as yet. */
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
