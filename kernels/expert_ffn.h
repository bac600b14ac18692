/* Feed-forward network of the routed experts, for the rows of one forward. A dense feed-forward network is one expert that
 * every row uses with weight 1.
 *
 *   out[r] += sum over the slots s of r, in slot order, of
 *             [scale *] weight[r][s] * (Wdown[e] . glu(Wgate[e] . in[r] [+ bgate[e]], Wup[e] . in[r] [+ bup[e]]) [+ bdown[e]]),
 *             e = expert[r][s]
 *   glu(g, u) = max(u, 0)^2, and there is no Wgate                            if GLU_NONE_RELU2
 *             = gelu_tanh(g) * u                                              if GLU_GELU_TANH; otherwise
 *             = silu(g) * u                                                   if limit is 0
 *             = min(silu(g), limit) * max(-limit, min(u, limit))              if alpha is 0
 *             = (max(-limit, min(u, limit)) + 1) * g' * sigmoid(alpha * g')   else, g' = min(g, limit)
 *
 * in       [rows][hidden]  f32   after the layer's norm
 * out      [rows][hidden]  f32   the residual stream; must not overlap in; none with `apart`
 * expert   [rows][slots]   i32   -1 marks a slot dropped by a budget; the experts of a row are distinct.
 *                                None: slots is 1 and every row uses expert 0
 * weight   [rows][slots]   f32   none: 1
 * gate_up_bias  [experts][2][inner]  f32   of gate, then of up; none: 0, and always with GLU_NONE_RELU2
 * down_bias     [experts][hidden]    f32   none: 0
 * table    [experts]       u64   device address of each expert's block (EXPERT, or with GLU_NONE_RELU2 UNGATED EXPERT in
 *                                formats.h); read for requested experts only;
 *                                gate and up are in `format`, down, which follows them, in `down_format`
 * inner    [rows*slots][inner]   f32   scratch
 * partial  [rows*slots][hidden]  f32   scratch; with `apart` the result: Wdown[e] . glu(..) [+ bdown[e]] of each slot,
 *                                unweighted, so weight and scale are not read; the row of a dropped slot is not written
 * group    [expert_group_numbers(experts, rows*slots)] i32   scratch, aligned to 16 bytes: rows grouped by expert
 * ahead    a hint as in linear.h
 * operand  [rows*slots] scratch, each the larger of operand_bytes(format, hidden) and operand_bytes(down_format, inner)
 *
 * Order:  each product as in linear.h (with bf16_activations the inputs of both products are rounded), with a bias added to the
 *         complete sum; glu as in kernels/plain/glu.h; partial = the product with Wdown and its bias; out = fma(weight times
 *         scale, partial, out) in slot order. A row's bits depend on that row only: not on the number or order of rows, on
 *         threads, or on the routes of other rows.
 * Slab:   as in linear.h; a row's bits may then depend on all rows of its slab and on their routes.
 * Parts:  on the host a call may compute only one of the two products, or only a part of their outputs: with FFN_INNER only
 *         `inner`, with FFN_PARTIAL only `partial`, from a complete `inner`; and of `parts` parts number `part`: in each row of
 *         `inner` or `partial` the floats from expert_part_first(part) to expert_part_first(part + 1). The bits are those of
 *         one call. Devices with memory of their own ignore these fields.
 * Cost:   the block of each requested expert is read once and completely, including padding.
 * Errors: none, because the caller checks shapes before.
 *
 * expert_sum takes the same arguments and adds results kept in `partial` by `apart`, in one call, or in several with different
 * experts dropped: out = fma(weight times scale, partial, out) in slot order, without dropped slots. So out gets the same bits
 * as from one call without `apart`. It reads only out, expert, weight, scale and partial. With `parts` it
 * adds that part of each row only. */
#ifndef MOE_KERNELS_EXPERT_FFN_H
#define MOE_KERNELS_EXPERT_FFN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/buffer.h"
#include "kernels/formats.h"
#include "kernels/linear.h"
#include "kernels/plain/glu.h"
#include "kernels/route.h"

/* Returns the size of `group` in i32. The host stores the experts' bounds and lists of pairs (a row and one of its experts); a
 * GPU stores the pairs, and 16 bytes per work item, at most one item per pair. */
static inline size_t expert_group_numbers(size_t experts, size_t pairs) { return experts + 1 + 5 * pairs; }

/* Returns the first of `width` floats that belongs to a part; `unit`: floats of a unit of weights. */
static inline int expert_part_first(int width, int unit, int part, int parts)
{
    const int64_t units = ((int64_t)width + unit - 1) / unit, first = units * part / (parts ? parts : 1) * unit;
    return first < width ? (int)first : width;
}

enum ffn_step { FFN_BOTH, FFN_INNER, FFN_PARTIAL };

struct stop;                             /* common/base/stop.h */

struct expert_ffn_args {
    struct buffer in, out, expert, weight, gate_up_bias, down_bias, table, inner, partial, group, operand, ahead;
    enum weight_format format, down_format;
    float scale;                         /* 0: no scale */
    float limit, alpha;                  /* of the limited glu above */
    enum glu_kind glu;
    bool slab;                           /* the rows are a slab */
    bool apart;                          /* `partial` is the result, one row per slot */
    enum ffn_step step;
    int part, parts;                     /* 0, 0: all */
    int rows, slots, experts, hidden, inner_width;
    const struct stop *stop;             /* after a stop request, out, inner and partial may be incomplete; NULL: none */
};

/* The product of the router, route_score, route_select and expert_ffn, one after the other, bit-identical to the single
 * operations: score reads the results of the product, select the scores or logits of score, and ffn the experts of select (and
 * usually its weights). All of them process the same number of rows, and slots is top_k. linear.rows 0: the logits are already
 * computed. */
struct routed_ffn_args {
    struct norm_linear_args logits;
    struct route_score_args score;
    struct route_select_args select;
    struct expert_ffn_args ffn;
};

#endif
