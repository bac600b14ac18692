/* DeepSeek-V2 and V2-Lite (deepseek-ai/DeepSeek-V2-Lite): latent attention, dense layers first, shared experts; the softmax
 * router may select experts only from the groups with the best single experts. Reference: transformers models/deepseek_v2,
 * and arXiv 2405.04434. */
#include "common/arch/arch.h"

#define MORE LATENT_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES

static const struct naming published = {
    .slot = {LLAMA_NAMES, EXPERT_NAMES, MORE}, .ignored = {"model.layers.{n}.self_attn.rotary_emb.inv_freq"}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, MORE}};

const struct arch arch_deepseek_v2 = {
    .model_type = "deepseek_v2",
    .summary = "DeepSeek-V2, V2-Lite, V2.5, Coder-V2",
    .keys = {INT("n_routed_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("n_shared_experts", shared_inner, 0),
             INT_OR("intermediate_size", dense_inner, 0),
             F32_OR("routed_scaling_factor", router.scale, 1)},
    .refused = {"norm_topk_prob"},      /* if set, the published code renormalises and does not scale; transformers ignores
                                         * it */
    .bias = BIAS_ALL,
    .latent = true,
    .groups = GROUPS_IF_LIMITED,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .shared_counted = true,
    .fixed = {.attention.latent_epsilon = 1e-6f, .router.kind = ROUTER_SOFTMAX_TOPK, .router.group_rank = 1,
              .rope.theta = 10000},
    .naming = {&published, &fused},
};
