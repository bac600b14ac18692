/* Llama 4, the text model (meta-llama/Llama-4-Scout-17B-16E-Instruct). RoPE rotates neighbouring floats of a head; norms
 * without weights of each head follow. Attention is limited to a token's own chunk; every fourth layer has no positions,
 * attends to all tokens and scales queries by a factor that grows with the position. The router chooses one expert per token;
 * the sigmoid of the logit multiplies the input of this expert. A shared expert is added. Maverick has experts in every second
 * layer. Reference: transformers models/llama4. */
#include <string.h>

#include "common/arch/arch.h"

#define AT(prefix) prefix "model.layers.{n}."
#define LLAMA4(prefix) \
    [SLOT_EMBED] = prefix "model.embed_tokens.weight", \
    [SLOT_HEAD] = prefix "lm_head.weight", \
    [SLOT_FINAL_NORM] = prefix "model.norm.weight", \
    [SLOT_ATTENTION_NORM] = AT(prefix) "input_layernorm.weight", \
    [SLOT_FFN_NORM] = AT(prefix) "post_attention_layernorm.weight", \
    [SLOT_Q] = AT(prefix) "self_attn.q_proj.weight", \
    [SLOT_K] = AT(prefix) "self_attn.k_proj.weight", \
    [SLOT_V] = AT(prefix) "self_attn.v_proj.weight", \
    [SLOT_Q_BIAS] = AT(prefix) "self_attn.q_proj.bias", \
    [SLOT_K_BIAS] = AT(prefix) "self_attn.k_proj.bias", \
    [SLOT_V_BIAS] = AT(prefix) "self_attn.v_proj.bias", \
    [SLOT_OUT] = AT(prefix) "self_attn.o_proj.weight", \
    [SLOT_OUT_BIAS] = AT(prefix) "self_attn.o_proj.bias", \
    [SLOT_DENSE_GATE] = AT(prefix) "feed_forward.gate_proj.weight", \
    [SLOT_DENSE_UP] = AT(prefix) "feed_forward.up_proj.weight", \
    [SLOT_DENSE_DOWN] = AT(prefix) "feed_forward.down_proj.weight", \
    [SLOT_ROUTER] = AT(prefix) "feed_forward.router.weight", \
    [SLOT_EXPERTS_GATE_UP] = AT(prefix) "feed_forward.experts.gate_up_proj", \
    [SLOT_EXPERTS_DOWN] = AT(prefix) "feed_forward.experts.down_proj", \
    [SLOT_SHARED_GATE] = AT(prefix) "feed_forward.shared_expert.gate_proj.weight", \
    [SLOT_SHARED_UP] = AT(prefix) "feed_forward.shared_expert.up_proj.weight", \
    [SLOT_SHARED_DOWN] = AT(prefix) "feed_forward.shared_expert.down_proj.weight"

static const struct naming text = {.slot = {LLAMA4("")}, .transposed = true, .paired = true};
static const struct naming nested = {
    .slot = {LLAMA4("language_model.")}, .transposed = true, .paired = true,
    .ignored = {"vision_model.*", "multi_modal_projector.*"}};

/* Reads which layers have positions and which have chunks: from no_rope_layers (1: positions) and layer_types; without these
 * lists every no_rope_layer_interval-th layer has neither. */
static int read_chunks(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *rotates = config_get(config, "no_rope_layers"), *types = config_get(config, "layer_types");
    int interval = 4, chunk = 8192;
    if (config_int(config, "no_rope_layer_interval", false, &interval, err) ||
        config_int(config, "attention_chunk_size", false, &chunk, err))
        return -1;
    if (interval < 1 || chunk < 1)
        return config_refuse(config, interval < 1 ? "no_rope_layer_interval" : "attention_chunk_size", err,
                             "it must be at least 1");
    if (rotates && (!json_is_array(rotates) || (json_array_size(rotates) && json_array_size(rotates) != (size_t)s->layers)))
        return config_refuse(config, "no_rope_layers", err, "it must list %d layers", s->layers);
    if (types && json_array_size(types) != (size_t)s->layers)
        return config_refuse(config, "layer_types", err, "it must list %d layers", s->layers);
    for (int i = 0; i < s->layers; i++) {
        const json_t *own = json_array_get(rotates, (size_t)i);
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        s->layer[i].no_rope = own ? json_integer_value(own) == 0 : (i + 1) % interval == 0;
        if (types && (!type || (strcmp(type, "chunked_attention") && strcmp(type, "full_attention"))))
            return config_refuse(config, "layer_types", err, "supported are chunked_attention and full_attention");
        s->layer[i].window = (type ? strcmp(type, "chunked_attention") == 0 : !s->layer[i].no_rope) ? chunk : 0;
    }
    return 0;
}

