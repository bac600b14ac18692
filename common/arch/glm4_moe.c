/* GLM-4.5 and 4.6 (zai-org/GLM-4.5-Air): RoPE rotates a part of each head; q and k may have a norm of each head; the sigmoid
 * router adds a correction for the selection only; groups, shared experts, dense layers first. Reference: transformers
 * models/glm4_moe. */
#include "common/arch/arch.h"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, CORRECTED_NAMES}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, CORRECTED_NAMES}};

const struct arch arch_glm4_moe = {
    .model_type = "glm4_moe",
    .summary = "GLM-4.5, GLM-4.6",
    .keys = {CORRECTED_KEYS(1, true, 1, 1, 1)},
    .bias = BIAS_QKV_ASKED,
    .qk_norm_key = "use_qk_norm",
    .partial_rotary = 0.5,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .shared_counted = true,
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .router.kind = ROUTER_SIGMOID, .router.correction = true,
              .router.group_rank = 2, .rope.theta = 10000},
    .naming = {&published, &fused},
};
