/* Feed-forward network of the routed experts, for the rows of one forward. A dense feed-forward network is one expert that
 * every row uses with weight 1.
 *
 *   out[r] += sum over the slots s of r, in slot order, of
 *             [scale *] weight[r][s] * (Wdown[e] . glu(Wgate[e] . in[r] [+ bgate[e]], Wup[e] . in[r] [+ bup[e]]) [+ bdown[e]]),
 *             e = expert[r][s]
 *   glu(g, u) = gelu_tanh(g) * u                                              GLU_GELU_TANH; else
 *             = silu(g) * u                                                   limit 0
 *             = (max(-limit, min(u, limit)) + 1) * g' * sigmoid(alpha * g')   else, g' = min(g, limit)
 *
 * in       [rows][hidden]  f32   after the layer's norm
 * out      [rows][hidden]  f32   the residual stream; must not overlap in; with `apart` not there
 * expert   [rows][slots]   i32   -1 marks a slot dropped by a budget; the experts of a row are distinct.
 *                                None: slots is 1 and every row uses expert 0
 * weight   [rows][slots]   f32   none: 1
 * gate_up_bias  [experts][2][inner]  f32   of gate, then of up; none: 0
 * down_bias     [experts][hidden]    f32   none: 0
 * table    [experts]       u64   device address of each expert's block (EXPERT in formats.h); read for wanted experts only;
 *                                gate and up are in `format`, down, which follows them, in `down_format`
 * inner    [rows*slots][inner]   f32   scratch
 * partial  [rows*slots][hidden]  f32   scratch; with `apart` the result: Wdown[e] . glu(..) [+ bdown[e]] of each slot. It
 *                                is not weighed, so weight and scale are not read; a dropped slot's row is not written
 * group    [expert_group_numbers(experts, rows*slots)] i32   scratch, aligned to 16 bytes: rows grouped by expert
 * operand  [rows*slots] scratch, each the larger of operand_bytes(format, hidden) and operand_bytes(down_format, inner)
 *
 * Order:  each product as in linear.h, a bias added to the whole sum; glu as in kernels/plain/glu.h; partial = the product
 *         with Wdown and its bias; out = fma(weight times scale, partial, out) in slot order. A row's bits depend on nothing
 *         but that row: not on rows, their order, threads, or what others route to.
 * Slab:   as in linear.h; a row's bits may then depend on all rows of its slab and on what they are routed to.
 * Cost:   each wanted expert's block is read once, whole, zeros included. Cannot fail: shapes were checked before.
 *
 * expert_sum takes the same arguments and adds what was kept apart, in one call or in several, each with other experts dropped:
 * out = fma(weight times scale, partial, out) in slot order, dropped slots left out. So out has the bits of one call that keeps
 * nothing apart. Of the rest it reads nothing. */
#ifndef MOE_KERNELS_EXPERT_FFN_H
#define MOE_KERNELS_EXPERT_FFN_H

#include <stdbool.h>

#include "kernels/buffer.h"
#include "kernels/formats.h"
#include "kernels/plain/glu.h"

/* On the host bounds of experts and lists of pairs; on a GPU a pair, and 16 bytes for an item that may hold it alone. */
static inline size_t expert_group_numbers(size_t experts, size_t pairs) { return experts + 1 + 5 * pairs; }

struct expert_ffn_args {
    struct buffer in, out, expert, weight, gate_up_bias, down_bias, table, inner, partial, group, operand;
    enum weight_format format, down_format;
    float scale;                         /* 0: none */
    float limit, alpha;                  /* of glu */
    enum glu_kind glu;
    bool slab;                           /* rows are a slab */
    bool apart;                          /* what each expert makes of a row is kept apart: partial is the result */
    int rows, slots, experts, hidden, inner_width;
};

#endif
