/* Command A MoE (Cohere): attention and feed-forward network read the same norm, and both outputs are added to the residual
 * stream; RoPE rotates neighbouring floats of a head; sliding and full attention alternate, and full layers apply RoPE only
 * if they are dense; the output of shared experts may be averaged with that of the routed ones. Reference: transformers
 * models/cohere2_moe. */
#include "common/arch/arch.h"

#include <string.h>

static const struct naming published = {
    .slot = {LLAMA_NAMES, EXPERT_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES}, .paired = true};
static const struct naming fused = {
    .slot = {LLAMA_NAMES, FUSED_NAMES, SHARED_NAMES("shared_experts"), DENSE_NAMES}, .paired = true};

/* Reads the router, which selects the largest logits and turns them into weights by a softmax over the selected ones or by a
 * sigmoid of each. */
static int read_router(const json_t *config, struct hparams *s, struct err *err)
{
    const char *choice = "softmax", *join = "average";
    if (config_text(config, "expert_selection_fn", false, &choice, err) ||
        config_text(config, "shared_expert_combination_strategy", false, &join, err))
        return -1;
    if (strcmp(choice, "softmax") && strcmp(choice, "sigmoid"))
        return config_refuse(config, "expert_selection_fn", err, "supported are softmax and sigmoid");
    if (strcmp(join, "average") && strcmp(join, "sum"))
        return config_refuse(config, "shared_expert_combination_strategy", err, "supported are average and sum");
    if (strcmp(choice, "sigmoid") == 0)
        s->router.kind = ROUTER_SIGMOID;
    else
        s->router.renormalise = true;
    if (s->shared_inner && strcmp(join, "average") == 0)
        s->router.scale = s->shared_scale = 0.5f;
    return 0;
}

/* Reads the pattern of windows. The first layers, which are dense, have a pattern of their own. */
static int read_pattern(const json_t *config, struct hparams *s, struct err *err)
{
    int dense = 0, pattern = 1, window = 0, others = 4;
    if (config_int(config, "prefix_dense_sliding_window_pattern", false, &pattern, err) ||
        config_int(config, "sliding_window", false, &window, err) ||
        config_int(config, "sliding_window_pattern", false, &others, err))
        return -1;
    if (pattern < 1)
        return config_refuse(config, "prefix_dense_sliding_window_pattern", err, "it must be at least 1");
    while (dense < s->layers && s->layer[dense].ffn == FFN_DENSE)
        dense++;
    for (int i = 0; i < s->layers && !config_get(config, "layer_types"); i++)
        s->layer[i].window = (i < dense ? (i + 1) % pattern : (i - dense + 1) % others) ? window : 0;
    for (int i = 0; i < s->layers; i++)
        s->layer[i].no_rope = !s->layer[i].window && (s->layer[i].ffn != FFN_DENSE || pattern != 1);
    return 0;
}

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    double scale = 0.0625;
    s->layer_norm = s->norm_unbiased = config_get(config, "rms_norm_eps") == NULL;
    if (config_real(config, "logit_scale", false, &scale, err))
        return -1;
    if (!(scale >= 1e-6 && scale <= 1e6))
        return config_refuse(config, "logit_scale", err, "it must be above 0");
    s->logit_divisor = (float)(1 / scale);
    return read_router(config, s, err) || read_pattern(config, s, err) ? -1 : 0;
}

const struct arch arch_cohere2_moe = {
    .model_type = "cohere2_moe",
    .summary = "Cohere Command A MoE",
    .keys = {INT_ALSO("num_experts", "num_local_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("intermediate_size", expert_inner),
             INT_OR("num_shared_experts", shared_inner, 0),
             INT_OR("prefix_dense_intermediate_size", dense_inner, 0),
             BOOL_OR("norm_topk_prob", router.renormalise, true),
             BOOL_OR("tie_word_embeddings", tied, true)},
    .refused = {"use_qk_norm"},
    .bias = BIAS_ALL,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .window = WINDOW_PATTERN,
    .pattern_key = "sliding_window_pattern",
    .shared_counted = true,
    .fixed = {.parallel = true, .router.kind = ROUTER_SOFTMAX_TOPK, .router.scale = 1, .rope.theta = 10000},
    .finish = finish,
    .naming = {&published, &fused},
};
