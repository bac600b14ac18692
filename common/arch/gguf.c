/* Tensor names of GGUF files, the same in all families. Four kinds of tensors differ from the published ones:
 *
 *   experts     all gates of a layer in one tensor [experts][inner][hidden], likewise all ups and all downs; old files of
 *               Mixtral store each expert separately
 *   q and k     in families like Llama the rows of a head's two halves alternate, because RoPE there rotates neighbours
 *   latents     kv_b in two parts: keys of each head transposed, [heads][rank][width], and values [heads][width][rank];
 *               older files store kv_b as a whole
 *   states      -exp(A_log) in place of A_log, and weights of norms without the offset of 1. In files of Qwen3.5 value head
 *               h belongs to key head h % key_heads (delta_shape.tiled). Vectors of Mamba-2 are matrices of one column, or
 *               of one row for each group */
#include "common/arch/arch.h"

#include <stdio.h>

#define BLOCK "blk.{n}."
#define OUTSIDE OUTSIDE_BUT_NORM, [SLOT_FINAL_NORM] = "output_norm.weight"
#define OUTSIDE_BUT_NORM \
    [SLOT_EMBED] = "token_embd.weight", \
    [SLOT_HEAD] = "output.weight", \
    [SLOT_ATTENTION_NORM] = BLOCK "attn_norm.weight", \
    [SLOT_Q] = BLOCK "attn_q.weight", \
    [SLOT_K] = BLOCK "attn_k.weight", \
    [SLOT_V] = BLOCK "attn_v.weight", \
    [SLOT_Q_BIAS] = BLOCK "attn_q.bias", \
    [SLOT_K_BIAS] = BLOCK "attn_k.bias", \
    [SLOT_V_BIAS] = BLOCK "attn_v.bias", \
    [SLOT_Q_NORM] = BLOCK "attn_q_norm.weight", \
    [SLOT_K_NORM] = BLOCK "attn_k_norm.weight", \
    [SLOT_OUT] = BLOCK "attn_output.weight", \
    [SLOT_OUT_BIAS] = BLOCK "attn_output.bias", \
    [SLOT_Q_A] = BLOCK "attn_q_a.weight", \
    [SLOT_Q_A_BIAS] = BLOCK "attn_q_a.bias", \
    [SLOT_Q_A_NORM] = BLOCK "attn_q_a_norm.weight", \
    [SLOT_Q_B] = BLOCK "attn_q_b.weight", \
    [SLOT_KV_A] = BLOCK "attn_kv_a_mqa.weight", \
    [SLOT_KV_A_BIAS] = BLOCK "attn_kv_a_mqa.bias", \
    [SLOT_KV_A_NORM] = BLOCK "attn_kv_a_norm.weight", \
    [SLOT_SINKS] = BLOCK "attn_sinks.weight", \
    [SLOT_DENSE_GATE] = BLOCK "ffn_gate.weight", \
    [SLOT_DENSE_UP] = BLOCK "ffn_up.weight", \
    [SLOT_DENSE_DOWN] = BLOCK "ffn_down.weight", \
    [SLOT_ROUTER] = BLOCK "ffn_gate_inp.weight", \
    [SLOT_ROUTER_BIAS] = BLOCK "ffn_gate_inp.bias", \
    [SLOT_ROUTER_CORRECTION] = BLOCK "exp_probs_b.bias", \
    [SLOT_SHARED_WEIGHT] = BLOCK "ffn_gate_inp_shexp.weight", \
    [SLOT_SHARED_GATE] = BLOCK "ffn_gate_shexp.weight", \
    [SLOT_SHARED_UP] = BLOCK "ffn_up_shexp.weight", \
    [SLOT_SHARED_DOWN] = BLOCK "ffn_down_shexp.weight"
#define PREDICTORS \
    [SLOT_PREDICT_EMBED] = BLOCK "nextn.embed_tokens.weight", \
    [SLOT_PREDICT_HEAD] = BLOCK "nextn.shared_head_head.weight", \
    [SLOT_PREDICT_NORM] = BLOCK "nextn.shared_head_norm.weight", \
    [SLOT_PREDICT_EMBED_NORM] = BLOCK "nextn.enorm.weight", \
    [SLOT_PREDICT_HIDDEN_NORM] = BLOCK "nextn.hnorm.weight", \
    [SLOT_PREDICT_JOINT] = BLOCK "nextn.eh_proj.weight"
