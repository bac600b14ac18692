/* Granite 4 (ibm-granite/granite-4.0-h-small, h-tiny). Most layers are Mamba-2 (arXiv 2405.21060); the others have attention,
 * without positions unless position_embedding_type is rope. Fixed factors and router are those of Granite 3; shared experts
 * have no gate. In models without routed experts (h-micro, h-350m) the shared experts are a dense network. Reference:
 * transformers models/granitemoehybrid. */
#include "common/arch/arch.h"

#include <string.h>

#define MIXER "model.layers.{n}.mamba."
#define MOE "model.layers.{n}.block_sparse_moe."
#define SHARED_MLP "model.layers.{n}.shared_mlp."
#define OUTSIDE LLAMA_PROJECTIONS, FFN_NORM_NAME, \
    MAMBA_NAMES(MIXER), \
    [SLOT_SHARED_GATE_UP] = SHARED_MLP "input_linear.weight", \
    [SLOT_SHARED_DOWN] = SHARED_MLP "output_linear.weight", \
    [SLOT_DENSE_GATE_UP] = SHARED_MLP "input_linear.weight", \
    [SLOT_DENSE_DOWN] = SHARED_MLP "output_linear.weight"

static const struct naming published = {.slot = {
    OUTSIDE,
    [SLOT_ROUTER] = MOE "router.layer.weight",
    [SLOT_EXPERTS_GATE_UP] = MOE "input_linear.weight",
    [SLOT_EXPERTS_DOWN] = MOE "output_linear.weight",
}};
static const struct naming fused = {.slot = {
    OUTSIDE,
    [SLOT_ROUTER] = MOE "router.weight",
    [SLOT_EXPERTS_GATE_UP] = MOE "experts.gate_up_proj",
    [SLOT_EXPERTS_DOWN] = MOE "experts.down_proj",
}};

/* Reads the members of the Mamba-2 shape that no single key states. */
static int read_mamba(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *width = config_get(config, "mamba_d_head");
    int expand = 2;
    if (config_int(config, "mamba_expand", false, &expand, err) || config_no_step_limit(config, err))
        return -1;
    s->delta.norm_groups = s->delta.key_heads;
    if (width && !json_is_string(width))
        return config_int(config, "mamba_d_head", true, &s->delta.value_dim, err);
    if (s->delta.value_heads < 1 || expand < 1 || expand > 64)
        return config_refuse(config, "mamba_n_heads", err, "heads of equal width must share mamba_expand times hidden_size");
    s->delta.value_dim = (int)((int64_t)expand * s->hidden / s->delta.value_heads);
    return 0;
}

/* Turns the shared experts of a model without routed experts into a dense network. */
static void make_dense(struct hparams *s)
{
    s->dense_inner = s->shared_inner;
    s->shared_inner = s->expert_inner = s->router.top_k = 0;
    for (int i = 0; i < s->layers; i++)
        s->layer[i].ffn = FFN_DENSE;
}

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    const char *positions = "nope";
    if (config_text(config, "position_embedding_type", false, &positions, err) || read_mamba(config, s, err))
        return -1;
    if (strcmp(positions, "nope") && strcmp(positions, "rope"))
        return config_refuse(config, "position_embedding_type", err, "supported are nope and rope");
    for (int i = 0; i < s->layers; i++)
        s->layer[i].no_rope = strcmp(positions, "nope") == 0;
    if (!s->router.experts)
        make_dense(s);
    if (!hparams_state_layers(s))
        s->delta = (struct delta_shape){0};
    return 0;
}

const struct arch arch_granitemoehybrid = {
    .model_type = "granitemoehybrid",
    .summary = "Granite 4 (h-small, h-tiny and others)",
    .keys = {INT("num_local_experts", router.experts),
             INT_OR("num_experts_per_tok", router.top_k, 0),
             INT("intermediate_size", expert_inner),
             INT_OR("shared_intermediate_size", shared_inner, 1024),
             F32_OR("embedding_multiplier", embed_scale, 1),
             F32_OR("residual_multiplier", residual_scale, 1),
             F32_OR("attention_multiplier", attention.scale, 1),
             F32_OR("logits_scaling", logit_divisor, 1),
             INT_OR("mamba_n_groups", delta.key_heads, 1),
             INT_OR("mamba_n_heads", delta.value_heads, 128),
             INT_OR("mamba_d_state", delta.key_dim, 256),
             INT_OR("mamba_d_conv", delta.taps, 4),
             BOOL_OR("mamba_conv_bias", delta.conv_bias, true)},
    .refused = {"attention_bias", "mamba_proj_bias"},
    .expert_layers = EXPERTS_EVERYWHERE,
    .states = true,
    .layer_types = {"attention", "mamba"},
    .fixed = {.router.kind = ROUTER_SOFTMAX_TOPK, .router.renormalise = true, .router.scale = 1, .rope.theta = 10000,
              .delta.kind = RECURRENCE_SPACE},
    .finish = finish,
    .naming = {&published, &fused},
    .gguf_paired = true,
};