/* Reads the scale of queries in layers without positions. Old files contain a number in place of true. */
static int read_growth(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *tuned = config_get(config, "attn_temperature_tuning");
    double scale = 0.1;
    int floor = 8192;
    bool any = false;
    if (config_real(config, "attn_scale", false, &scale, err) || config_int(config, "floor_scale", false, &floor, err))
        return -1;
    if (!(scale >= 0 && scale <= 1e6))
        return config_refuse(config, "attn_scale", err, "it must be at least 0");
    if (floor < 1)
        return config_refuse(config, "floor_scale", err, "it must be at least 1");
    for (int i = 0; i < s->layers; i++)
        any |= s->layer[i].no_rope;
    if (any && scale > 0 && !json_is_false(tuned) && !(json_is_integer(tuned) && json_integer_value(tuned) == 0)) {
        s->attention.no_rope_scale = (float)scale;
        s->attention.no_rope_floor = floor;
    }
    return 0;
}

/* Reads which layers have experts: moe_layers, or every interleave_moe_layer_step-th layer. */
static int read_experts(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *listed = config_get(config, "moe_layers"), *entry;
    int step = 1;
    size_t at;
    if (config_int(config, "interleave_moe_layer_step", false, &step, err))
        return -1;
    if (step < 1)
        return config_refuse(config, "interleave_moe_layer_step", err, "it must be at least 1");
    if (listed && !json_is_array(listed))
        return config_refuse(config, "moe_layers", err, "it must be a list of layers");
    for (int i = 0; i < s->layers; i++)
        s->layer[i].ffn = !listed && (i + 1) % step == 0 ? FFN_EXPERTS : FFN_DENSE;
    json_array_foreach(listed, at, entry) {
        const json_int_t layer = json_integer_value(entry);
        if (!json_is_integer(entry) || layer < 0 || layer >= s->layers)
            return config_refuse(config, "moe_layers", err, "its entries must be layers from 0 to %d", s->layers - 1);
        s->layer[layer].ffn = FFN_EXPERTS;
    }
    const int count = hparams_moe_layers(s);
    if (count == 0)
        return config_refuse(config, listed ? "moe_layers" : "interleave_moe_layer_step", err, "no layer would have experts");
    if (count == s->layers)
        s->dense_inner = 0;
    return 0;
}

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    bool normed = true;
    if (config_bool(config, "use_qk_norm", false, &normed, err))
        return -1;
    s->attention.qk_norm = normed ? QK_NORM_HEAD : QK_NORM_NONE;
    s->attention.rope_before_norm = s->attention.plain_norm = normed;
    return read_chunks(config, s, err) || read_growth(config, s, err) || read_experts(config, s, err) ? -1 : 0;
}

const struct arch arch_llama4 = {
    .model_type = "llama4_text",
    .also = "llama4",
    .summary = "Llama 4 Scout, Maverick (text)",
    .keys = {INT("num_local_experts", router.experts),
             INT_OR("num_experts_per_tok", router.top_k, 1),
             INT("intermediate_size", expert_inner),
             INT("intermediate_size", shared_inner),
             INT_OR("intermediate_size_mlp", dense_inner, 0)},
    .bias = BIAS_ALL,
    .expert_layers = EXPERTS_EVERYWHERE,
    .window = WINDOW_CHUNKED,
    .fixed = {.attention.aligned = true, .router.kind = ROUTER_SIGMOID, .router.scale = 1, .router.weigh_input = true,
              .rope.theta = 500000},
    .finish = finish,
    .naming = {&text, &nested},
    .gguf_paired = true,
};
