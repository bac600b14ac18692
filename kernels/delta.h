/* Layers with a state of fixed size instead of keys and values of all tokens: the gated delta rule (Gated DeltaNet, arXiv
 * 2412.06464), the same with a decay for each channel of the key (Kimi Delta Attention, arXiv 2510.26692), or the state spaces
 * of Mamba-2 (arXiv 2405.21060) and Mamba-1 (arXiv 2312.00752); and the short causal convolution before it, over rows that
 * may be nodes of a tree.
 *
 * The rule, for each value head, with a token's q, k, v, decay g <= 0 and rate beta, from S = 0:
 *     S <- e^g S;    S <- S + k (x) beta (v - k^T S);    o = q^T S              RECURRENCE_DELTA
 *     S <- e^g S;    S <- S + k (x) beta v;              o = q^T S + skip v     RECURRENCE_SPACE (q, k, v, beta, skip are
 *                                                                               C, B, x, dt, D of Mamba-2)
 * RECURRENCE_CHANNEL is RECURRENCE_DELTA with g a vector of key_dim numbers: e^g multiplies the rows of S. In all
 * formulas below, its factors e^G and e^(G - G_i) then multiply k and q element by element.
 * RECURRENCE_SCAN has a step t for each value and a decay for each float of S:
 *     S[a][j] <- e^(neg_a[a][j] t[j]) S[a][j] + k[a] t[j] v[j];    o = q^T S + skip v (skip[j] for each value)
 * Value head h uses key head h * key_heads / value_heads, or with `tiled` key head h % key_heads. key_heads divides
 * value_heads.
 *
 * The rule is computed in a solved form instead of token by token. Positions are divided into SEGMENTS of DELTA_BORDER
 * positions, from position 0. A layer stores STATES, each the S at the beginning of some segment, and for each token since then
 * one SLOT: its key k, its correction u and its decay G, the sum of g from the beginning of its segment to the token. With S
 * the state at the beginning of the segment:
 *     u = beta (v - e^G k^T S - sum over the ancestors i in the segment of e^(G - G_i) (k . k_i) u_i)      RECURRENCE_DELTA
 *     u = beta v                                                                                           RECURRENCE_SPACE
 *     o = e^G q^T S + sum over the same ancestors and the token itself of e^(G - G_i) (q . k_i) u_i
 *     the next segment's state = e^G S + sum over the segment of e^(G - G_i) k_i (x) u_i, G of the segment's last token
 * RECURRENCE_SCAN has no such form: the rule is applied token by token, from S on. A slot stores u = t v and, as its decay, t.
 * This has three consequences. Draft nodes only add slots, and rejecting them frees these slots. A state computed along a
 * draft's path has the same bits as the state of these tokens after they are committed. A token's bits depend on its own
 * context only.
 *
 * A row's PATH is a list of slots: those of its ancestors in its segment, in ascending position, and last its own slot. Among
 * the rows of a call, ancestors come before their descendants. Within a call, rows have distinct slots, and no row may have the
 * slot of another row's ancestor unless that ancestor is a row of this call. Rows are computed in order, so a state may
 * overwrite that of an earlier row. All numbers are f32; strides count floats. */
#ifndef MOE_KERNELS_DELTA_H
#define MOE_KERNELS_DELTA_H

#include <stdbool.h>

#include "kernels/buffer.h"
#include "kernels/plain/plain.h"

enum { DELTA_BORDER = 16, DELTA_DIM_MAX = 1024, CONV_TAPS_MAX = 8 };

enum recurrence {
    RECURRENCE_DELTA, RECURRENCE_SPACE,
    RECURRENCE_NONE,     /* the short convolution alone */
    RECURRENCE_CHANNEL, RECURRENCE_SCAN
};

/* Max floats in the state of a value head with RECURRENCE_SCAN. */
enum { SCAN_STATE_MAX = 1 << 14 };

/* Returns whether the rule subtracts k^T S from v. */
PLAIN bool recurrence_corrects(enum recurrence kind) { return kind == RECURRENCE_DELTA || kind == RECURRENCE_CHANNEL; }

