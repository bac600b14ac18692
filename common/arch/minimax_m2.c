/* MiniMax-M2 (MiniMaxAI/MiniMax-M2): one norm over all heads of q and one over all heads of k, then RoPE rotates a part of
 * each head; the sigmoid router adds a correction for the selection only, and weights are always renormalised. Reference:
 * transformers models/minimax_m2. */
#include "common/arch/arch.h"

#define MOE "model.layers.{n}.block_sparse_moe."

static const struct naming published = {.slot = {
    LLAMA_NAMES,
    [SLOT_ROUTER] = MOE "gate.weight",
    [SLOT_ROUTER_CORRECTION] = MOE "e_score_correction_bias",
    [SLOT_EXPERT_GATE] = MOE "experts.{e}.w1.weight",
    [SLOT_EXPERT_UP] = MOE "experts.{e}.w3.weight",
    [SLOT_EXPERT_DOWN] = MOE "experts.{e}.w2.weight",
}};
static const struct naming fused = {.slot = {
    LLAMA_NAMES, FUSED_NAMES, [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.e_score_correction_bias"}};

const struct arch arch_minimax_m2 = {
    .model_type = "minimax_m2",
    .summary = "MiniMax-M2, M2.1, M2.5",
    .keys = {INT_ALSO("num_local_experts", "num_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("intermediate_size", expert_inner)},
    .refused = {"shared_intermediate_size"},
    .partial_rotary = 1,
    .rotary_counted = true,
    .expert_layers = EXPERTS_EVERYWHERE,
    .fixed = {.attention.qk_norm = QK_NORM_WHOLE, .router.kind = ROUTER_SIGMOID, .router.correction = true,
              .router.renormalise = true, .router.scale = 1, .rope.theta = 5e6},
    .naming = {&published, &fused},
};
