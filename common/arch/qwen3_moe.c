/* Qwen3 MoE (Qwen/Qwen3-30B-A3B): attention of Qwen3; softmax router, renormalised if norm_topk_prob is true;
 * mlp_only_layers and decoder_sparse_step determine which layers are dense. Reference: transformers models/qwen3_moe. */
#include "common/arch/arch.h"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, DENSE_NAMES}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, DENSE_NAMES}};

const struct arch arch_qwen3_moe = {
    .model_type = "qwen3_moe",
    .summary = "Qwen3 MoE",
    .keys = {INT_ALSO("num_experts", "num_local_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, false)},
    .bias = BIAS_ALL,
    .expert_layers = EXPERTS_BY_STEP,
    .window = WINDOW_ALL_IF_USED,
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .router.kind = ROUTER_SOFTMAX_TOPK, .router.scale = 1, .rope.theta = 10000},
    .naming = {&published, &fused},
    .gguf_renormalise = true,
};
