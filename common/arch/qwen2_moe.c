/* Qwen2 MoE (Qwen/Qwen1.5-MoE-A2.7B): biases on q, k and v; softmax router; beside the routed experts a shared one,
 * multiplied by the sigmoid of its own gate. Reference: transformers models/qwen2_moe. */
#include "common/arch/arch.h"

#define SHARED SHARED_NAMES("shared_expert"), [SLOT_SHARED_WEIGHT] = "model.layers.{n}.mlp.shared_expert_gate.weight"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, SHARED, DENSE_NAMES}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, SHARED, DENSE_NAMES}};

const struct arch arch_qwen2_moe = {
    .model_type = "qwen2_moe",
    .summary = "Qwen1.5 MoE, Qwen2 MoE",
    .keys = {INT_ALSO("num_experts", "num_local_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT("shared_expert_intermediate_size", shared_inner),
             INT_OR("intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, false)},
    .bias = BIAS_QKV,
    .expert_layers = EXPERTS_BY_STEP,
    .window = WINDOW_EVEN_IF_USED,
    .fixed = {.router.kind = ROUTER_SOFTMAX_TOPK, .router.scale = 1, .shared_gate = true, .rope.theta = 10000},
    .naming = {&published, &fused},
};
