/* Jamba (ai21labs/AI21-Jamba-Mini-1.7, Large-1.7, arXiv 2403.19887). Most layers are Mamba-1 (arXiv 2312.00752), whose steps, B
 * and C are normed; one in each period has attention, without positions. One in each period of another kind has experts, with
 * weights that are not renormalised; the others have a dense network as wide as an expert. Reference: transformers
 * models/jamba. */
#include "common/arch/arch.h"

#include <string.h>

#define LAYER "model.layers.{n}."
#define MIXER LAYER "mamba."
#define FFN LAYER "feed_forward."
#define OUTSIDE \
    [SLOT_EMBED] = "model.embed_tokens.weight", \
    [SLOT_HEAD] = "lm_head.weight", \
    [SLOT_FINAL_NORM] = "model.final_layernorm.weight", \
    [SLOT_ATTENTION_NORM] = LAYER "input_layernorm.weight", \
    [SLOT_Q] = LAYER "self_attn.q_proj.weight", \
    [SLOT_K] = LAYER "self_attn.k_proj.weight", \
    [SLOT_V] = LAYER "self_attn.v_proj.weight", \
    [SLOT_OUT] = LAYER "self_attn.o_proj.weight", \
    [SLOT_FFN_NORM] = LAYER "pre_ff_layernorm.weight", \
    [SLOT_DELTA_ALL] = MIXER "in_proj.weight", \
    [SLOT_DELTA_CONV] = MIXER "conv1d.weight", \
    [SLOT_DELTA_CONV_BIAS] = MIXER "conv1d.bias", \
    [SLOT_DELTA_STEP_A] = MIXER "x_proj.weight", \
    [SLOT_DELTA_STEP_B] = MIXER "dt_proj.weight", \
    [SLOT_DELTA_STEP_BIAS] = MIXER "dt_proj.bias", \
    [SLOT_DELTA_Q_NORM] = MIXER "c_layernorm.weight", \
    [SLOT_DELTA_K_NORM] = MIXER "b_layernorm.weight", \
    [SLOT_DELTA_STEP_NORM] = MIXER "dt_layernorm.weight", \
    [SLOT_DELTA_A_LOG] = MIXER "A_log", \
    [SLOT_DELTA_SKIP] = MIXER "D", \
    [SLOT_DELTA_OUT] = MIXER "out_proj.weight", \
    [SLOT_ROUTER] = FFN "router.weight", \
    [SLOT_DENSE_GATE] = FFN "gate_proj.weight", \
    [SLOT_DENSE_UP] = FFN "up_proj.weight", \
    [SLOT_DENSE_DOWN] = FFN "down_proj.weight"

static const struct naming published = {.slot = {
    OUTSIDE,
    [SLOT_EXPERT_GATE] = FFN "experts.{e}.gate_proj.weight",
    [SLOT_EXPERT_UP] = FFN "experts.{e}.up_proj.weight",
    [SLOT_EXPERT_DOWN] = FFN "experts.{e}.down_proj.weight",
}};
static const struct naming fused = {.slot = {
    OUTSIDE,
    [SLOT_EXPERTS_GATE_UP] = FFN "experts.gate_up_proj",
    [SLOT_EXPERTS_DOWN] = FFN "experts.down_proj",
}};

/* Reads a period, and which layer of each period is special: layer N if N % period == offset. */
static int read_period(const json_t *config, const char *period_key, const char *offset_key, int period, int offset, int out[2],
                       struct err *err)
{
    out[0] = period;
    out[1] = offset;
    if (config_int(config, period_key, false, &out[0], err) || config_int(config, offset_key, false, &out[1], err))
        return -1;
    if (out[0] < 1)
        return config_refuse(config, period_key, err, "it must be at least 1");
    return out[1] < 0 || out[1] >= out[0] ? config_refuse(config, offset_key, err, "it must be from 0 to %d", out[0] - 1) : 0;
}

/* Divides the values into at least 8 heads of equal width, so that threads can share the work. The network has no
 * heads. */
static void cut_heads(struct delta_shape *d, int values)
{
    d->value_dim = values / 8 < 1 ? 1 : values / 8 < 64 ? values / 8 : 64;
    while (values % d->value_dim)
        d->value_dim--;
    d->value_heads = values / d->value_dim;
}

static int read_mamba(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *rank = config_get(config, "mamba_dt_rank");
    int expand = 2;
    s->delta.gate_rank = (s->hidden + 15) / 16;
    if (config_int(config, "mamba_expand", false, &expand, err) ||
        (!(json_is_string(rank) && strcmp(json_string_value(rank), "auto") == 0) &&
         config_int(config, "mamba_dt_rank", false, &s->delta.gate_rank, err)))
        return -1;
    if (expand < 1 || expand > 64 || s->hidden < 1 || s->hidden > WIDTH_MAX / expand)
        return config_refuse(config, "mamba_expand", err, "mamba_expand times hidden_size must be from 1 to %d", WIDTH_MAX);
    s->delta.key_heads = 1;
    cut_heads(&s->delta, expand * s->hidden);
    return 0;
}

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    int attention[2], experts[2];
    if (read_period(config, "attn_layer_period", "attn_layer_offset", 8, 4, attention, err) ||
        read_period(config, "expert_layer_period", "expert_layer_offset", 2, 1, experts, err) || read_mamba(config, s, err))
        return -1;
    for (int i = 0; i < s->layers; i++) {
        const bool dense = s->router.experts < 2 || i % experts[0] != experts[1];
        s->layer[i].state = i % attention[0] != attention[1];
        s->layer[i].no_rope = !s->layer[i].state;
        s->layer[i].ffn = dense ? FFN_DENSE : FFN_EXPERTS;
    }
    arch_unused_ffn(s);
    if (!hparams_state_layers(s))
        s->delta = (struct delta_shape){0};
    return 0;
}

const struct arch arch_jamba = {
    .model_type = "jamba",
    .summary = "Jamba (Mini, Large and others)",
    .keys = {INT_OR("num_experts", router.experts, 16),
             INT_OR("num_experts_per_tok", router.top_k, 2),
             INT("intermediate_size", expert_inner),
             INT("intermediate_size", dense_inner),
             INT_OR("mamba_d_state", delta.key_dim, 16),
             INT_OR("mamba_d_conv", delta.taps, 4),
             BOOL_OR("mamba_conv_bias", delta.conv_bias, true)},
    .refused = {"mamba_proj_bias", "sliding_window"},
    .expert_layers = EXPERTS_EVERYWHERE,
    .states = true,
    .fixed = {.router.kind = ROUTER_SOFTMAX_TOPK, .router.scale = 1, .rope.theta = 10000, .delta.kind = RECURRENCE_SCAN},
    .finish = finish,
    .naming = {&published, &fused},
};
