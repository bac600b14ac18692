/* DeepSeekMoE, the first version (deepseek-ai/deepseek-moe-16b-base): Llama's attention, dense layers first, softmax router,
 * shared experts beside the routed ones. Reference: the model's own code, and arXiv 2401.06066 section 3. */
#include "common/arch/arch.h"

static const struct naming published = {
    .slot = {LLAMA_NAMES, EXPERT_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES},
    .ignored = {"model.layers.{n}.self_attn.rotary_emb.inv_freq"},
};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES}};

const struct arch arch_deepseek = {
    .model_type = "deepseek",
    .summary = "DeepSeekMoE 16B (first version)",
    .keys = {INT("n_routed_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("n_shared_experts", shared_inner, 0),
             INT_OR("intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, false)},
    .bias = BIAS_ALL,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .shared_counted = true,
    .fixed = {.router.kind = ROUTER_SOFTMAX_TOPK, .router.scale = 1, .rope.theta = 10000},
    .naming = {&published, &fused},
    .gguf_paired = true,
};
