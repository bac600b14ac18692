/* Solar Open (upstage/Solar-Open-100B): the router of GLM-4.5 in all layers, and no norms of heads. llama.cpp writes GGUF
 * files of this family as glm4moe. Reference: transformers models/solar_open. */
#include "common/arch/arch.h"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, CORRECTED_NAMES}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, CORRECTED_NAMES}};

const struct arch arch_solar_open = {
    .model_type = "solar_open",
    .summary = "Solar Open 100B",
    .keys = {CORRECTED_KEYS(1, true, 1, 1, 1)},
    .refused = {"use_qk_norm"},
    .bias = BIAS_QKV_ASKED,
    .partial_rotary = 1,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .shared_counted = true,
    .fixed = {.router.kind = ROUTER_SIGMOID, .router.correction = true, .router.group_rank = 2, .rope.theta = 1e6},
    .naming = {&published, &fused},
};
