/* Qwen3-Next (Qwen/Qwen3-Next-80B-A3B-Instruct): layers with a state, Gated DeltaNet (arXiv 2412.06464), and every fourth
 * layer with attention, whose output a gate multiplies; RoPE rotates a quarter of each head; norms whose weights are stored
 * less 1; softmax router, and a shared expert with a gate of its own. A predictor has such a layer with attention.
 * Reference: transformers models/qwen3_next; for the predictor vLLM, qwen3_next_mtp.py. */
#include "common/arch/arch.h"

#define SHARED SHARED_NAMES("shared_expert"), [SLOT_SHARED_WEIGHT] = "model.layers.{n}.mlp.shared_expert_gate.weight"
#define OUTSIDE LLAMA_PROJECTIONS, QK_NORM_NAMES, FFN_NORM_NAME, MTP_NAMES
#define MIXER "model.layers.{n}.linear_attn."
#define DELTA \
    [SLOT_DELTA_QKVZ] = MIXER "in_proj_qkvz.weight", \
    [SLOT_DELTA_BA] = MIXER "in_proj_ba.weight", \
    [SLOT_DELTA_CONV] = MIXER "conv1d.weight", \
    [SLOT_DELTA_A_LOG] = MIXER "A_log", \
    [SLOT_DELTA_STEP_BIAS] = MIXER "dt_bias", \
    [SLOT_DELTA_NORM] = MIXER "norm.weight", \
    [SLOT_DELTA_OUT] = MIXER "out_proj.weight"

#define RULES .ignored = {"mtp.*"}, .centred = true, .gated_q = true, .ahead = "mtp."
static const struct naming published = {.slot = {OUTSIDE, EXPERT_NAMES, SHARED, DENSE_NAMES, DELTA}, RULES};
static const struct naming fused = {.slot = {OUTSIDE, FUSED_NAMES, SHARED, DENSE_NAMES, DELTA}, RULES};

const struct arch arch_qwen3_next = {
    .model_type = "qwen3_next",
    .summary = "Qwen3-Next 80B-A3B",
    .keys = {INT_ALSO("num_experts", "num_local_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT("shared_expert_intermediate_size", shared_inner),
             INT_OR("intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, true)},
    .refused = {"attention_bias"},
    .partial_rotary = 0.25,
    .expert_layers = EXPERTS_BY_STEP,
    .states = true,
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .attention.gate = true, .router.kind = ROUTER_SOFTMAX_TOPK,
              .router.scale = 1, .shared_gate = true, .rope.theta = 10000},
    .naming = {&published, &fused},
};
