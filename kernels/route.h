/* The router: from router logits to the experts of each row and their weights, with or without a budget.
 *
 * Logits come from linear.h. A budget is a MASK of allowed experts, u8 [experts], 1 = allowed: made from a static ranking
 * before, or by route_shortlist from the scores of this forward (MoE-Spec section 3.2, eq. 5).
 *
 * There are at most ROUTE_EXPERTS_MAX experts, and top_k is at most their number. In comparisons a NaN is less than every other
 * value. So slots always contain experts, and the NaN appears in the weights. */
#ifndef MOE_KERNELS_ROUTE_H
#define MOE_KERNELS_ROUTE_H

#include <stdbool.h>

#include "kernels/buffer.h"

enum { ROUTE_EXPERTS_MAX = 1024 };

enum router_kind {
    ROUTER_SOFTMAX_TOPK,     /* softmax over all experts, select the top_k; weights are their probabilities. A softmax over the
                              * selected logits only is the same, renormalised */
    ROUTER_SIGMOID,          /* a sigmoid of each logit */
    ROUTER_SPARSEMIXER       /* selects one expert after the other, see route_select; scores as for ROUTER_SOFTMAX_TOPK */
};

/* Treatment of a requested expert outside the mask (MoE-Spec section 3.3). */
enum budget_mode {
    BUDGET_TRUNCATE,         /* drops its slot; the others keep the weights of the full top-k (eq. 7) */
    BUDGET_SUBSTITUTE     /* selects top_k among the allowed experts and applies the family's weight rule to that set (eq. 8) */
};

/* Computes score[r][e] in f32. All kinds but ROUTER_SIGMOID: softmax over the experts of logits[r]: maximum; plain_exp(x -
 * maximum); sum in ascending order; each divided by the sum. ROUTER_SIGMOID: 1 / (1 + plain_exp(-x)). logits, score
 * [rows][experts] f32; may be the same buffer. */
struct route_score_args {
    struct buffer logits, score;
    enum router_kind kind;
    int rows, experts;
};

/* mask = the `budget` experts with the largest sum over rows of score[r][e] + bias[e] (f32, rows ascending; bias or none), the
 * lower expert first among equals. score [rows][experts] f32, mask [experts] u8, 1 <= budget <= experts. A row's result then
 * depends on the other rows. */
struct route_shortlist_args {
    struct buffer score, bias, weight, mask;
    int rows, experts, budget;
};

/* Selects the experts of each row.
 *
 * wanted  the natural top_k by VALUE: score[e] + bias[e] (bias [experts] f32; none: score itself), largest first, the lower
 *         expert first among equals
 * expert  the same under the mask (none: equal to wanted); -1 for a dropped slot, and under substitution if fewer than top_k
 *         experts are allowed. Kept slots come first, in descending order of value, which without a bias is that of weights
 * weight  score without bias; if renormalise, divided by the sum over the set + 1e-20 (truncation: over the natural set; sum in
 *         slot order); times scale; times expert_scale[e] (f32 [experts], or none); 0 for a slot of -1
 *
 * With groups > 1 the experts are divided into `groups` contiguous groups of equal size, and only experts of the groups_kept
 * best groups can be selected (DeepSeek-V3, arXiv 2412.19437 section 2.1.2). A group is ranked by the sum of its group_rank (1
 * or 2) largest values, the lower group first among equals. Under substitution only allowed experts count, and groups without
 * any cannot be selected.
 *
 * The last `zero` experts have no weights and return their input (zero experts). Their slots become -1 in wanted and expert,
 * after the others, and the sum of their weights, in slot order, is zero_weight[r]. There is no mask then, and no groups,
 * renormalise and expert_scale.
 *
 * ROUTER_SPARSEMIXER (arXiv 2409.12136; as Phi-3.5-MoE uses it): the value is the logit, without bias, groups and expert_scale,
 * and slots are filled one by one. The best remaining expert, with logit m, gets the weight 1 / (sum of plain_exp(x[e] - m)
 * over the remaining e with not (m - x[e]) / max(|x[e]|, m) > 2 jitter, ascending), times scale. Under substitution only
 * allowed experts remain.
 *
 * score, logits (only for ROUTER_SPARSEMIXER) [rows][experts] f32; mask [experts] u8 or none; wanted, expert [rows][top_k] i32;
 * weight [rows][top_k] f32; zero_weight [rows] f32, for zero > 0. The groups_kept groups contain at least top_k experts. */
struct route_select_args {
    struct buffer score, logits, bias, expert_scale, mask, wanted, expert, weight, zero_weight;
    enum router_kind kind;
    enum budget_mode mode;
    bool renormalise;
    float scale, jitter;
    int rows, experts, top_k;
    int groups, groups_kept, group_rank, zero;
};

#endif