#define EXPERTS \
    [SLOT_EXPERTS_GATE] = BLOCK "ffn_gate_exps.weight", \
    [SLOT_EXPERTS_UP] = BLOCK "ffn_up_exps.weight", \
    [SLOT_EXPERTS_DOWN] = BLOCK "ffn_down_exps.weight", \
    [SLOT_EXPERTS_GATE_BIAS] = BLOCK "ffn_gate_exps.bias", \
    [SLOT_EXPERTS_UP_BIAS] = BLOCK "ffn_up_exps.bias", \
    [SLOT_EXPERTS_DOWN_BIAS] = BLOCK "ffn_down_exps.bias"
#define FFN_NORM [SLOT_FFN_NORM] = BLOCK "ffn_norm.weight"

static const struct naming plain = {
    .slot = {OUTSIDE, PREDICTORS, EXPERTS, FFN_NORM, [SLOT_KV_B] = BLOCK "attn_kv_b.weight"},
    .ignored = {"rope_freqs.weight", BLOCK "attn_k_b.weight", BLOCK "attn_v_b.weight",          /* made from kv_b */
                BLOCK "indexer.*"},
    .left_out = INDEXER_LEFT_OUT,
};
static const struct naming cut = {
    .slot = {OUTSIDE, PREDICTORS, EXPERTS, FFN_NORM, [SLOT_K_B] = BLOCK "attn_k_b.weight",
             [SLOT_V_B] = BLOCK "attn_v_b.weight"},
    .ignored = {BLOCK "indexer.*"},
    .left_out = INDEXER_LEFT_OUT,
};
#define INDEXER OUTSIDE, PREDICTORS, EXPERTS, FFN_NORM, \
    [SLOT_K_B] = BLOCK "attn_k_b.weight", \
    [SLOT_V_B] = BLOCK "attn_v_b.weight", \
    [SLOT_INDEX_Q] = BLOCK "indexer.attn_q_b.weight", \
    [SLOT_INDEX_K] = BLOCK "indexer.attn_k.weight", \
    [SLOT_INDEX_K_NORM] = BLOCK "indexer.k_norm.weight", \
    [SLOT_INDEX_K_NORM_BIAS] = BLOCK "indexer.k_norm.bias", \
    [SLOT_INDEX_WEIGHT] = BLOCK "indexer.proj.weight"
#define INDEXER_RULES .ignored = {BLOCK "indexer.*"}, .left_out = "predictors draft without an indexer"
static const struct naming indexed = {.slot = {INDEXER}, INDEXER_RULES};
static const struct naming indexed_paired = {.slot = {INDEXER}, INDEXER_RULES, .index_paired = true};
static const struct naming paired = {.slot = {OUTSIDE, PREDICTORS, EXPERTS, FFN_NORM}, .ignored = {"rope_freqs.weight"},
                                     .paired = true};
static const struct naming apart = {
    .slot = {OUTSIDE, PREDICTORS, FFN_NORM, [SLOT_EXPERT_GATE] = BLOCK "ffn_gate.{e}.weight",
             [SLOT_EXPERT_UP] = BLOCK "ffn_up.{e}.weight", [SLOT_EXPERT_DOWN] = BLOCK "ffn_down.{e}.weight"},
    .ignored = {"rope_freqs.weight"},
    .paired = true,
};
#define NORM_AFTER [SLOT_FFN_NORM] = BLOCK "post_attention_norm.weight"
static const struct naming norm_after = {.slot = {OUTSIDE, PREDICTORS, EXPERTS, NORM_AFTER}};

/* Names in layers with a state. */
#define STATES \
    OUTSIDE, PREDICTORS, EXPERTS, NORM_AFTER, \
    [SLOT_DELTA_CONV] = BLOCK "ssm_conv1d.weight", \
    [SLOT_DELTA_A_LOG] = BLOCK "ssm_a", \
    [SLOT_DELTA_STEP_BIAS] = BLOCK "ssm_dt.bias", \
    [SLOT_DELTA_NORM] = BLOCK "ssm_norm.weight", \
    [SLOT_DELTA_OUT] = BLOCK "ssm_out.weight"
