/* GLM-4.7-Flash (zai-org/GLM-4.7-Flash): latent attention and the router of DeepSeek-V3, with other defaults. Its GGUF files
 * call it deepseek2. Reference: transformers models/glm4_moe_lite. */
#include "common/arch/arch.h"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, LATENT_NAMES, CORRECTED_NAMES}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, LATENT_NAMES, CORRECTED_NAMES}};

const struct arch arch_glm4_moe_lite = {
    .model_type = "glm4_moe_lite",
    .summary = "GLM-4.7-Flash",
    DEEPSEEK_V3(1.8, 1, 1),
    .naming = {&published, &fused},
};
