/* GLM-4.7-Flash (zai-org/GLM-4.7-Flash): latent attention and the router of DeepSeek-V3, with other defaults. Its GGUF files
 * call it deepseek2. Reference: transformers models/glm4_moe_lite. */
#include "common/arch/arch.h"

#define MORE LATENT_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES, \
    [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.gate.e_score_correction_bias"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, MORE}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, MORE}};

const struct arch arch_glm4_moe_lite = {
    .model_type = "glm4_moe_lite",
    .summary = "GLM-4.7-Flash",
    .keys = {INT_ALSO("n_routed_experts", "num_local_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("n_shared_experts", shared_inner, 1),
             INT_OR("intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, true),
             F32_OR("routed_scaling_factor", router.scale, 1.8),
             INT_OR("n_group", router.groups, 1),
             INT_OR("topk_group", router.groups_kept, 1)},
    .bias = BIAS_ALL,
    .latent = true,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .shared_counted = true,
    .fixed = {.attention.latent_epsilon = 1e-6f, .router.kind = ROUTER_SIGMOID, .router.correction = true,
              .router.group_rank = 2, .rope.theta = 10000},
    .naming = {&published, &fused},
};
