/* Gemma 4 with experts (google/gemma-4-26B-A4B-it): full layers have wider heads, fewer heads for keys and values, values
 * that equal the keys, and a rope that rotates only some pairs; norms before and after each part; a dense block beside the
 * routed experts, each with norms of its own; a router with a norm and a scale for each expert; gelu by tanh; each layer
 * scales the residual stream; logits are capped. Reference: transformers models/gemma4. */
#include "common/arch/arch.h"

#include <math.h>
#include <string.h>

#define AT(prefix) prefix "layers.{n}."
#define GEMMA(prefix) \
    [SLOT_EMBED] = prefix "embed_tokens.weight", \
    [SLOT_HEAD] = "lm_head.weight", \
    [SLOT_FINAL_NORM] = prefix "norm.weight", \
    [SLOT_ATTENTION_NORM] = AT(prefix) "input_layernorm.weight", \
    [SLOT_ATTENTION_OUT_NORM] = AT(prefix) "post_attention_layernorm.weight", \
    [SLOT_Q] = AT(prefix) "self_attn.q_proj.weight", \
    [SLOT_K] = AT(prefix) "self_attn.k_proj.weight", \
    [SLOT_V] = AT(prefix) "self_attn.v_proj.weight", \
    [SLOT_Q_NORM] = AT(prefix) "self_attn.q_norm.weight", \
    [SLOT_K_NORM] = AT(prefix) "self_attn.k_norm.weight", \
    [SLOT_OUT] = AT(prefix) "self_attn.o_proj.weight", \
    [SLOT_FFN_NORM] = AT(prefix) "pre_feedforward_layernorm.weight", \
    [SLOT_FFN_OUT_NORM] = AT(prefix) "post_feedforward_layernorm.weight", \
    [SLOT_SHARED_OUT_NORM] = AT(prefix) "post_feedforward_layernorm_1.weight", \
    [SLOT_EXPERTS_NORM] = AT(prefix) "pre_feedforward_layernorm_2.weight", \
    [SLOT_EXPERTS_OUT_NORM] = AT(prefix) "post_feedforward_layernorm_2.weight", \
    [SLOT_SHARED_GATE] = AT(prefix) "mlp.gate_proj.weight", \
    [SLOT_SHARED_UP] = AT(prefix) "mlp.up_proj.weight", \
    [SLOT_SHARED_DOWN] = AT(prefix) "mlp.down_proj.weight", \
    [SLOT_ROUTER] = AT(prefix) "router.proj.weight", \
    [SLOT_ROUTER_NORM] = AT(prefix) "router.scale", \
    [SLOT_EXPERT_SCALE] = AT(prefix) "router.per_expert_scale", \
    [SLOT_EXPERTS_GATE_UP] = AT(prefix) "experts.gate_up_proj", \
    [SLOT_EXPERTS_DOWN] = AT(prefix) "experts.down_proj", \
    [SLOT_LAYER_SCALE] = AT(prefix) "layer_scalar"

static const struct naming text = {.slot = {GEMMA("model.")}};
static const struct naming nested = {
    .slot = {GEMMA("model.language_model.")},
    .ignored = {"model.vision_tower.*", "model.embed_vision.*", "model.audio_tower.*", "model.embed_audio.*"}};

/* Reads the heads of full layers, as published or as transformers 5 writes them: one object per layer. */
static int read_full_heads(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *each = config_get(config, "per_layer_config"), *own = NULL;
    char number[16];
    s->other = (struct attention_kind){.kv_heads = s->attention.kv_heads, .head_dim = 512, .value_is_key = false};
    for (int i = s->layers - 1; i >= 0 && !own; i--) {
        snprintf(number, sizeof number, "%d", i);
        own = s->layer[i].other ? config_get(each, number) : NULL;
    }
    if (config_bool(config, "attention_k_eq_v", false, &s->other.value_is_key, err) ||
        config_int(config, "global_head_dim", false, &s->other.head_dim, err) ||
        (s->other.value_is_key && config_int(config, "num_global_key_value_heads", false, &s->other.kv_heads, err)) ||
        config_int(own, "head_dim", false, &s->other.head_dim, err) ||
        config_int(own, "num_key_value_heads", false, &s->other.kv_heads, err))
        return -1;
    s->other.value_dim = s->other.head_dim;
    return 0;
}

static int check(const json_t *config, struct err *err)
{
    const char *activation = "gelu_pytorch_tanh", *both = "vision";
    bool experts = false;
    if (config_text(config, "hidden_activation", false, &activation, err) ||
        config_text(config, "use_bidirectional_attention", false, &both, err) ||
        config_bool(config, "enable_moe_block", false, &experts, err))
        return -1;
    if (strcmp(activation, "gelu_pytorch_tanh"))
        return config_refuse(config, "hidden_activation", err, "only gelu_pytorch_tanh is supported");
    if (strcmp(both, "vision"))
        return config_refuse(config, "use_bidirectional_attention", err, "attention must be causal");
    return experts ? 0 : config_refuse(config, "enable_moe_block", err, "only Gemma 4 with experts is supported");
}

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *ropes = config_get(config, "rope_parameters"), *full = config_get(ropes, "full_attention");
    if (check(config, err) || read_full_heads(config, s, err))
        return -1;
    if (!full)
        return config_refuse(config, "rope_parameters", err, "it must have objects full_attention and sliding_attention");
    if (arch_read_other_rope(config, full, &arch_gemma4, s, err))
        return err_at(err, "rope_parameters");
    s->attention.scale = 1;
    s->embed_scale = sqrtf((float)s->hidden);
    s->router.logit_scale = 1 / sqrtf((float)s->hidden);
    return 0;
}

const struct arch arch_gemma4 = {
    .model_type = "gemma4_text",
    .also = "gemma4",
    .summary = "Gemma 4 26B-A4B (text)",
    .keys = {INT("num_experts", router.experts),
             INT("top_k_experts", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT("intermediate_size", shared_inner),
             F32_OR("final_logit_softcapping", logit_cap, 0),
             BOOL_OR("tie_word_embeddings", tied, true)},
    .refused = {"hidden_size_per_layer_input", "num_kv_shared_layers", "use_double_wide_mlp", "attention_bias"},
    .partial_rotary = 1,
    .expert_layers = EXPERTS_EVERYWHERE,
    .window = WINDOW_PATTERN,
    .pattern_key = "sliding_window_pattern",
    .other = OTHER_FULL,
    .fixed = {.norms = NORM_BOTH, .attention.qk_norm = QK_NORM_HEAD, .attention.value_norm = true,
              .router.kind = ROUTER_SOFTMAX_TOPK, .router.renormalise = true, .router.scale = 1, .router.norm = true,
              .router.expert_scale = true, .shared_apart = true, .glu = GLU_GELU_TANH, .layer_scale = true,
              .rope.theta = 10000},
    .finish = finish,
    .naming = {&text, &nested},
};
