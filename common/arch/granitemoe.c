/* Granite MoE (ibm-granite/granite-3.0-1b-a400m-base): embeddings, residual branches, attention scores and logits have fixed
 * factors; the router's softmax goes over the selected logits, which is a softmax over all, renormalised. Reference:
 * transformers models/granitemoe. */
#include "common/arch/arch.h"

#define GRANITE "model.layers.{n}.block_sparse_moe."

static const struct naming published = {.slot = {
    LLAMA_NAMES,
    [SLOT_ROUTER] = GRANITE "router.layer.weight",
    [SLOT_EXPERTS_GATE_UP] = GRANITE "input_linear.weight",
    [SLOT_EXPERTS_DOWN] = GRANITE "output_linear.weight",
}};
static const struct naming fused = {.slot = {
    LLAMA_NAMES,
    [SLOT_ROUTER] = GRANITE "router.weight",
    [SLOT_EXPERTS_GATE_UP] = GRANITE "experts.gate_up_proj",
    [SLOT_EXPERTS_DOWN] = GRANITE "experts.down_proj",
}};

const struct arch arch_granitemoe = {
    .model_type = "granitemoe",
    .summary = "Granite 3 MoE",
    .keys = {INT("num_local_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("intermediate_size", expert_inner),
             F32_OR("embedding_multiplier", embed_scale, 1),
             F32_OR("residual_multiplier", residual_scale, 1),
             F32_OR("attention_multiplier", attention.scale, 1),
             F32_OR("logits_scaling", logit_divisor, 1)},
    .bias = BIAS_ALL,
    .expert_layers = EXPERTS_EVERYWHERE,
    .fixed = {.router.kind = ROUTER_SOFTMAX_TOPK, .router.renormalise = true, .router.scale = 1, .rope.theta = 10000},
    .naming = {&published, &fused},
    .gguf_paired = true,
};
