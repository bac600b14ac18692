/* FlexOlmo (allenai/FlexOlmo-7x7B-1T): attention and experts read the residual stream without a norm, and a norm of their
 * output is added to it; one norm over all of q and one over all of k; softmax router, by default without renormalisation.
 * Reference: transformers models/flex_olmo. */
#include "common/arch/arch.h"

#define NORMS \
    [SLOT_ATTENTION_OUT_NORM] = "model.layers.{n}.post_attention_layernorm.weight", \
    [SLOT_FFN_OUT_NORM] = "model.layers.{n}.post_feedforward_layernorm.weight"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, NORMS}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, NORMS}};

const struct arch arch_flex_olmo = {
    .model_type = "flex_olmo",
    .summary = "FlexOlmo",
    .keys = {INT_ALSO("num_experts", "num_local_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("intermediate_size", expert_inner),
             BOOL_OR("norm_topk_prob", router.renormalise, false)},
    .bias = BIAS_ALL,
    .expert_layers = EXPERTS_EVERYWHERE,
    .fixed = {.norms = NORM_AFTER, .attention.qk_norm = QK_NORM_WHOLE, .router.kind = ROUTER_SOFTMAX_TOPK, .router.scale = 1,
              .rope.theta = 500000},
    .naming = {&published, &fused},
};
