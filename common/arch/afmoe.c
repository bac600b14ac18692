/* AFMoE (arcee-ai/Trinity-Mini): norms before and after attention and feed-forward network; a gate multiplies the output of
 * attention; sliding and full attention alternate, and full layers apply no RoPE; the sigmoid router adds a correction for
 * the selection only; shared experts; the first layers are dense. Reference: transformers models/afmoe. */
#include "common/arch/arch.h"

#include <math.h>

#define MORE QK_NORM_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES, \
    [SLOT_FFN_NORM] = "model.layers.{n}.pre_mlp_layernorm.weight", \
    [SLOT_ROUTER] = "model.layers.{n}.mlp.router.gate.weight", \
    [SLOT_ATTENTION_OUT_NORM] = "model.layers.{n}.post_attention_layernorm.weight", \
    [SLOT_FFN_OUT_NORM] = "model.layers.{n}.post_mlp_layernorm.weight", \
    [SLOT_ATTENTION_GATE] = "model.layers.{n}.self_attn.gate_proj.weight", \
    [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.expert_bias"

static const struct naming published = {.slot = {LLAMA_PROJECTIONS, APART_NAMES, MORE}};
static const struct naming fused = {.slot = {LLAMA_PROJECTIONS, TOGETHER_NAMES, MORE}};

static int finish(const json_t *config, struct hparams *shape, struct err *err)
{
    bool scaled = false;
    if (config_bool(config, "mup_enabled", false, &scaled, err))
        return -1;
    shape->embed_scale = scaled ? (float)sqrt((double)shape->hidden) : 0;
    return 0;
}

const struct arch arch_afmoe = {
    .model_type = "afmoe",
    .summary = "Trinity (Arcee AFMoE)",
    .keys = {INT("num_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("num_shared_experts", shared_inner, 2),
             INT_OR("intermediate_size", dense_inner, 0),
             F32_OR("route_scale", router.scale, 1)},
    .expert_layers = EXPERTS_AFTER_DENSE,
    .dense_key = "num_dense_layers",
    .window = WINDOW_PATTERN,
    .pattern_key = "global_attn_every_n_layers",
    .full_no_rope = true,
    .shared_counted = true,
    .fixed = {.norms = NORM_BOTH, .attention.qk_norm = QK_NORM_HEAD, .attention.gate = true, .router.kind = ROUTER_SIGMOID,
              .router.correction = true, .router.renormalise = true, .rope.theta = 10000},
    .finish = finish,
    .naming = {&published, &fused},
};
