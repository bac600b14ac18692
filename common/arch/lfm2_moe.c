/* LFM2 MoE (LiquidAI/LFM2-8B-A1B, LFM2-24B-A2B). Most layers have a gated short convolution; the others have attention with a
 * norm of each head. The first layers are dense, the others have a sigmoid router with a correction. Reference: transformers
 * models/lfm2_moe. */
#include "common/arch/arch.h"

#define LAYER "model.layers.{n}."
#define FFN LAYER "feed_forward."
#define OUTSIDE \
    [SLOT_EMBED] = "model.embed_tokens.weight", \
    [SLOT_HEAD] = "lm_head.weight", \
    [SLOT_FINAL_NORM] = "model.embedding_norm.weight", \
    [SLOT_ATTENTION_NORM] = LAYER "operator_norm.weight", \
    [SLOT_FFN_NORM] = LAYER "ffn_norm.weight", \
    [SLOT_Q] = LAYER "self_attn.q_proj.weight", \
    [SLOT_K] = LAYER "self_attn.k_proj.weight", \
    [SLOT_V] = LAYER "self_attn.v_proj.weight", \
    [SLOT_Q_NORM] = LAYER "self_attn.q_layernorm.weight", \
    [SLOT_K_NORM] = LAYER "self_attn.k_layernorm.weight", \
    [SLOT_OUT] = LAYER "self_attn.out_proj.weight", \
    [SLOT_DELTA_ALL] = LAYER "conv.in_proj.weight", \
    [SLOT_DELTA_CONV] = LAYER "conv.conv.weight", \
    [SLOT_DELTA_OUT] = LAYER "conv.out_proj.weight", \
    [SLOT_DENSE_GATE] = FFN "w1.weight", \
    [SLOT_DENSE_UP] = FFN "w3.weight", \
    [SLOT_DENSE_DOWN] = FFN "w2.weight", \
    [SLOT_ROUTER] = FFN "gate.weight", \
    [SLOT_ROUTER_CORRECTION] = FFN "expert_bias"

static const struct naming published = {.slot = {
    OUTSIDE,
    [SLOT_EXPERT_GATE] = FFN "experts.{e}.w1.weight",
    [SLOT_EXPERT_UP] = FFN "experts.{e}.w3.weight",
    [SLOT_EXPERT_DOWN] = FFN "experts.{e}.w2.weight",
}};
static const struct naming fused = {.slot = {
    OUTSIDE,
    [SLOT_EXPERTS_GATE_UP] = FFN "experts.gate_up_proj",
    [SLOT_EXPERTS_DOWN] = FFN "experts.down_proj",
}};

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    if (config_get(config, "tie_embedding") && config_bool(config, "tie_embedding", true, &s->tied, err))
        return -1;
    s->delta = (struct delta_shape){.taps = 3, .kind = RECURRENCE_NONE};
    if (config_int(config, "conv_L_cache", false, &s->delta.taps, err) ||
        config_bool(config, "use_expert_bias", false, &s->router.correction, err))
        return -1;
    if (!hparams_state_layers(s))
        s->delta = (struct delta_shape){0};
    return 0;
}

const struct arch arch_lfm2_moe = {
    .model_type = "lfm2_moe",
    .summary = "LFM2 MoE (8B-A1B, 24B-A2B)",
    .keys = {INT("num_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("intermediate_size", dense_inner, 0),
             {"norm_eps", KEY_F32, offsetof(struct hparams, norm_epsilon), false, 1e-5, "rms_norm_eps"},
             BOOL_OR("norm_topk_prob", router.renormalise, true),
             F32_OR("routed_scaling_factor", router.scale, 1),
             BOOL_OR("tie_word_embeddings", tied, true)},
    .refused = {"conv_bias"},
    .expert_layers = EXPERTS_AFTER_DENSE,
    .dense_key = "num_dense_layers",
    .states = true,
    .layer_types = {NULL, "conv"},
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .router.kind = ROUTER_SIGMOID, .router.correction = true, .rope.theta = 1e6,
              .delta.kind = RECURRENCE_NONE},
    .finish = finish,
    .naming = {&published, &fused},
};
