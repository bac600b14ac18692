/* HunYuan MoE (tencent/Hunyuan-A13B-Instruct): RoPE rotates q and k before the norm of each head; theta is multiplied by a
 * power of alpha; softmax router with renormalised weights; shared experts as wide as the routed ones. Reference:
 * transformers models/hunyuan_v1_moe. */
#include "common/arch/arch.h"

#define MORE SHARED_NAMES("shared_mlp"), \
    [SLOT_FFN_NORM] = "model.layers.{n}.post_attention_layernorm.weight", \
    [SLOT_Q_NORM] = "model.layers.{n}.self_attn.query_layernorm.weight", \
    [SLOT_K_NORM] = "model.layers.{n}.self_attn.key_layernorm.weight", \
    [SLOT_ROUTER] = "model.layers.{n}.mlp.gate.wg.weight"

static const struct naming published = {.slot = {LLAMA_PROJECTIONS, APART_NAMES, MORE}};
static const struct naming fused = {.slot = {LLAMA_PROJECTIONS, TOGETHER_NAMES, MORE}};

const struct arch arch_hunyuan_v1_moe = {
    .model_type = "hunyuan_v1_moe",
    .summary = "Hunyuan-A13B",
    .keys = {INT("num_experts", router.experts),
             INT_ALSO("moe_topk", "num_experts_per_tok", router.top_k),
             INT_ALSO("moe_intermediate_size", "intermediate_size", expert_inner),
             INT_OR("num_shared_expert", shared_inner, 1)},
    .refused = {"use_cla", "moe_layer_num_skipped"},
    .bias = BIAS_ALL,
    .expert_layers = EXPERTS_EVERYWHERE,
    .shared_counted = true,
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .attention.rope_before_norm = true, .router.kind = ROUTER_SOFTMAX_TOPK,
              .router.renormalise = true, .router.scale = 1, .rope.theta = 10000},
    .naming = {&published, &fused},
};
