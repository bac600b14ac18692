/* K-EXAONE (LGAI-EXAONE/K-EXAONE-236B-A23B): sliding and full attention by turns, and positions do not turn queries and keys of
 * the full ones; q and k are normed by head; the router of DeepSeek-V3, shared experts, dense layers first. Reference:
 * transformers models/exaone_moe. */
#include "common/arch/arch.h"

static const struct naming published = {
    .slot = {LLAMA_NAMES, EXPERT_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES,
             [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.e_score_correction_bias"},
    .ignored = {"mtp.*"}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, CORRECTED_NAMES}, .ignored = {"mtp.*"}};

const struct arch arch_exaone_moe = {
    .model_type = "exaone_moe",
    .summary = "K-EXAONE 236B-A23B",
    .keys = {INT("num_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("num_shared_experts", shared_inner, 1),
             INT_OR("intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, true),
             F32_OR("routed_scaling_factor", router.scale, 2.5),
             INT_OR("n_group", router.groups, 1),
             INT_OR("topk_group", router.groups_kept, 1)},
    .expert_layers = EXPERTS_AFTER_DENSE,
    .window = WINDOW_PATTERN,
    .pattern_key = "sliding_window_pattern",
    .full_still = true,
    .shared_counted = true,
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .router.kind = ROUTER_SIGMOID, .router.correction = true,
              .router.group_rank = 2, .rope.theta = 10000},
    .naming = {&published, &fused},
};
