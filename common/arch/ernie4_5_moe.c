/* ERNIE 4.5 (baidu/ERNIE-4.5-21B-A3B-PT): RoPE rotates neighbouring floats of a head; the softmax router adds a correction
 * for the selection only, and weights are always renormalised; shared experts; experts in a range of layers. Reference:
 * transformers models/ernie4_5_moe. */
#include "common/arch/arch.h"

#define MORE SHARED_NAMES("shared_experts"), DENSE_NAMES, \
    [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.moe_statics.e_score_correction_bias"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, MORE}, .paired = true, .correction_row = true};
static const struct naming fused = {
    .slot = {LLAMA_NAMES, FUSED_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES,
             [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.gate.moe_statics.e_score_correction_bias"},
    .paired = true,
    .correction_row = true,
};

const struct arch arch_ernie4_5_moe = {
    .model_type = "ernie4_5_moe",
    .summary = "ERNIE 4.5 21B-A3B, 300B-A47B",
    .keys = {INT("moe_num_experts", router.experts),
             INT("moe_k", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("moe_num_shared_experts", shared_inner, 2),
             INT_OR("intermediate_size", dense_inner, 0)},
    .refused = {"use_bias"},
    .expert_layers = EXPERTS_IN_RANGE,
    .shared_counted = true,
    .fixed = {.router.kind = ROUTER_SOFTMAX_TOPK, .router.correction = true, .router.renormalise = true, .router.scale = 1,
              .rope.theta = 500000},
    .naming = {&published, &fused},
    .gguf_paired = true,
};