#define QKV_AND_Z [SLOT_DELTA_QKV] = BLOCK "attn_qkv.weight", [SLOT_DELTA_Z] = BLOCK "attn_gate.weight"
#define RATE_AND_STEP [SLOT_DELTA_BA] = BLOCK "ssm_ba.weight"
#define STATE_RULES .gated_q = true, .prepared_states = true
static const struct naming states = {
    .slot = {STATES, QKV_AND_Z, [SLOT_DELTA_B] = BLOCK "ssm_beta.weight", [SLOT_DELTA_A] = BLOCK "ssm_alpha.weight"},
    STATE_RULES};
static const struct naming states_joined = {.slot = {STATES, QKV_AND_Z, RATE_AND_STEP}, STATE_RULES};
/* Names in the first files of Qwen3-Next. */
static const struct naming states_grouped = {
    .slot = {STATES, RATE_AND_STEP, [SLOT_DELTA_QKVZ] = BLOCK "ssm_in.weight"}, STATE_RULES};

#define SPACES OUTSIDE, EXPERTS, \
    [SLOT_DELTA_ALL] = BLOCK "ssm_in.weight", \
    [SLOT_DELTA_CONV] = BLOCK "ssm_conv1d.weight", \
    [SLOT_DELTA_CONV_BIAS] = BLOCK "ssm_conv1d.bias", \
    [SLOT_DELTA_A_LOG] = BLOCK "ssm_a", \
    [SLOT_DELTA_STEP_BIAS] = BLOCK "ssm_dt.bias", \
    [SLOT_DELTA_SKIP] = BLOCK "ssm_d", \
    [SLOT_DELTA_NORM] = BLOCK "ssm_norm.weight", \
    [SLOT_DELTA_OUT] = BLOCK "ssm_out.weight"
static const struct naming spaces = {.slot = {SPACES, FFN_NORM}, .paired = true, .prepared_states = true};
/* Names in layers that are half of a usual one; their only norm is named attn_norm. The order of the rows of q and k is unknown
 * but irrelevant: RoPE does not rotate them, so every order that q and k share gives the same products. */
static const struct naming halves = {
    .slot = {SPACES, [SLOT_FFN_NORM] = BLOCK "attn_norm.weight"}, .prepared_states = true};

/* Mamba-1. */
static const struct naming scans = {
    .slot = {OUTSIDE, EXPERTS, FFN_NORM,
             [SLOT_DELTA_ALL] = BLOCK "ssm_in.weight", [SLOT_DELTA_CONV] = BLOCK "ssm_conv1d.weight",
             [SLOT_DELTA_CONV_BIAS] = BLOCK "ssm_conv1d.bias", [SLOT_DELTA_STEP_A] = BLOCK "ssm_x.weight",
             [SLOT_DELTA_STEP_B] = BLOCK "ssm_dt.weight", [SLOT_DELTA_STEP_BIAS] = BLOCK "ssm_dt.bias",
             [SLOT_DELTA_Q_NORM] = BLOCK "ssm_c_norm.weight", [SLOT_DELTA_K_NORM] = BLOCK "ssm_b_norm.weight",
             [SLOT_DELTA_STEP_NORM] = BLOCK "ssm_dt_norm.weight", [SLOT_DELTA_A_LOG] = BLOCK "ssm_a",
             [SLOT_DELTA_SKIP] = BLOCK "ssm_d", [SLOT_DELTA_OUT] = BLOCK "ssm_out.weight"},
    .prepared_states = true};