/* Returns whether the rule adds skip v to o. */
PLAIN bool recurrence_skips(enum recurrence kind) { return kind == RECURRENCE_SPACE || kind == RECURRENCE_SCAN; }

/* Returns the number of decays of a value head. */
PLAIN int recurrence_decays(enum recurrence kind, int key_dim, int value_dim)
{
    return kind == RECURRENCE_CHANNEL ? key_dim : kind == RECURRENCE_SCAN ? value_dim : 1;
}

/* Values of delta_args.before that are not a state. */
enum { DELTA_ZERO = -1, DELTA_KEPT = -2 };

/* cache[slot[r]][:] = in[r][:] for all rows; then
 *     out[r][c] = silu(sum over t of weight[t][c] * the input of the token taps-1-t positions before r [+ bias[c]]), c < width
 * Inputs before the beginning of the text are 0. Without `silu`, out is the sum itself.
 * in      [rows] of in_stride;   out [rows] of out_stride;   all buffers are distinct
 * weight  [taps][width], the oldest token's first;   taps is 1 .. CONV_TAPS_MAX;   bias [width]; none: 0
 * cache   [slots][width];   slot [rows] i32
 * before  [rows][taps-1] i32: slots of the tokens before, oldest first; -1: before the beginning
 * Order:  from 0 by fused multiply-add, oldest first; inputs before the beginning are left out; then + bias. plain_silu of
 *         kernels/plain/math.h. */
struct short_conv_args {
    struct buffer in, weight, bias, cache, slot, before, out;
    bool silu;
    int rows, width, taps, in_stride, out_stride;
};

/* Prepares the inputs of `delta` from the projections. For each row and key head, in place, without RECURRENCE_SPACE,
 *     q <- q / sqrt(sum of q^2 + epsilon) * (1 / sqrt(key_dim)),    k <- k / sqrt(sum of k^2 + epsilon)
 * (not with RECURRENCE_SCAN either), and then key[slot[r]] = k; for each value head
 *     t = softplus(step[r][h] + step_bias[h]),    g = neg_a[h] * t
 *     beta[r][h] = sigmoid(rate[r][h]); RECURRENCE_SPACE: t
 *     decay[slot[r]][h] = g + decay[parent[r]][h], or only g if there is no parent
 * With `floor` < 0, for RECURRENCE_CHANNEL alone, g = floor * sigmoid(-neg_a[h] * (step[r][h] + step_bias[h])): it is bounded.
 * With RECURRENCE_SCAN decay[slot[r]][h] = t alone; there is no beta, and no parent and neg_a are read.
 * A head has D values of step, step_bias and decay (recurrence_decays), and one value of neg_a.
 * x          [rows] of stride: q [key_heads][key_dim], then k likewise (floats after them are not touched)
 * rate       [rows] of gate_stride, value_heads used; none with RECURRENCE_SPACE and RECURRENCE_SCAN
 * step       [rows] of step_stride, value_heads * D used
 * neg_a      [value_heads] (-exp(A_log));   step_bias [value_heads][D]
 * parent     [rows] i32: the slot before the row's own in its path; -1: the row is the first of its segment
 * key        [slots][key_heads][key_dim];   decay [slots][value_heads][D];   beta [rows][value_heads]
 * Order:  a sum of squares is 16 partial sums (index mod 16) by fused multiply-add in ascending order, then halves: 8+8, 4+4,
 *         2+2, 1+1. A number times 1 / sqrt(...), then times 1 / sqrtf(key_dim), each rounded. softplus(x) = plain_log_add(x,
 *         0), sigmoid is plain_sigmoid; rows in ascending order. */
struct delta_keys_args {
    struct buffer x, rate, step, neg_a, step_bias, slot, parent, key, decay, beta;
    enum recurrence kind;
    float epsilon, floor;                /* floor 0: none */
    int rows, key_heads, value_heads, key_dim, value_dim, stride, gate_stride, step_stride;
};

