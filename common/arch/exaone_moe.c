/* K-EXAONE (LGAI-EXAONE/K-EXAONE-236B-A23B): sliding and full attention alternate, and full layers apply no RoPE; a norm of
 * each head of q and k; the router of DeepSeek-V3, shared experts, dense layers first. A predictor has a dense layer.
 * Reference: transformers models/exaone_moe; for the predictor vLLM, exaone_moe_mtp.py. */
#include <string.h>

#include "common/arch/arch.h"

#define OUTSIDE LLAMA_PROJECTIONS, QK_NORM_NAMES, FFN_NORM_NAME, MTP_NAMES
#define RULES .ignored = {"mtp.*"}, .ahead = "mtp."
static const struct naming published = {
    .slot = {OUTSIDE, EXPERT_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES,
             [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.e_score_correction_bias"}, RULES};
static const struct naming fused = {.slot = {OUTSIDE, FUSED_NAMES, CORRECTED_NAMES}, RULES};

/* Sets the attention of the predictors' layers: full attention by default. */
static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *types = config_get(config, "mtp_layer_types"), *windows = config_get(config, "mtp_sliding_windows");
    bool any = false;
    int window = 0;
    for (int i = 0; i < s->layers; i++)
        any |= s->layer[i].window > 0;
    if (config_int(config, "sliding_window", false, &window, err))
        return -1;
    for (int i = 0; i < PREDICTORS_MAX && s->layers + i < LAYERS_MAX; i++) {
        struct layer_shape *layer = &s->layer[s->layers + i];
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        const json_t *own = json_array_get(windows, (size_t)i);
        const bool slides = type && strcmp(type, "sliding_attention") == 0;
        if (type && !slides && strcmp(type, "full_attention"))
            return config_refuse(config, "mtp_layer_types", err, "supported are full_attention and sliding_attention");
        if (slides && (json_is_integer(own) ? json_integer_value(own) < 1 || json_integer_value(own) > INT32_MAX : window < 1))
            return config_refuse(config, "mtp_layer_types", err, "predictor %d slides, but has no window; give it one in "
                                 "mtp_sliding_windows", i);
        layer->window = !slides ? 0 : json_is_integer(own) ? (int)json_integer_value(own) : window;
        layer->no_rope = !slides && any;
    }
    return 0;
}

const struct arch arch_exaone_moe = {
    .model_type = "exaone_moe",
    .summary = "K-EXAONE 236B-A23B",
    .keys = {INT("num_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT_OR("num_shared_experts", shared_inner, 1),
             INT_OR("intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, true),
             F32_OR("routed_scaling_factor", router.scale, 2.5),
             INT_OR("n_group", router.groups, 1),
             INT_OR("topk_group", router.groups_kept, 1)},
    .expert_layers = EXPERTS_AFTER_DENSE,
    .window = WINDOW_PATTERN,
    .pattern_key = "sliding_window_pattern",
    .full_no_rope = true,
    .shared_counted = true,
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .router.kind = ROUTER_SIGMOID, .router.correction = true,
              .router.group_rank = 2, .rope.theta = 10000},
    .finish = finish,
    .naming = {&published, &fused},
};
