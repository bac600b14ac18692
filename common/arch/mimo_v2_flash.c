/* MiMo-V2-Flash (XiaomiMiMo/MiMo-V2-Flash): sliding layers have more heads for keys and values, a sink for each head and a
 * rope of their own; values are narrower than keys, and scaled; RoPE rotates a part of each head; the sigmoid router adds a
 * correction for the selection only. Predictors have a sliding layer with a dense network. Reference: transformers
 * models/mimo_v2_flash; for the predictors SGLang, mimo_v2_flash_nextn.py. */
#include "common/arch/arch.h"

#define SINKS(name) \
    LLAMA_PROJECTIONS, FFN_NORM_NAME, DENSE_NAMES, \
    [SLOT_PREDICT_NORM] = "model.layers.{n}.final_layernorm.weight", \
    [SLOT_PREDICT_EMBED_NORM] = "model.layers.{n}.enorm.weight", \
    [SLOT_PREDICT_HIDDEN_NORM] = "model.layers.{n}.hnorm.weight", \
    [SLOT_PREDICT_JOINT] = "model.layers.{n}.eh_proj.weight", \
    [SLOT_PREDICT_FFN_NORM] = "model.layers.{n}.pre_mlp_layernorm.weight", \
    [SLOT_SINKS] = "model.layers.{n}.self_attn." name, \
    [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.gate.e_score_correction_bias"

#define RULES .ignored = {"model.mtp.*"}, .ahead = "model.mtp."
static const struct naming published = {.slot = {EXPERT_NAMES, SINKS("attention_sink_bias")}, RULES};
static const struct naming fused = {.slot = {FUSED_NAMES, SINKS("sinks")}, RULES};

/* Reads which layers have a window. Published files list them; without a list all layers but the first and every sixth have
 * one. */
static int read_windows(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *pattern = config_get(config, "hybrid_layer_pattern");
    int window = 129, before = 0;
    if (config_int(config, "sliding_window", false, &window, err) ||
        config_int(config, "sliding_window_size", false, &before, err))
        return -1;
    if (before > 0)                                 /* number of tokens before the token itself */
        window = before + 1;
    if (pattern && json_array_size(pattern) != (size_t)s->layers)
        return config_refuse(config, "hybrid_layer_pattern", err, "it must list %d layers", s->layers);
    for (int i = 0; i < s->layers; i++) {
        bool slides = i && (i + 1) % 6;
        if (config_get(config, "layer_types"))
            slides = s->layer[i].window > 0;
        else if (pattern)
            slides = json_integer_value(json_array_get(pattern, (size_t)i)) != 0;
        s->layer[i].window = slides ? window : 0;
        s->layer[i].other = slides;
    }
    for (int i = s->layers; i < s->layers + PREDICTORS_MAX && i < LAYERS_MAX; i++)      /* predictors have a window */
        s->layer[i] = (struct layer_shape){.window = window, .other = true};
    return 0;
}

static int read_ropes(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *ropes = config_get(config, "rope_parameters"), *own = config_get(ropes, "sliding_attention");
    double theta = 10000;
    if (own)
        return arch_read_other_rope(config, own, &arch_mimo_v2_flash, s, err) ? err_at(err, "rope_parameters") : 0;
    if (config_real(config, "swa_rope_theta", false, &theta, err))
        return -1;
    s->other.rope = (struct rope_shape){.theta = theta, .rotary = s->rope.rotary};
    return 0;
}

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    double epsilon = (double)s->norm_epsilon;
    s->attention.value_dim = 128;
    s->attention.sinks = false;
    s->other = (struct attention_kind){.kv_heads = 2 * s->attention.kv_heads, .head_dim = s->attention.head_dim, .sinks = true};
    if (config_real(config, "layernorm_epsilon", false, &epsilon, err) ||
        config_int(config, "v_head_dim", false, &s->attention.value_dim, err))
        return -1;
    s->norm_epsilon = (float)epsilon;
    s->other.value_dim = s->attention.value_dim;
    if (json_is_null(json_object_get(config, "attention_value_scale")))
        s->attention.value_scale = 0;
    return config_int(config, "swa_num_key_value_heads", false, &s->other.kv_heads, err) ||
           config_int(config, "swa_head_dim", false, &s->other.head_dim, err) ||
           config_int(config, "swa_v_head_dim", false, &s->other.value_dim, err) ||
           config_bool(config, "add_swa_attention_sink_bias", false, &s->other.sinks, err) ||
           config_bool(config, "add_full_attention_sink_bias", false, &s->attention.sinks, err) ||
           read_windows(config, s, err) || read_ropes(config, s, err) ? -1 : 0;
}

const struct arch arch_mimo_v2_flash = {
    .model_type = "mimo_v2_flash",
    .summary = "MiMo-V2-Flash",
    .keys = {INT("n_routed_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, true),
             F32_OR("routed_scaling_factor", router.scale, 1),
             INT_OR("n_group", router.groups, 1),
             INT_OR("topk_group", router.groups_kept, 1),
             F32_OR("attention_value_scale", attention.value_scale, 0.707)},
    .refused = {"n_shared_experts", "attention_bias"},
    .partial_rotary = 0.334,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .window = WINDOW_PATTERN,
    .other = OTHER_SLIDING,
    .fixed = {.router.kind = ROUTER_SIGMOID, .router.correction = true, .router.group_rank = 2, .rope.theta = 5e6},
    .finish = finish,
    .naming = {&published, &fused},
};
