/* GLM-5 (zai-org/GLM-5): DeepSeek-V3.2 (deepseek_v32.c) with other defaults; layers may share the choice of one indexer.
 * Reference: transformers models/glm_moe_dsa. */
#include "common/arch/arch.h"

#define RULES \
    .left_out = "predictors draft without an indexer", .index_paired = true, \
    .ignored = {"model.layers.{n}.self_attn.indexer.*"}
static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, LATENT_NAMES, INDEX_NAMES, CORRECTED_NAMES}, RULES};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, LATENT_NAMES, INDEX_NAMES, CORRECTED_NAMES}, RULES};

const struct arch arch_glm_moe_dsa = {
    .model_type = "glm_moe_dsa",
    .summary = "GLM-5",
    DEEPSEEK_V3(2.5, 1, 1),
    .indexed = true,
    .naming = {&published, &fused},
};
