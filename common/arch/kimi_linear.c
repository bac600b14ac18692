/* Kimi Linear (moonshotai/Kimi-Linear-48B-A3B-Instruct, arXiv 2510.26692). Most layers have Kimi Delta Attention: the delta
 * rule with a decay for each channel of the key; the steps of the decay and the gate of the output are projected from
 * latents. The others have latent attention without positions. Router and experts are those of DeepSeek-V3. Reference:
 * transformers models/kimi_linear. */
#include "common/arch/arch.h"

#include <string.h>

#define MOE "model.layers.{n}.block_sparse_moe."
#define KDA "model.layers.{n}.self_attn."
#define OUTSIDE(MLP) LLAMA_PROJECTIONS, FFN_NORM_NAME, LATENT_NAMES, \
    [SLOT_DELTA_Q] = KDA "q_proj.weight", \
    [SLOT_DELTA_K] = KDA "k_proj.weight", \
    [SLOT_DELTA_V] = KDA "v_proj.weight", \
    [SLOT_DELTA_CONV_Q] = KDA "q_conv1d.weight", \
    [SLOT_DELTA_CONV_K] = KDA "k_conv1d.weight", \
    [SLOT_DELTA_CONV_V] = KDA "v_conv1d.weight", \
    [SLOT_DELTA_B] = KDA "b_proj.weight", \
    [SLOT_DELTA_GATE_A] = KDA "g_a_proj.weight", \
    [SLOT_DELTA_GATE_B] = KDA "g_b_proj.weight", \
    [SLOT_DELTA_STEP_A] = KDA "f_a_proj.weight", \
    [SLOT_DELTA_STEP_B] = KDA "f_b_proj.weight", \
    [SLOT_DELTA_A_LOG] = KDA "A_log", \
    [SLOT_DELTA_STEP_BIAS] = KDA "dt_bias", \
    [SLOT_DELTA_NORM] = KDA "o_norm.weight", \
    [SLOT_DELTA_OUT] = KDA "o_proj.weight", \
    [SLOT_SHARED_GATE] = MLP "shared_experts.gate_proj.weight", \
    [SLOT_SHARED_UP] = MLP "shared_experts.up_proj.weight", \
    [SLOT_SHARED_DOWN] = MLP "shared_experts.down_proj.weight", \
    [SLOT_ROUTER] = MLP "gate.weight", \
    [SLOT_ROUTER_CORRECTION] = MLP "gate.e_score_correction_bias"

#define EXPERTS \
    [SLOT_EXPERT_GATE] = MOE "experts.{e}.w1.weight", \
    [SLOT_EXPERT_UP] = MOE "experts.{e}.w3.weight", \
    [SLOT_EXPERT_DOWN] = MOE "experts.{e}.w2.weight"

static const struct naming published = {.slot = {OUTSIDE(MOE), DENSE_NAMES, EXPERTS}};
static const struct naming fused = {.slot = {OUTSIDE("model.layers.{n}.mlp."), DENSE_NAMES, TOGETHER_NAMES}};
/* save_pretrained of transformers 5 also renames the dense layers. */
static const struct naming saved = {.slot = {
    OUTSIDE(MOE), EXPERTS,
    [SLOT_DENSE_GATE] = MOE "gate_proj.weight",
    [SLOT_DENSE_UP] = MOE "up_proj.weight",
    [SLOT_DENSE_DOWN] = MOE "down_proj.weight",
}};

/* Reads which layers have attention from full_attn_layers, which counts from 1. No-op if the config has layer_types. */
static int read_layers(const json_t *config, const json_t *linear, struct hparams *s, struct err *err)
{
    const json_t *full = config_get(linear, "full_attn_layers"), *entry;
    size_t at;
    if (config_get(config, "layer_types") || !full)
        return 0;
    if (!json_is_array(full))
        return config_refuse(linear, "full_attn_layers", err, "it must be a list of layers");
    for (int i = 0; i < s->layers; i++)
        s->layer[i].state = true;
    json_array_foreach(full, at, entry) {
        const json_int_t layer = json_integer_value(entry);
        if (!json_is_integer(entry) || layer < 1 || layer > s->layers)
            return config_refuse(linear, "full_attn_layers", err, "its entries must be from 1 to %d", s->layers);
        s->layer[layer - 1].state = false;
    }
    return 0;
}

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *linear = config_get(config, "linear_attn_config");
    const char *scores = "sigmoid";
    bool no_rope = true;
    int heads = 32, width = 128, taps = 4;
    if (config_text(config, "moe_router_activation_func", false, &scores, err) ||
        config_bool(config, "mla_use_nope", false, &no_rope, err) || read_layers(config, linear, s, err) ||
        config_int(config, "linear_num_heads", false, &heads, err) ||
        config_int(config, "linear_head_dim", false, &width, err) ||
        config_int(config, "linear_conv_kernel_dim", false, &taps, err) ||
        config_int(linear, "num_heads", false, &heads, err) || config_int(linear, "head_dim", false, &width, err) ||
        config_int(linear, "short_conv_kernel_size", false, &taps, err))
        return -1;
    if (strcmp(scores, "sigmoid"))
        return config_refuse(config, "moe_router_activation_func", err, "only sigmoid is supported");
    if (!no_rope)
        return config_refuse(config, "mla_use_nope", err, "only true is supported");
    s->delta = (struct delta_shape){.key_heads = heads, .value_heads = heads, .key_dim = width, .value_dim = width,
                                    .taps = taps, .kind = RECURRENCE_CHANNEL, .gate_rank = width};
    if (!hparams_state_layers(s))
        s->delta = (struct delta_shape){0};
    for (int i = 0; i < s->layers; i++)
        s->layer[i].no_rope = !s->layer[i].state;
    return 0;
}

const struct arch arch_kimi_linear = {
    .model_type = "kimi_linear",
    .summary = "Kimi Linear (48B-A3B)",
    .keys = {INT_ALSO("num_experts", "num_local_experts", router.experts),
             INT_ALSO("num_experts_per_token", "num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             {"num_shared_experts", KEY_INT, offsetof(struct hparams, shared_inner), false, 1, "n_shared_experts"},
             INT_OR("intermediate_size", dense_inner, 0),
             {"moe_renormalize", KEY_BOOL, offsetof(struct hparams, router.renormalise), false, 1, "norm_topk_prob"},
             F32_OR("routed_scaling_factor", router.scale, 1),
             {"num_expert_group", KEY_INT, offsetof(struct hparams, router.groups), false, 1, "n_group"},
             INT_OR("topk_group", router.groups_kept, 1)},
    .refused = {"attention_bias"},
    .latent = true,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .shared_counted = true,
    .states = true,
    .fixed = {.attention.latent_epsilon = 1e-6f, .router.kind = ROUTER_SIGMOID, .router.correction = true,
              .router.group_rank = 2, .rope.theta = 10000, .delta.kind = RECURRENCE_CHANNEL},
    .finish = finish,
    .naming = {&published, &fused, &saved},
    .gguf_renormalise = true,
};
