/* Qwen3.5 and Qwen3.6 MoE (Qwen/Qwen3.5-35B-A3B): Qwen3-Next with separate projections in its layers with a state. In
 * checkpoints with a vision tower, which is left out, the text model's config and tensors are nested. Reference:
 * transformers models/qwen3_5_moe. */
#include "common/arch/arch.h"

#define MORE(model) MTP_NAMES, \
    [SLOT_EMBED] = model "embed_tokens.weight", \
    [SLOT_HEAD] = "lm_head.weight", \
    [SLOT_FINAL_NORM] = model "norm.weight", \
    [SLOT_ATTENTION_NORM] = model "layers.{n}.input_layernorm.weight", \
    [SLOT_FFN_NORM] = model "layers.{n}.post_attention_layernorm.weight", \
    [SLOT_Q] = model "layers.{n}.self_attn.q_proj.weight", \
    [SLOT_K] = model "layers.{n}.self_attn.k_proj.weight", \
    [SLOT_V] = model "layers.{n}.self_attn.v_proj.weight", \
    [SLOT_Q_NORM] = model "layers.{n}.self_attn.q_norm.weight", \
    [SLOT_K_NORM] = model "layers.{n}.self_attn.k_norm.weight", \
    [SLOT_OUT] = model "layers.{n}.self_attn.o_proj.weight", \
    [SLOT_ROUTER] = model "layers.{n}.mlp.gate.weight", \
    [SLOT_SHARED_GATE] = model "layers.{n}.mlp.shared_expert.gate_proj.weight", \
    [SLOT_SHARED_UP] = model "layers.{n}.mlp.shared_expert.up_proj.weight", \
    [SLOT_SHARED_DOWN] = model "layers.{n}.mlp.shared_expert.down_proj.weight", \
    [SLOT_SHARED_WEIGHT] = model "layers.{n}.mlp.shared_expert_gate.weight", \
    [SLOT_DELTA_QKV] = model "layers.{n}.linear_attn.in_proj_qkv.weight", \
    [SLOT_DELTA_Z] = model "layers.{n}.linear_attn.in_proj_z.weight", \
    [SLOT_DELTA_B] = model "layers.{n}.linear_attn.in_proj_b.weight", \
    [SLOT_DELTA_A] = model "layers.{n}.linear_attn.in_proj_a.weight", \
    [SLOT_DELTA_CONV] = model "layers.{n}.linear_attn.conv1d.weight", \
    [SLOT_DELTA_A_LOG] = model "layers.{n}.linear_attn.A_log", \
    [SLOT_DELTA_STEP_BIAS] = model "layers.{n}.linear_attn.dt_bias", \
    [SLOT_DELTA_NORM] = model "layers.{n}.linear_attn.norm.weight", \
    [SLOT_DELTA_OUT] = model "layers.{n}.linear_attn.out_proj.weight"
#define TOGETHER(model) \
    [SLOT_EXPERTS_GATE_UP] = model "layers.{n}.mlp.experts.gate_up_proj", \
    [SLOT_EXPERTS_DOWN] = model "layers.{n}.mlp.experts.down_proj"
#define APART(model) \
    [SLOT_EXPERT_GATE] = model "layers.{n}.mlp.experts.{e}.gate_proj.weight", \
    [SLOT_EXPERT_UP] = model "layers.{n}.mlp.experts.{e}.up_proj.weight", \
    [SLOT_EXPERT_DOWN] = model "layers.{n}.mlp.experts.{e}.down_proj.weight"
#define NESTED "model.language_model."

#define RULES .centred = true, .gated_q = true, .ahead = "mtp.", .ignored = {"mtp.*", "model.visual.*"}

static const struct naming published = {.slot = {MORE(NESTED), TOGETHER(NESTED)}, RULES};
static const struct naming apart = {.slot = {MORE(NESTED), APART(NESTED)}, RULES};
static const struct naming text = {.slot = {MORE("model."), TOGETHER("model.")}, RULES};

static int finish(const json_t *config, struct hparams *shape, struct err *err)
{
    bool gated = true;
    (void)shape;
    if (config_bool(config, "attn_output_gate", false, &gated, err))
        return -1;
    return gated ? 0 : config_refuse(config, "attn_output_gate", err, "only true is supported");
}

const struct arch arch_qwen3_5_moe = {
    .model_type = "qwen3_5_moe",
    .also = "qwen3_5_moe_text",
    .summary = "Qwen3.5 MoE, Qwen3.6 MoE (35B-A3B and others)",
    .keys = {INT("num_experts", router.experts),
             INT("num_experts_per_tok", router.top_k),
             INT("moe_intermediate_size", expert_inner),
             INT("shared_expert_intermediate_size", shared_inner)},
    .refused = {"attention_bias"},
    .partial_rotary = 0.25,
    .expert_layers = EXPERTS_EVERYWHERE,
    .states = true,
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .attention.gate = true, .router.kind = ROUTER_SOFTMAX_TOPK,
              .router.renormalise = true, .router.scale = 1, .shared_gate = true, .rope.theta = 10000},
    .finish = finish,
    .naming = {&published, &apart, &text},
};