/* Names of Kimi Delta Attention, beside latent attention. */
#define CHANNELS OUTSIDE, EXPERTS, FFN_NORM, \
    [SLOT_DELTA_Q] = BLOCK "attn_q.weight", \
    [SLOT_DELTA_K] = BLOCK "attn_k.weight", \
    [SLOT_DELTA_V] = BLOCK "attn_v.weight", \
    [SLOT_DELTA_CONV_Q] = BLOCK "ssm_conv1d_q.weight", \
    [SLOT_DELTA_CONV_K] = BLOCK "ssm_conv1d_k.weight", \
    [SLOT_DELTA_CONV_V] = BLOCK "ssm_conv1d_v.weight", \
    [SLOT_DELTA_B] = BLOCK "ssm_beta.weight", \
    [SLOT_DELTA_GATE_A] = BLOCK "ssm_g_a.weight", \
    [SLOT_DELTA_GATE_B] = BLOCK "ssm_g_b.weight", \
    [SLOT_DELTA_STEP_A] = BLOCK "ssm_f_a.weight", \
    [SLOT_DELTA_STEP_B] = BLOCK "ssm_f_b.weight", \
    [SLOT_DELTA_A_LOG] = BLOCK "ssm_a", \
    [SLOT_DELTA_STEP_BIAS] = BLOCK "ssm_dt.bias", \
    [SLOT_DELTA_NORM] = BLOCK "ssm_norm.weight", \
    [SLOT_DELTA_OUT] = BLOCK "attn_output.weight"
static const struct naming channels = {.slot = {CHANNELS, [SLOT_KV_B] = BLOCK "attn_kv_b.weight"}, .prepared_states = true};
static const struct naming channels_cut = {
    .slot = {CHANNELS, [SLOT_K_B] = BLOCK "attn_k_b.weight", [SLOT_V_B] = BLOCK "attn_v_b.weight"}, .prepared_states = true};

/* Names with short convolutions only. llama.cpp names the final norm as LFM2 does: a norm of embeddings. */
#define CONVOLUTIONS EXPERTS, FFN_NORM, \
    [SLOT_DELTA_ALL] = BLOCK "shortconv.in_proj.weight", \
    [SLOT_DELTA_CONV] = BLOCK "shortconv.conv.weight", \
    [SLOT_DELTA_OUT] = BLOCK "shortconv.out_proj.weight"
static const struct naming convolutions = {
    .slot = {OUTSIDE_BUT_NORM, CONVOLUTIONS, [SLOT_FINAL_NORM] = "token_embd_norm.weight"}, .prepared_states = true};
static const struct naming convolutions_normed = {
    .slot = {OUTSIDE, CONVOLUTIONS}, .prepared_states = true};

static bool has_anywhere(bool (*has)(const void *context, const char *name), const void *context, const char *rest)
{
    char name[64];
    bool found = false;
    for (int i = 0; i < LAYERS_MAX && !found; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", i, rest);
        found = has(context, name);
    }
    return found;
}

const struct naming *arch_naming_gguf(const struct arch *arch, bool (*has)(const void *context, const char *name),
                                      const void *context)
{
    if (!has(context, plain.slot[SLOT_EMBED]))
        return NULL;
    if (arch->latent && arch->states)
        return has_anywhere(has, context, "attn_kv_b.weight") ? &channels : &channels_cut;
    if (arch->indexed && has(context, "blk.0.attn_k_b.weight") && has(context, "blk.0.indexer.attn_k.weight"))
        return arch->naming[0]->index_paired ? &indexed_paired : &indexed;
    if (arch->latent)
        return has(context, "blk.0.attn_k_b.weight") && !has(context, "blk.0.attn_kv_b.weight") ? &cut : &plain;
    if (arch->states && arch->fixed.delta.kind == RECURRENCE_SPACE)
        return arch->halves ? &halves : &spaces;
    if (arch->states && arch->fixed.delta.kind == RECURRENCE_SCAN)
        return &scans;
    if (arch->states && arch->fixed.delta.kind == RECURRENCE_NONE)
        return has(context, "output_norm.weight") ? &convolutions_normed : &convolutions;
    if (arch->states)
        return has(context, "blk.0.ssm_in.weight") ? &states_grouped
               : has(context, "blk.0.ssm_ba.weight") ? &states_joined : &states;
    if (arch->gguf_paired)
        return has(context, "blk.0.ffn_gate.0.weight") ? &apart : &paired;
    return has(context, "blk.0.post_attention_norm.weight") ? &norm_after : &plain;
}
