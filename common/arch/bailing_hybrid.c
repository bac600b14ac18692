/* Ling 3.0 and later models of its line (inclusionAI/Ling-3.0-Flash): most layers have Kimi Delta Attention without latents and
 * with bounded decays; the last one of each group of layers has latent attention, whose heads have an output gate each. Router
 * and experts are those of DeepSeek-V3. Reference: transformers models/bailing_hybrid. Ling 2.5 publishes the same model_type
 * for another network (lightning attention), which is not supported. */
#include "common/arch/arch.h"

#include <string.h>

#define MIXER "model.layers.{n}.attention."
#define NAMES(STATE_OUT) EXPERT_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES, FFN_NORM_NAME, \
    [SLOT_EMBED] = "model.word_embeddings.weight", \
    [SLOT_HEAD] = "lm_head.weight", \
    [SLOT_FINAL_NORM] = "model.norm.weight", \
    [SLOT_ATTENTION_NORM] = "model.layers.{n}.input_layernorm.weight", \
    [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.gate.expert_bias", \
    [SLOT_Q] = MIXER "q_proj.weight", \
    [SLOT_Q_A] = MIXER "q_a_proj.weight", \
    [SLOT_Q_A_NORM] = MIXER "q_a_layernorm.weight", \
    [SLOT_Q_B] = MIXER "q_b_proj.weight", \
    [SLOT_KV_A] = MIXER "kv_a_proj_with_mqa.weight", \
    [SLOT_KV_A_NORM] = MIXER "kv_a_layernorm.weight", \
    [SLOT_KV_B] = MIXER "kv_b_proj.weight", \
    [SLOT_ATTENTION_GATE] = MIXER "g_proj.weight", \
    [SLOT_OUT] = MIXER "dense.weight", \
    [SLOT_DELTA_Q] = MIXER "q_proj.weight", \
    [SLOT_DELTA_K] = MIXER "k_proj.weight", \
    [SLOT_DELTA_V] = MIXER "v_proj.weight", \
    [SLOT_DELTA_CONV_Q] = MIXER "q_conv1d.weight", \
    [SLOT_DELTA_CONV_K] = MIXER "k_conv1d.weight", \
    [SLOT_DELTA_CONV_V] = MIXER "v_conv1d.weight", \
    [SLOT_DELTA_B] = MIXER "b_proj.weight", \
    [SLOT_DELTA_Z] = MIXER "g_proj.weight", \
    [SLOT_DELTA_A] = MIXER "f_proj.weight", \
    [SLOT_DELTA_A_LOG] = MIXER "A_log", \
    [SLOT_DELTA_STEP_BIAS] = MIXER "dt_bias", \
    [SLOT_DELTA_NORM] = MIXER "o_norm.weight", \
    [SLOT_DELTA_OUT] = MIXER STATE_OUT, \
    [SLOT_PREDICT_NORM] = "model.layers.{n}.final_layernorm.weight", \
    [SLOT_PREDICT_EMBED_NORM] = "model.layers.{n}.enorm.weight", \
    [SLOT_PREDICT_HIDDEN_NORM] = "model.layers.{n}.hnorm.weight", \
    [SLOT_PREDICT_JOINT] = "model.layers.{n}.eh_proj.weight"

static const struct naming published = {.slot = {NAMES("o_proj.weight")}};
static const struct naming saved = {.slot = {NAMES("dense.weight")}};      /* as transformers 5 saves the model */

/* Refuses the network of Ling 2.5, and values of other keys that change the computed function. */
static int check_kind(const json_t *config, struct err *err)
{
    const json_t *classes = config_get(config, "architectures");
    const char *class = json_string_value(json_array_get(classes, 0)), *gate = "head_wise", *scores = "sigmoid";
    bool direct = true, state = false;
    int kv_heads = 0;
    if (class && strncmp(class, "BailingMoeV2", strlen("BailingMoeV2")) == 0)
        return config_refuse(config, "architectures", err, "lightning attention (Ling 2.5) is not supported");
    if (config_text(config, "gated_attention_proj_granularity_type", false, &gate, err) ||
        config_text(config, "score_function", false, &scores, err) || config_bool(config, "no_kda_lora", false, &direct, err) ||
        config_bool(config, "mtp_use_kda", false, &state, err) ||
        config_int(config, "num_kv_heads_for_linear_attn", false, &kv_heads, err))
        return -1;
    if (strcmp(gate, "head_wise"))
        return config_refuse(config, "gated_attention_proj_granularity_type", err, "only head_wise is supported");
    if (strcmp(scores, "sigmoid"))
        return config_refuse(config, "score_function", err, "only sigmoid is supported");
    if (!direct)
        return config_refuse(config, "no_kda_lora", err, "only true is supported");
    if (state)
        return config_refuse(config, "mtp_use_kda", err, "only false is supported");
    return kv_heads ? config_refuse(config, "num_kv_heads_for_linear_attn", err, "only 0 is supported") : 0;
}

/* Reads the limits of gated units: lists with a number or null for each layer. Layers after the end of a list have none.
 * transformers and the publisher's code for it ignore these limits, with which the models are trained; the publisher's code for
 * vLLM and SGLang applies them. */
static int read_limits(const json_t *config, struct hparams *s, struct err *err)
{
    static const char *const keys[] = {"expert_swiglu_limit_list", "share_expert_swiglu_limit_list"};
    const json_t *entry;
    size_t at;
    for (int i = 0; i < 2; i++) {
        const json_t *limits = config_get(config, keys[i]);
        if (limits && !json_is_array(limits))
            return config_refuse(config, keys[i], err, "it must be a list");
        json_array_foreach(limits, at, entry) {
            if (!json_is_null(entry) && !(json_is_number(entry) && json_number_value(entry) >= 0))
                return config_refuse(config, keys[i], err, "it must be a list of numbers from 0 and of nulls");
            if (at < (size_t)s->layers + PREDICTORS_MAX && at < LAYERS_MAX)
                *(i ? &s->layer[at].shared_limit : &s->layer[at].expert_limit) = (float)json_number_value(entry);
        }
    }
    return 0;
}

/* Reads which layers have a state if layer_types is absent: all but the last layer of each group and the layers after the
 * last group. */
static int read_groups(const json_t *config, struct hparams *s, struct err *err)
{
    int group = 6;
    if (config_get(config, "layer_types"))
        return 0;
    if (config_int(config, "layer_group_size", false, &group, err))
        return -1;
    if (group < 1)
        return config_refuse(config, "layer_group_size", err, "it must be at least 1");
    for (int i = 0; i < s->layers; i++)
        s->layer[i].state = (i + 1) % group && i < s->layers / group * group;
    return 0;
}

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    bool bounded = true;
    double floor = -5;
    int width = 128, taps = 4, shared = s->expert_inner;
    if (check_kind(config, err) || read_limits(config, s, err) || read_groups(config, s, err) ||
        config_bool(config, "kda_safe_gate", false, &bounded, err) ||
        config_real(config, "kda_lower_bound", false, &floor, err) || config_int(config, "head_dim", false, &width, err) ||
        config_int(config, "linear_head_dim", false, &width, err) ||
        config_int(config, "short_conv_kernel_size", false, &taps, err) ||
        config_int(config, "moe_shared_expert_intermediate_size", false, &shared, err))
        return -1;
    if (bounded && !((float)floor < 0))
        return config_refuse(config, "kda_lower_bound", err, "it must be below 0");
    if (s->shared_inner && shared != s->expert_inner)
        return config_refuse(config, "moe_shared_expert_intermediate_size", err, "only moe_intermediate_size is supported");
    s->delta = (struct delta_shape){.key_heads = s->attention.heads, .value_heads = s->attention.heads, .key_dim = width,
                                    .value_dim = width, .taps = taps, .kind = RECURRENCE_CHANNEL,
                                    .floor = bounded ? (float)floor : 0};
    if (!hparams_state_layers(s))
        s->delta = (struct delta_shape){0};
    return 0;
}

