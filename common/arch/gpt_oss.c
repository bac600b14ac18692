/* gpt-oss (openai/gpt-oss-20b): sliding and full attention alternate; each head has a sink; biases everywhere; clamped gated
 * units with a steeper sigmoid; gate and up rows of experts alternate. Without quantisation all experts are one tensor of
 * [inputs][outputs]. Reference: transformers models/gpt_oss. */
#include "common/arch/arch.h"

#define NAMES LLAMA_NAMES, \
    [SLOT_SINKS] = "model.layers.{n}.self_attn.sinks", \
    [SLOT_ROUTER] = "model.layers.{n}.mlp.router.weight", \
    [SLOT_ROUTER_BIAS] = "model.layers.{n}.mlp.router.bias", \
    [SLOT_EXPERTS_GATE_UP_BIAS] = "model.layers.{n}.mlp.experts.gate_up_proj_bias", \
    [SLOT_EXPERTS_DOWN_BIAS] = "model.layers.{n}.mlp.experts.down_proj_bias"

static const struct naming plain = {
    .slot = {NAMES, [SLOT_EXPERTS_GATE_UP] = "model.layers.{n}.mlp.experts.gate_up_proj",
             [SLOT_EXPERTS_DOWN] = "model.layers.{n}.mlp.experts.down_proj"},
    .transposed = true,
    .alternating = true,
};

/* The published naming: MXFP4, whose blocks extend along the inputs. */
static const struct naming blocks = {
    .slot = {NAMES, [SLOT_EXPERTS_GATE_UP] = "model.layers.{n}.mlp.experts.gate_up_proj_blocks",
             [SLOT_EXPERTS_DOWN] = "model.layers.{n}.mlp.experts.down_proj_blocks"},
    .alternating = true,
};

/* Refuses numbers for which kernels/plain/glu.h would compute another activation. */
static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    if (!(s->glu_limit > 0))
        return config_refuse(config, "swiglu_limit", err, "it must be above 0");
    return s->glu_alpha > 0 ? 0 : config_refuse(config, "swiglu_alpha", err, "it must be above 0");
}

const struct arch arch_gpt_oss = {
    .model_type = "gpt_oss",
    .summary = "gpt-oss-20b, gpt-oss-120b",
    .keys = {INT("num_local_experts", router.experts),
             INT_ALSO("num_experts_per_tok", "experts_per_token", router.top_k),
             INT("intermediate_size", expert_inner),
             F32_OR("swiglu_limit", glu_limit, 7),
             F32_OR("swiglu_alpha", glu_alpha, 1.702)},
    .bias = BIAS_ALL_UNLESS,
    .expert_layers = EXPERTS_EVERYWHERE,
    .window = WINDOW_ALTERNATING,
    .rope_required = true,
    .fixed = {.attention.sinks = true, .router.kind = ROUTER_SOFTMAX_TOPK, .router.renormalise = true, .router.scale = 1,
              .router.bias = true, .expert_bias = true, .rope.theta = 150000},
    .finish = finish,
    .naming = {&plain, &blocks},
    .gguf_unrounded = true,
};