/* Stores u of each row in correction[its slot], and o in out[r][h].
 *
 * q, v        [rows] of stride and value_stride: [key_heads][key_dim] and [value_heads][value_dim]
 * out         [rows][value_heads][value_dim]
 * beta, key, decay  results of delta_keys;   correction [slots][value_heads][value_dim]
 * skip        [value_heads], for RECURRENCE_SPACE alone; RECURRENCE_SCAN: [value_heads][value_dim]
 * neg_a       [value_heads][key_dim][value_dim], for RECURRENCE_SCAN alone
 * state       [states][value_heads][key_dim][value_dim]
 * own         [rows] i32: the state at the beginning of the row's segment; DELTA_ZERO in the first segment
 * before      [rows] i32. DELTA_KEPT: the state `own` exists. Otherwise it is computed here, before the row, from the state
 *             `before` (DELTA_ZERO: zeros; never `own` itself) and from the segment before, whose DELTA_BORDER slots,
 *             ascending, precede those of the row's own segment in the path. Later rows with the same `own` have
 *             DELTA_KEPT
 * path_start  [rows+1] i32;   path i32
 * Dimensions are at most DELTA_DIM_MAX, with RECURRENCE_SCAN key_dim * value_dim at most SCAN_STATE_MAX.
 *
 * Order:  k^T S and q^T S: from 0 by fused multiply-add, ascending in the key's dimension. Dot products as in delta_keys. With
 *         f_i = plain_exp(G - G_i), f = plain_exp(G):
 *             u = v - f * (k^T S); then for each ancestor, ascending, u = fma(-(f_i * (k . k_i)), u_i, u); then beta * u
 *             (RECURRENCE_SPACE: u = beta * v)
 *             o = f * (q^T S); then for each ancestor o = fma(f_i * (q . k_i), u_i, o), then o = fma(q . k, u, o), then
 *             with RECURRENCE_SPACE o = fma(skip, v, o)
 *             S'[a][:] = f * S[a][:]; then for each slot, ascending, S'[a][:] = fma(f_i * k_i[a], u_i[:], S'[a][:])
 *         Without a state (DELTA_ZERO) u starts with v, o and S' with 0.
 *         RECURRENCE_CHANNEL: f belongs to each a. With k'[a] = k[a] * f[a], q' alike, u = v - k'^T S and o = q'^T S; with
 *         k_i'[a] = k_i[a] * f_i[a] the others are u = fma(-(k . k_i'), u_i, u), o = fma(q . k_i', u_i, o) and S'[a][:] =
 *         fma(k_i'[a], u_i[:], S'[a][:]).
 *         RECURRENCE_SCAN: u = t * v. For each slot, ascending, S[a][j] = fma(k_i[a], u_i[j], plain_exp(neg_a[a][j] * t_i[j]) *
 *         S[a][j]), from 0 without a state; then o from 0 by o = fma(q[a], S[a][:], o), a ascending, and o = fma(skip, v, o).
 *         S' is S after the last slot of the segment. */
struct delta_args {
    struct buffer q, v, beta, skip, neg_a, key, decay, correction, state, own, before, path_start, path, out;
    enum recurrence kind;
    int rows, key_heads, value_heads, key_dim, value_dim, stride, value_stride;
    bool tiled;
};

enum gate_kind { GATE_SIGMOID, GATE_SILU, GATE_SAME };

/* out[r][p][i] = in[r][p][i] * f(gate[r][p][i]) for `parts` adjacent pieces of each row, i < width; f is plain_sigmoid or
 * plain_silu of kernels/plain/math.h, or with GATE_SAME the gate itself. With `single` a piece has one gate for all of its
 * floats, gate[r][p][0].
 * in, gate, out  [rows] of their strides;   piece p begins in_part, gate_part, out_part floats after piece p - 1
 * out may be the same buffer as in, with the same strides. */
struct gated_args {
    struct buffer in, gate, out;
    enum gate_kind kind;
    bool single;
    int rows, parts, width, in_stride, gate_stride, out_stride, in_part, gate_part, out_part;
};

#endif
