/* Phi-3.5-MoE (microsoft/Phi-3.5-MoE-instruct): LayerNorm with biases; biases in attention and head; a sparsemixer chooses
 * experts one after the other; longrope. Reference: transformers models/phimoe. */
#include "common/arch/arch.h"

#define BIASES \
    [SLOT_HEAD_BIAS] = "lm_head.bias", \
    [SLOT_FINAL_NORM_BIAS] = "model.norm.bias", \
    [SLOT_ATTENTION_NORM_BIAS] = "model.layers.{n}.input_layernorm.bias", \
    [SLOT_FFN_NORM_BIAS] = "model.layers.{n}.post_attention_layernorm.bias"
#define PHI "model.layers.{n}.block_sparse_moe."

static const struct naming published = {.slot = {
    LLAMA_NAMES, BIASES,
    [SLOT_ROUTER] = PHI "gate.weight",
    [SLOT_EXPERT_GATE] = PHI "experts.{e}.w1.weight",
    [SLOT_EXPERT_UP] = PHI "experts.{e}.w3.weight",
    [SLOT_EXPERT_DOWN] = PHI "experts.{e}.w2.weight",
}};
static const struct naming fused = {.slot = {
    LLAMA_NAMES, BIASES,
    [SLOT_ROUTER] = "model.layers.{n}.mlp.router.weight",
    [SLOT_EXPERTS_GATE_UP] = "model.layers.{n}.mlp.experts.gate_up_proj",
    [SLOT_EXPERTS_DOWN] = "model.layers.{n}.mlp.experts.down_proj",
}};

const struct arch arch_phimoe = {
    .model_type = "phimoe",
    .summary = "Phi-3.5-MoE, Phi-mini-MoE",
    .keys = {INT("num_local_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("intermediate_size", expert_inner),
             F32_OR("router_jitter_noise", router.jitter, 0.01),
             BOOL_OR("lm_head_bias", head_bias, false)},
    .bias = BIAS_ALL,
    .longrope = true,
    .expert_layers = EXPERTS_EVERYWHERE,
    .window = WINDOW_ALL_LAYERS,
    .fixed = {.layer_norm = true, .router.kind = ROUTER_SPARSEMIXER, .router.scale = 1, .rope.theta = 1e6},
    .naming = {&published, &fused},
};
