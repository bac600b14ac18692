/* The router: from router logits to the experts of each row and their weights, with or without a budget.
 *
 * Logits come from linear.h. A budget is a MASK of allowed experts, u8 [experts], 1 = allowed: made beforehand from a static
 * ranking, or by route_shortlist from this forward's own scores (MoE-Spec section 3.2, eq. 5).
 *
 * There are at most ROUTE_EXPERTS_MAX experts, and top_k is at most their number. Wherever values are compared, a NaN is
 * less than all others: so slots always name experts, and the NaN is seen in the weights. */
#ifndef MOE_KERNELS_ROUTE_H
#define MOE_KERNELS_ROUTE_H

#include <stdbool.h>

#include "kernels/buffer.h"

enum { ROUTE_EXPERTS_MAX = 1024 };

enum router_kind {
    ROUTER_SOFTMAX_TOPK,     /* softmax over all experts, the top_k largest; weights are their probabilities. Softmax over the
                              * selected logits alone is the same, renormalised */
    ROUTER_SIGMOID,          /* a sigmoid of each logit */
    ROUTER_SPARSEMIXER       /* one after the other, see route_select; scores as of ROUTER_SOFTMAX_TOPK */
};

/* What becomes of a wanted expert outside the mask (MoE-Spec section 3.3). */
enum budget_mode {
    BUDGET_TRUNCATE,         /* its slot is dropped; the others keep the weights of the full top-k (eq. 7) */
    BUDGET_SUBSTITUTE        /* top_k among the allowed, the family's weight rule applied to that set (eq. 8) */
};

/* score[r][e], of all kinds but ROUTER_SIGMOID: softmax over the experts of logits[r], in f32: maximum; plain_exp(x - maximum);
 * sum ascending; each divided by the sum. ROUTER_SIGMOID: 1 / (1 + plain_exp(-x)). logits, score [rows][experts] f32; may be
 * the same buffer. */
struct route_score_args {
    struct buffer logits, score;
    enum router_kind kind;
    int rows, experts;
};

/* mask = the `budget` experts of largest sum over rows of score[r][e] + bias[e] (f32, rows ascending; bias or none); ties to
 * the lower expert. score [rows][experts] f32, mask [experts] u8, 1 <= budget <= experts. A row's result then depends on the
 * other rows. */
struct route_shortlist_args {
    struct buffer score, bias, weight, mask;
    int rows, experts, budget;
};

/* For each row: wanted = its natural top_k by VALUE, score[e] + bias[e] (bias [experts] f32, or none: score itself), largest
 * first, ties to the lower expert; expert = the same under the mask (none: equal to wanted), -1 for a slot that is dropped or,
 * under substitution, when fewer than top_k are allowed; weight = score without bias, divided by the sum over the set + 1e-20
 * when renormalise (truncation: over the natural set; sum in slot order), then times scale, then times expert_scale[e] (f32
 * [experts], or none); 0 for a slot of -1. Kept slots
 * come first, largest value first: without a bias that is heaviest first.
 *
 * With groups > 1 the experts are so many runs of equal length, and only those of the groups_kept best groups can be chosen
 * (DeepSeek-V3, arXiv 2412.19437 section 2.1.2): a group is as good as the sum of its group_rank (1 or 2) largest values, ties
 * to the lower group. Under substitution only what the mask allows counts, and groups without any are out.
 *
 * ROUTER_SPARSEMIXER (arXiv 2409.12136; as Phi-3.5-MoE runs it): value is the logit, without bias, groups and
 * expert_scale, and slots are
 * filled one by one: the best of what is left, with m its logit, weighs 1 / (sum of plain_exp(x[e] - m) over the e left with
 * not (m - x[e]) / max(|x[e]|, m) > 2 jitter, ascending), times scale. Under substitution what the mask forbids is not left.
 *
 * score, logits (of ROUTER_SPARSEMIXER alone) [rows][experts] f32; mask [experts] u8 or none; wanted, expert [rows][top_k] i32;
 * weight [rows][top_k] f32. groups_kept groups have at least top_k experts. */
struct route_select_args {
    struct buffer score, logits, bias, expert_scale, mask, wanted, expert, weight;
    enum router_kind kind;
    enum budget_mode mode;
    bool renormalise;
    float scale, jitter;
    int rows, experts, top_k;
    int groups, groups_kept, group_rank;
};

#endif
