/* OLMoE (allenai/OLMoE-1B-7B): RMSNorm on whole q and k before they are split into heads, then clipping; softmax router, by
 * default without renormalisation; no shared expert. Reference: transformers models/olmoe. */
#include "common/arch/arch.h"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES}};

const struct arch arch_olmoe = {
    .model_type = "olmoe",
    .summary = "OLMoE",
    .keys = {INT("num_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("intermediate_size", expert_inner),
             BOOL_OR("norm_topk_prob", router.renormalise, false),
             F32_OR("clip_qkv", attention.clip_qkv, 0)},
    .bias = BIAS_ALL,
    .expert_layers = EXPERTS_EVERYWHERE,
    .fixed = {.attention.qk_norm = QK_NORM_WHOLE, .router.kind = ROUTER_SOFTMAX_TOPK, .router.scale = 1, .rope.theta = 10000},
    .naming = {&published, &fused},
};
