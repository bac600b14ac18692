/* dots.llm1 (rednote-hilab/dots.llm1.inst): q and k are normed by head, sigmoid router with a correction that counts for
 * choosing alone, groups, shared experts, dense layers first. Reference: transformers models/dots1. */
#include "common/arch/arch.h"

#define MORE SHARED_NAMES("shared_experts"), DENSE_NAMES, \
    [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.gate.e_score_correction_bias"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, MORE}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, MORE}};

const struct arch arch_dots1 = {
    .model_type = "dots1",
    .summary = "dots.llm1",
    .keys = {INT_ALSO("n_routed_experts", "num_local_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("n_shared_experts", shared_inner, 0),
             INT_OR("intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, false),
             F32_OR("routed_scaling_factor", router.scale, 1),
             INT_OR("n_group", router.groups, 1),
             INT_OR("topk_group", router.groups_kept, 1)},
    .bias = BIAS_ALL,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .window = WINDOW_UPPER,
    .shared_counted = true,
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .router.kind = ROUTER_SIGMOID, .router.correction = true,
              .router.group_rank = 2, .rope.theta = 10000},
    .naming = {&published, &fused},
};
