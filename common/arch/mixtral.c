/* Mixtral (mistralai/Mixtral-8x7B-v0.1): softmax over all experts; the weights of the selected experts are always
 * renormalised. Reference: transformers models/mixtral. */
#include "common/arch/arch.h"

#define MIXTRAL "model.layers.{n}.block_sparse_moe."

static const struct naming published = {.slot = {
    LLAMA_NAMES,
    [SLOT_ROUTER] = MIXTRAL "gate.weight",
    [SLOT_EXPERT_GATE] = MIXTRAL "experts.{e}.w1.weight",
    [SLOT_EXPERT_UP] = MIXTRAL "experts.{e}.w3.weight",
    [SLOT_EXPERT_DOWN] = MIXTRAL "experts.{e}.w2.weight",
}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES}};

const struct arch arch_mixtral = {
    .model_type = "mixtral",
    .summary = "Mixtral 8x7B, 8x22B",
    .keys = {INT("num_local_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("intermediate_size", expert_inner)},
    .expert_layers = EXPERTS_EVERYWHERE,
    .window = WINDOW_ALL_LAYERS,
    .fixed = {.router.kind = ROUTER_SOFTMAX_TOPK, .router.renormalise = true, .router.scale = 1, .rope.theta = 1e6},
    .naming = {&published, &fused},
    .gguf_paired = true,
};
