/* Nemotron-H and Nemotron 3 (nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16; arXiv 2504.03624). A layer is half of a usual one: a
 * Mamba-2 mixer, attention without positions, experts, or a dense network, after a norm. Networks have no gates: down(relu(up
 * x)^2). Sigmoid router with a correction and groups, one shared expert. Reference: transformers models/nemotron_h, without
 * its lower limit of time steps (time_step_min), which the published code lacks. */
#include "common/arch/arch.h"

#include <string.h>

#define LAYER "backbone.layers.{n}."
#define MIXER LAYER "mixer."
#define NAMES(PREFIX, ...) {.slot = { \
    [SLOT_EMBED] = PREFIX "embeddings.weight", \
    [SLOT_HEAD] = "lm_head.weight", \
    [SLOT_FINAL_NORM] = PREFIX "norm_f.weight", \
    [SLOT_ATTENTION_NORM] = PREFIX "layers.{n}.norm.weight", \
    [SLOT_FFN_NORM] = PREFIX "layers.{n}.norm.weight", \
    MIXERS(PREFIX "layers.{n}.mixer."), __VA_ARGS__}, \
    .ignored = {"mtp.*"}, .left_out = "predictors of this family are not supported"}
#define MIXERS(MIXER) \
    [SLOT_Q] = MIXER "q_proj.weight", \
    [SLOT_K] = MIXER "k_proj.weight", \
    [SLOT_V] = MIXER "v_proj.weight", \
    [SLOT_OUT] = MIXER "o_proj.weight", \
    MAMBA_NAMES(MIXER), \
    [SLOT_DENSE_UP] = MIXER "up_proj.weight", \
    [SLOT_DENSE_DOWN] = MIXER "down_proj.weight", \
    [SLOT_SHARED_UP] = MIXER "shared_experts.up_proj.weight", \
    [SLOT_SHARED_DOWN] = MIXER "shared_experts.down_proj.weight", \
    [SLOT_ROUTER] = MIXER "gate.weight", \
    [SLOT_ROUTER_CORRECTION] = MIXER "gate.e_score_correction_bias"

static const struct naming published = NAMES("backbone.",
    [SLOT_EXPERT_UP] = MIXER "experts.{e}.up_proj.weight",
    [SLOT_EXPERT_DOWN] = MIXER "experts.{e}.down_proj.weight");
static const struct naming fused = NAMES("model.",
    [SLOT_EXPERTS_UP] = "model.layers.{n}.mixer.experts.up_proj",
    [SLOT_EXPERTS_DOWN] = "model.layers.{n}.mixer.experts.down_proj");

/* The kinds of layers: their letter in hybrid_override_pattern, and their words in layers_block_type. */
static const struct kind { char letter; const char *word, *other; struct layer_shape shape; } KINDS[] = {
    {'M', "mamba", "linear_attention", {.ffn = FFN_NONE, .state = true}},
    {'*', "attention", "full_attention", {.ffn = FFN_NONE, .no_rope = true}},
    {'E', "moe", "moe", {.ffn = FFN_EXPERTS, .ffn_alone = true}},
    {'-', "mlp", "mlp", {.ffn = FFN_DENSE, .ffn_alone = true}},
};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

static int read_layers(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *list = config_get(config, "layers_block_type");
    const char *key = list ? "layers_block_type" : "hybrid_override_pattern", *letters = NULL;
    if (!list && config_text(config, key, true, &letters, err))
        return -1;
    if ((list ? json_array_size(list) : strlen(letters)) != (size_t)s->layers)
        return config_refuse(config, key, err, "it must list %d layers", s->layers);
    for (int i = 0; i < s->layers; i++) {
        const char *word = json_string_value(json_array_get(list, (size_t)i));
        int k = 0;
        while (k < KIND_COUNT && (list ? !word || (strcmp(word, KINDS[k].word) && strcmp(word, KINDS[k].other))
                                       : letters[i] != KINDS[k].letter))
            k++;
        if (k == KIND_COUNT)
            return config_refuse(config, key, err, "layer %d: supported are mamba (M), attention (*), moe (E) and mlp (-)", i);
        s->layer[i] = KINDS[k].shape;
    }
    return 0;
}

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    const char *activation = "relu2", *convolution = "silu";
    if (read_layers(config, s, err) || config_no_step_limit(config, err) ||
        config_text(config, "mlp_hidden_act", false, &activation, err) ||
        config_text(config, "mamba_hidden_act", false, &convolution, err))
        return -1;
    if (strcmp(convolution, "silu"))
        return config_refuse(config, "mamba_hidden_act", err, "only silu is supported");
    if (strcmp(activation, "relu2"))
        return config_refuse(config, "mlp_hidden_act", err, "only relu2 is supported");
    s->delta.norm_groups = s->delta.key_heads;
    if (!hparams_state_layers(s))
        s->delta = (struct delta_shape){0};
    arch_unused_ffn(s);
    return 0;
}

const struct arch arch_nemotron_h = {
    .model_type = "nemotron_h",
    .summary = "Nemotron 3 Nano (30B-A3B), Nemotron-H",
    .keys = {INT_OR("n_routed_experts", router.experts, 8),
             INT_OR("num_experts_per_tok", router.top_k, 2),
             INT_OR("moe_intermediate_size", expert_inner, 0),
             INT_OR("moe_shared_expert_intermediate_size", shared_inner, 0),
             INT_OR("intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, true),
             F32_OR("routed_scaling_factor", router.scale, 1),
             INT_OR("n_group", router.groups, 1),
             INT_OR("topk_group", router.groups_kept, 1),
             {"layer_norm_epsilon", KEY_F32, offsetof(struct hparams, norm_epsilon), false, 1e-5, "rms_norm_eps"},
             INT_OR("n_groups", delta.key_heads, 8),
             INT_OR("mamba_num_heads", delta.value_heads, 128),
             INT_OR("ssm_state_size", delta.key_dim, 128),
             INT_OR("mamba_head_dim", delta.value_dim, 64),
             INT_OR("conv_kernel", delta.taps, 4),
             BOOL_OR("use_conv_bias", delta.conv_bias, true)},
    .refused = {"use_bias", "attention_bias", "mlp_bias", "moe_latent_size"},
    .expert_layers = EXPERTS_EVERYWHERE,
    .states = true,
    .halves = true,
    .partial_rotary = 1,
    .fixed = {.router.kind = ROUTER_SIGMOID, .router.correction = true, .router.group_rank = 2, .rope.theta = 10000,
              .delta.kind = RECURRENCE_SPACE, .glu = GLU_NONE_RELU2},
    .finish = finish,
    .naming = {&published, &fused},
};
