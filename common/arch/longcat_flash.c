/* LongCat-Flash (meituan-longcat/LongCat-Flash-Chat). A published layer becomes two layers here, each with latent attention and
 * a dense network. The experts of the first layer read the same input as its dense network (SLOT_SHARED_*), and their sum is
 * added after the second layer. Some choices of the softmax router are zero experts, which return their input. Queries are
 * scaled by sqrt(hidden / q_rank), the latent of keys and values by sqrt(hidden / kv_rank). Reference: transformers
 * models/longcat_flash. */
#include "common/arch/arch.h"

#include <math.h>
#include <string.h>

#define AT "model.layers.{h}."
static const struct naming published = {
    .slot = {[SLOT_EMBED] = "model.embed_tokens.weight",
             [SLOT_HEAD] = "lm_head.weight",
             [SLOT_FINAL_NORM] = "model.norm.weight",
             [SLOT_ATTENTION_NORM] = AT "input_layernorm.{o}.weight",
             [SLOT_FFN_NORM] = AT "post_attention_layernorm.{o}.weight",
             [SLOT_Q_A] = AT "self_attn.{o}.q_a_proj.weight",
             [SLOT_Q_A_BIAS] = AT "self_attn.{o}.q_a_proj.bias",
             [SLOT_Q_A_NORM] = AT "self_attn.{o}.q_a_layernorm.weight",
             [SLOT_Q_B] = AT "self_attn.{o}.q_b_proj.weight",
             [SLOT_KV_A] = AT "self_attn.{o}.kv_a_proj_with_mqa.weight",
             [SLOT_KV_A_BIAS] = AT "self_attn.{o}.kv_a_proj_with_mqa.bias",
             [SLOT_KV_A_NORM] = AT "self_attn.{o}.kv_a_layernorm.weight",
             [SLOT_KV_B] = AT "self_attn.{o}.kv_b_proj.weight",
             [SLOT_OUT] = AT "self_attn.{o}.o_proj.weight",
             [SLOT_OUT_BIAS] = AT "self_attn.{o}.o_proj.bias",
             [SLOT_SHARED_GATE] = AT "mlps.0.gate_proj.weight",
             [SLOT_SHARED_UP] = AT "mlps.0.up_proj.weight",
             [SLOT_SHARED_DOWN] = AT "mlps.0.down_proj.weight",
             [SLOT_DENSE_GATE] = AT "mlps.1.gate_proj.weight",
             [SLOT_DENSE_UP] = AT "mlps.1.up_proj.weight",
             [SLOT_DENSE_DOWN] = AT "mlps.1.down_proj.weight",
             [SLOT_ROUTER] = AT "mlp.router.classifier.weight",
             [SLOT_ROUTER_CORRECTION] = AT "mlp.router.e_score_correction_bias",
             [SLOT_EXPERT_GATE] = AT "mlp.experts.{e}.gate_proj.weight",
             [SLOT_EXPERT_UP] = AT "mlp.experts.{e}.up_proj.weight",
             [SLOT_EXPERT_DOWN] = AT "mlp.experts.{e}.down_proj.weight"},
    .ignored = {"model.mtp.*"},
    .left_out = "predictors of this family are not supported"};

static int finish(const json_t *config, struct hparams *s, struct err *err)
{
    const char *kind = "identity";
    int published_layers = s->layers / 2;
    bool scaled_q = true, scaled_kv = true;
    if (config_int(config, "num_layers", false, &published_layers, err) ||
        config_text(config, "zero_expert_type", false, &kind, err) ||
        config_bool(config, "mla_scale_q_lora", false, &scaled_q, err) ||
        config_bool(config, "mla_scale_kv_lora", false, &scaled_kv, err))
        return -1;
    if (published_layers < 1 || published_layers > LAYERS_MAX / 2)
        return config_refuse(config, "num_layers", err, "it must be from 1 to %d", LAYERS_MAX / 2);
    if (strcmp(kind, "identity"))
        return config_refuse(config, "zero_expert_type", err, "only identity is supported");
    if (s->attention.q_rank < 1)
        return config_refuse(config, "q_lora_rank", err, "it must be at least 1");
    s->layers = 2 * published_layers;
    for (int i = 0; i < s->layers; i++)
        s->layer[i].ffn = i % 2 ? FFN_DENSE : FFN_EXPERTS;
    if (scaled_q)
        s->attention.scale *= sqrtf((float)s->hidden / (float)s->attention.q_rank);
    if (scaled_kv)
        s->attention.latent_scale = sqrtf((float)s->hidden / (float)s->attention.kv_rank);
    return 0;
}

const struct arch arch_longcat_flash = {
    .model_type = "longcat_flash",
    .summary = "LongCat-Flash",
    .keys = {INT("n_routed_experts", router.experts),
             INT_OR("zero_expert_num", router.zero_experts, 0),
             INT_ALSO("moe_topk", "num_experts_per_tok", router.top_k),
             INT_ALSO("expert_ffn_hidden_size", "moe_intermediate_size", expert_inner),
             INT_ALSO("ffn_hidden_size", "intermediate_size", dense_inner),
             INT_ALSO("ffn_hidden_size", "intermediate_size", shared_inner),
             F32_OR("routed_scaling_factor", router.scale, 6)},
    .refused = {"router_bias", "norm_topk_prob"},
    .bias = BIAS_ALL,
    .latent = true,
    .expert_layers = EXPERTS_EVERYWHERE,
    .fixed = {.shortcut = true, .attention.latent_epsilon = 1e-6f, .router.kind = ROUTER_SOFTMAX_TOPK,
              .router.correction = true, .rope.theta = 1e7},
    .finish = finish,
    .naming = {&published},
};