const struct arch arch_bailing_hybrid = {
    .model_type = "bailing_hybrid",
    .summary = "Ling 3.0",
    .keys = {INT_ALSO("num_experts", "num_local_experts", router.experts),
             INT_ALSO("num_experts_per_tok", "num_experts_per_token", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             {"num_shared_experts", KEY_INT, offsetof(struct hparams, shared_inner), false, 1, "n_shared_experts"},
             INT_OR("intermediate_size", dense_inner, 0),
             {"norm_topk_prob", KEY_BOOL, offsetof(struct hparams, router.renormalise), false, 1, "moe_renormalize"},
             BOOL_OR("moe_router_enable_expert_bias", router.correction, true),
             F32_OR("routed_scaling_factor", router.scale, 2.5),
             {"n_group", KEY_INT, offsetof(struct hparams, router.groups), false, 8, "num_expert_group"},
             INT_OR("topk_group", router.groups_kept, 4)},
    .refused = {"attention_bias", "use_qkv_bias", "use_bias", "use_mla_nope"},
    .latent = true,
    .partial_rotary = 1,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .shared_counted = true,
    .states = true,
    .fixed = {.attention.latent_epsilon = 1e-6f, .attention.gate = true, .attention.head_gate = true,
              .router.kind = ROUTER_SIGMOID, .router.group_rank = 2, .rope.theta = 6000000, .delta.kind = RECURRENCE_CHANNEL},
    .finish = finish,
    .naming = {&published, &saved},
};
