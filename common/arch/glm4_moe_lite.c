/* GLM-4.7-Flash (zai-org/GLM-4.7-Flash): latent attention and the router of DeepSeek-V3, with other defaults. Its GGUF files
 * call it deepseek2. Reference: transformers models/glm4_moe_lite. */
#include "common/arch/arch.h"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, LATENT_NAMES, CORRECTED_NAMES}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, LATENT_NAMES, CORRECTED_NAMES}};

const struct arch arch_glm4_moe_lite = {
    .model_type = "glm4_moe_lite",
    .summary = "GLM-4.7-Flash",
    .keys = {CORRECTED_KEYS(1, true, 1.8, 1, 1)},
    .bias = BIAS_ALL,
    .latent = true,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .shared_counted = true,
    .fixed = {.attention.latent_epsilon = 1e-6f, .router.kind = ROUTER_SIGMOID, .router.correction = true,
              .router.group_rank = 2, .rope.theta = 10000},
    .naming = {&published, &fused},
};
