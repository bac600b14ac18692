#!/usr/bin/env python3
"""Writes a tiny checkpoint a family, and what transformers computes with it, for tests/cli/families.bats.

    make goldens            or, with transformers 5.23.0 at hand:  python tests/golden/families/make.py [FAMILY...]

A word after FAMILY, as in deepseek_v2-ranked, is another model of that family. FAMILY/model is the checkpoint as
save_pretrained writes it, in bf16. FAMILY/golden.json has `prompt` (ids), `logits` of every fourth position of the prompt, the last
one among them, and `tokens`, the greedy answer, with `margins`: the best logit less the second at each. All computed in float32 from
the bf16 weights, with eager attention and experts. bailing_hybrid/limits.json (python tests/golden/families/make.py limits) has
such logits with `limits` in the config, which transformers ignores: there networks of experts are computed here.

Weights are drawn so that every feature shows in the logits, whose standard deviation is about 2.5. A draw is taken when its
answer is not a close call anywhere, and when float64 gives the same logits: then no router was one either.
"""
import json
import os
import random
import shutil
import sys

import safetensors.torch
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
VERSION = "5.23.0"
PROMPT, ANSWER, VOCAB = 40, 24, 64
LEAST_MARGIN, MOST_ROUNDING = 5e-3, 2e-5

COMMON = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-3, "tie_word_embeddings": False, "bos_token_id": None,
          "eos_token_id": None, "pad_token_id": None}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32, "rope_theta": 10000.0}
LINEAR_ROPE = {"rope_type": "linear", "factor": 2.5, "rope_theta": 5000.0}
YARN_ROPE = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 32,
             "rope_theta": 10000.0}
LONG_ROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.3, 1.7, 2.2],
             "long_factor": [3.0, 4.0, 5.0, 6.0], "short_mscale": 1.2, "long_mscale": 1.4, "factor": 2.0,
             "original_max_position_embeddings": 128}
LATENT = {"intermediate_size": 40, "moe_intermediate_size": 16, "num_key_value_heads": 4, "kv_lora_rank": 12,
          "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 10, "n_routed_experts": 8, "num_experts_per_tok": 3,
          "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2}

STATES = {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "linear_num_key_heads": 2,
          "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6, "linear_conv_kernel_dim": 4,
          "rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.25}}

SMALL = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1,
         "num_experts_per_tok": 2}

FAMILIES = {
    "olmoe": {"intermediate_size": 16, "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": True, "clip_qkv": 0.8,
              "num_key_value_heads": 4, "rope_parameters": PLAIN_ROPE},
    "llama": {"intermediate_size": 48, "head_dim": 12, "attention_bias": True, "rope_parameters": LLAMA3_ROPE},
    # theta begins to grow in the middle of the answer
    "llama-dynamic": {"intermediate_size": 48, "head_dim": 12, "max_position_embeddings": 48,
                      "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}},
    "qwen3": {"intermediate_size": 48, "head_dim": 12, "use_sliding_window": True, "sliding_window": 9,
              "max_window_layers": 1, "tie_word_embeddings": True, "rope_parameters": LINEAR_ROPE},
    "mixtral": {"intermediate_size": 24, "head_dim": 8, "num_local_experts": 6, "num_experts_per_tok": 2,
                "sliding_window": 11, "rope_parameters": PLAIN_ROPE},
    "qwen3_moe": {"intermediate_size": 40, "moe_intermediate_size": 16, "head_dim": 12, "num_experts": 8,
                  "num_experts_per_tok": 3, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [0],
                  "rope_parameters": PLAIN_ROPE},
    "mistral": {"intermediate_size": 48, "head_dim": 8, "sliding_window": 13, "rope_parameters": PLAIN_ROPE},
    "qwen2": {"intermediate_size": 48, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1,
              "rope_parameters": PLAIN_ROPE},
    "deepseek_v2": {**LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy", "routed_scaling_factor": 1.7,
                    "norm_topk_prob": False, "rope_parameters": {**YARN_ROPE, "mscale": 0.9, "mscale_all_dim": 0.7}},
    "deepseek_v2-ranked": {**LATENT, "q_lora_rank": 20, "topk_method": "greedy", "n_group": None, "topk_group": None,
                           "routed_scaling_factor": 1.7, "norm_topk_prob": False, "attention_bias": True,
                           "rope_parameters": YARN_ROPE},
    "deepseek_v3": {**LATENT, "q_lora_rank": 20, "routed_scaling_factor": 2.5, "norm_topk_prob": True, "attention_bias": True,
                    "rope_parameters": {**YARN_ROPE, "mscale": 1.0, "mscale_all_dim": 1.0}},
    "glm4_moe": {"intermediate_size": 40, "moe_intermediate_size": 16, "head_dim": 16, "n_routed_experts": 8,
                 "num_experts_per_tok": 3, "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
                 "norm_topk_prob": True, "routed_scaling_factor": 1.8, "use_qk_norm": True, "attention_bias": True,
                 "rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.5}},
    "gpt_oss": {"intermediate_size": 16, "head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 9,
                "rope_parameters": {**YARN_ROPE, "factor": 8.0, "truncate": False, "rope_theta": 150000.0}},
    "granitemoe": {"intermediate_size": 16, "num_local_experts": 8, "num_experts_per_tok": 3, "embedding_multiplier": 3.0,
                   "residual_multiplier": 0.4, "attention_multiplier": 0.11, "logits_scaling": 2.0,
                   "rope_parameters": PLAIN_ROPE},
    "phimoe": {"intermediate_size": 16, "head_dim": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
               "router_jitter_noise": 0.3, "attention_bias": True, "lm_head_bias": True, "sliding_window": 11,
               "original_max_position_embeddings": 128, "rope_parameters": LONG_ROPE},
    "minimax_m2": {"intermediate_size": 16, "head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 3,
                   "rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.5}},
    "glm4_moe_lite": {**LATENT, "n_group": 1, "topk_group": 1, "q_lora_rank": 20, "routed_scaling_factor": 1.8,
                      "norm_topk_prob": True, "rope_parameters": PLAIN_ROPE, "mlp_layer_types": ["dense", "sparse"]},
    # an indexer that chooses a part of the positions
    "deepseek_v32": {**LATENT, "q_lora_rank": 20, "routed_scaling_factor": 2.5, "norm_topk_prob": True, "index_topk": 12,
                     "index_n_heads": 4, "index_head_dim": 12, "rope_parameters": {**YARN_ROPE, "mscale": 1.0, "mscale_all_dim": 1.0}},
    "glm_moe_dsa": {**LATENT, "n_group": 1, "topk_group": 1, "q_lora_rank": 20, "routed_scaling_factor": 1.8,
                    "norm_topk_prob": True, "rope_parameters": PLAIN_ROPE, "index_topk": 12, "index_n_heads": 8,
                    "index_head_dim": 12, "mlp_layer_types": ["dense", "sparse"], "indexer_types": ["full", "shared"]},
    # two layers, of two attentions each
    "longcat_flash": {"hidden_size": 24, "ffn_hidden_size": 24, "expert_ffn_hidden_size": 12, "num_hidden_layers": 4,
                      "num_key_value_heads": 4, "kv_lora_rank": 12, "q_lora_rank": 16, "qk_nope_head_dim": 8,
                      "qk_rope_head_dim": 8, "head_dim": 8, "v_head_dim": 8, "n_routed_experts": 6, "zero_expert_num": 3, "moe_topk": 4,
                      "routed_scaling_factor": 3.0, "rope_parameters": PLAIN_ROPE},
    "dots1": {"intermediate_size": 40, "moe_intermediate_size": 16, "head_dim": 12, "n_routed_experts": 8,
              "num_experts_per_tok": 3, "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
              "norm_topk_prob": True, "routed_scaling_factor": 2.5, "sliding_window": 9, "max_window_layers": 1,
              "rope_parameters": PLAIN_ROPE},
    # as published, which is what GGUF files can say
    "dots1-full": {"intermediate_size": 40, "moe_intermediate_size": 16, "head_dim": 12, "n_routed_experts": 8,
                   "num_experts_per_tok": 3, "n_shared_experts": 2, "first_k_dense_replace": 1, "norm_topk_prob": True,
                   "routed_scaling_factor": 2.5, "sliding_window": None, "rope_parameters": PLAIN_ROPE},
    "ernie4_5_moe": {"intermediate_size": 40, "moe_intermediate_size": 16, "head_dim": 12, "moe_num_experts": 8, "moe_k": 3,
                     "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": 1,
                     "moe_layer_interval": 1, "rope_parameters": PLAIN_ROPE},
    "exaone_moe": {"intermediate_size": 40, "moe_intermediate_size": 16, "head_dim": 12, "num_hidden_layers": 3, "num_experts": 8,
                   "num_experts_per_tok": 3, "num_shared_experts": 2, "n_group": 4, "topk_group": 2,
                   "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "sliding_window": 9,
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                   "rope_parameters": PLAIN_ROPE},
    "hunyuan_v1_moe": {"intermediate_size": 16, "head_dim": 12, "num_experts": 8, "moe_topk": 3,
                       "rope_parameters": {"rope_type": "dynamic", "factor": 1.0, "alpha": 20.0, "rope_theta": 100.0}},
    "flex_olmo": {"intermediate_size": 16, "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": False,
                  "rope_parameters": PLAIN_ROPE},
    "afmoe": {"intermediate_size": 40, "moe_intermediate_size": 16, "head_dim": 12, "num_hidden_layers": 3, "num_experts": 8,
              "num_experts_per_tok": 3, "num_shared_experts": 2, "num_dense_layers": 1, "route_scale": 1.8,
              "sliding_window": 9, "mup_enabled": True,
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "rope_parameters": PLAIN_ROPE},
    # layers: dense with a full attention that turns, two of experts; the norms of one take the mean away
    "cohere2_moe": {"intermediate_size": 16, "prefix_dense_intermediate_size": 40, "head_dim": 12, "num_hidden_layers": 3,
                    "num_experts": 8, "num_experts_per_tok": 3, "num_shared_experts": 2, "expert_selection_fn": "sigmoid",
                    "shared_expert_combination_strategy": "average", "logit_scale": 0.5, "sliding_window": 9,
                    "first_k_dense_replace": 1, "layer_norm_eps": 1e-3, "rms_norm_eps": None, "tie_word_embeddings": True,
                    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                    "rope_parameters": PLAIN_ROPE},
    "cohere2_moe-rms": {"intermediate_size": 16, "head_dim": 12, "num_experts": 8, "num_experts_per_tok": 3,
                        "num_shared_experts": 1, "expert_selection_fn": "softmax",
                        "shared_expert_combination_strategy": "sum", "logit_scale": 2.0, "sliding_window": 9,
                        "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": PLAIN_ROPE},
    "mimo_v2_flash": {"intermediate_size": 40, "moe_intermediate_size": 16, "head_dim": 12, "v_head_dim": 8,
                      "num_hidden_layers": 3, "num_key_value_heads": 1, "n_routed_experts": 8, "num_experts_per_tok": 3,
                      "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 1.8,
                      "attention_value_scale": 0.6, "sliding_window": 9, "mlp_layer_types": ["dense", "sparse", "sparse"],
                      "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                      "rope_parameters": {"full_attention": {**PLAIN_ROPE, "partial_rotary_factor": 0.334},
                                          "sliding_attention": {"rope_type": "default", "rope_theta": 100.0,
                                                                "partial_rotary_factor": 0.334}}},
    "gemma4_text": {"intermediate_size": 24, "moe_intermediate_size": 16, "head_dim": 8, "global_head_dim": 16,
                    "num_global_key_value_heads": 1, "attention_k_eq_v": True, "num_experts": 8, "top_k_experts": 3,
                    "enable_moe_block": True, "hidden_size_per_layer_input": 0, "sliding_window": 9,
                    "final_logit_softcapping": 6.0, "tie_word_embeddings": True, "use_bidirectional_attention": "vision",
                    "layer_types": ["sliding_attention", "full_attention"],
                    "rope_parameters": {"sliding_attention": PLAIN_ROPE,
                                        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5,
                                                           "rope_theta": 100000.0}}},
    "qwen3_next": {"intermediate_size": 40, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24,
                   "head_dim": 16, "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": True,
                   "mlp_only_layers": [1], **STATES},
    # layers: two with chunks, of dense networks and of experts, and two without positions
    "llama4_text": {"hidden_size": 24, "intermediate_size": 16, "intermediate_size_mlp": 24, "head_dim": 12,
                    "num_hidden_layers": 4, "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "use_qk_norm": True,
                    "no_rope_layer_interval": 4, "attention_chunk_size": 11, "attn_temperature_tuning": True, "floor_scale": 7,
                    "attn_scale": 0.4, "rope_parameters": {**LLAMA3_ROPE, "low_freq_factor": 2.0, "high_freq_factor": 2.0}},
    "granitemoehybrid": {**SMALL, "intermediate_size": 8, "num_local_experts": 6, "shared_intermediate_size": 12,
                         "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.3,
                         "logits_scaling": 2.0, "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 4,
                         "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 2, "mamba_d_conv": 4, "mamba_expand": 2},
    # without experts, and with positions
    "granitemoehybrid-dense": {**SMALL, "intermediate_size": 8, "num_local_experts": 0, "shared_intermediate_size": 24,
                               "position_embedding_type": "rope", "rope_parameters": PLAIN_ROPE, "attention_multiplier": 0.3,
                               "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 4, "mamba_d_head": 8,
                               "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_conv_bias": False},
    "lfm2_moe": {**SMALL, "intermediate_size": 24, "moe_intermediate_size": 8, "num_experts": 6, "num_dense_layers": 1,
                 "routed_scaling_factor": 1.7, "norm_eps": 1e-3, "conv_L_cache": 3, "rope_parameters": PLAIN_ROPE,
                 "layer_types": ["conv", "full_attention", "conv"]},
    # layers of one half each
    "nemotron_h": {**SMALL, "head_dim": 8, "intermediate_size": 20, "moe_intermediate_size": 8, "n_routed_experts": 6,
                   "moe_shared_expert_intermediate_size": 12, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.7,
                   "layer_norm_epsilon": 1e-3, "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 2,
                   "conv_kernel": 4, "time_step_min": 1e-9,
                   "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention", "moe"]},
    "kimi_linear": {**SMALL, "num_key_value_heads": 2, "intermediate_size": 24, "moe_intermediate_size": 8, "num_local_experts": 6,
                    "n_shared_experts": 1, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.7, "kv_lora_rank": 8,
                    "q_lora_rank": None, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 6, "linear_head_dim": 6,
                    "linear_num_heads": 2, "linear_conv_kernel_dim": 4, "mlp_layer_types": ["dense", "sparse", "sparse"],
                    "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    # head_dim of linear heads equals qk_rope_head_dim of latent heads: save_pretrained writes one head_dim for both
    "bailing_hybrid": {**SMALL, "num_key_value_heads": 2, "intermediate_size": 12, "moe_intermediate_size": 4, "num_local_experts": 4,
                       "n_shared_experts": 1, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.7, "kv_lora_rank": 8,
                       "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 4, "head_dim": 6, "kda_lower_bound": -4.0,
                       "mlp_layer_types": ["dense", "sparse", "sparse"], "rope_parameters": PLAIN_ROPE,
                       "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "jamba": {**SMALL, "intermediate_size": 8, "num_experts": 3, "mamba_d_state": 6, "mamba_dt_rank": 4, "expert_layer_offset": 0,
              "attn_layer_period": 3, "attn_layer_offset": 1},
    "solar_open": {**SMALL, "num_hidden_layers": 2, "head_dim": 8, "moe_intermediate_size": 8, "n_routed_experts": 6,
                   "n_shared_experts": 2, "n_group": 3, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 1.8,
                   "attention_bias": True, "rope_parameters": {**YARN_ROPE, "factor": 2.0}},
    # as published: in a file with a vision tower, whose numbers mean nothing; ../mtp has predictors for this and qwen3_next
    "qwen3_5_moe": {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "head_dim": 16, "num_hidden_layers": 3,
                    "num_experts": 8, "num_experts_per_tok": 3, **STATES},
    # transformers has no class for the first version: it is a qwen2_moe whose shared experts have an open gate (half of them
    # then, which is undone in the file).
    "deepseek": {"intermediate_size": 40, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32, "num_experts": 8,
                 "num_experts_per_tok": 3, "norm_topk_prob": True, "num_key_value_heads": 2, "mlp_only_layers": [0],
                 "qkv_bias": False, "rope_parameters": PLAIN_ROPE},
    "qwen2_moe": {"intermediate_size": 40, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "num_experts": 8,
                  "num_experts_per_tok": 3, "norm_topk_prob": False, "rope_parameters": PLAIN_ROPE},
}


def scale(name, tied, family):
    """Standard deviation of a linear's outputs for inputs of one."""
    if family == "gpt_oss" and "gate_up" in name:
        return 4.0                              # so that the clamp bites
    if tied and ("o_proj" in name or "down" in name):
        return 8.0
    for part, value in {"q_proj": 1.6, "k_proj": 1.6, "q_b_proj": 1.6, "lm_head": 2.5, "gate.weight": 2.0, "gate.wg": 2.0, "router": 2.0, "classifier": 2.0}.items():
        if part in name:
            return value
    return 1.2


def draw(model, tied, family, seed):
    torch.manual_seed(seed)
    corrections = [each for each in model.named_buffers() if any(part in each[0] for part in ("correction", "layer_scalar", "expert_bias"))]
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *corrections]:
            noise = torch.randn_like(weight)
            if "layer_scalar" in name or "per_expert_scale" in name:
                weight.copy_(0.8 + 0.2 * noise)
            elif "router.scale" in name:
                weight.copy_(1 + 0.3 * noise)
            elif "correction" in name or "expert_bias" in name:
                weight.copy_(-0.5 + 0.3 * noise)
            elif "sinks" in name:
                weight.copy_(noise)
            elif family == "deepseek" and "shared_expert_gate" in name:
                weight.zero_()
            elif family == "bailing_hybrid" and "dt_bias" in name:
                weight.copy_(-3 + noise)                            # so that a state is felt over several segments
            elif name.endswith("_bias"):
                weight.copy_(0.2 * noise)
            elif "A_log" in name:
                weight.copy_(0.3 * noise if family == "bailing_hybrid" else -2.5 + noise)       # the same
            elif "norm" in name:
                loud = family == "gemma4_text" and name.endswith(("post_attention_layernorm.weight", "forward_layernorm.weight"))
                centred = family.startswith(("qwen3_next", "qwen3_5")) and "linear_attn" not in name
                weight.copy_(((0 if centred else 1) + 0.3 * noise) * (5 if loud and "post" in name else 1))     # else a token repeats itself
            elif name.endswith("bias"):
                weight.copy_(0.2 * noise)
            elif "embed" in name:
                weight.copy_(noise * (2.5 / weight.shape[1] ** 0.5 if tied else 1))
            else:
                inputs = weight.shape[1 if family in ("gpt_oss", "llama4_text") and weight.dim() == 3 else -1]
                weight.copy_(noise * scale(name, tied, family) / inputs ** 0.5)


def load(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    if getattr(model, "set_experts_implementation", None):
        try:
            model.set_experts_implementation("eager")
        except ValueError:
            pass                                # a dense model
    return model.eval()


def compute(folder, prompt):
    """The golden, or None when the draw is one where roundings could decide."""
    model, ids = load(folder, torch.float32), torch.tensor([prompt])
    with torch.no_grad():
        logits = model(ids).logits[0]
        if (load(folder, torch.float64)(ids).logits[0] - logits).abs().max() > MOST_ROUNDING:
            return None
        tokens, margins, cache = [], [], None
        for _ in range(ANSWER):
            out = model(ids, past_key_values=cache, use_cache=True)
            best, cache = torch.topk(out.logits[0, -1], 2), out.past_key_values
            tokens.append(int(best.indices[0]))
            margins.append(float(best.values[0] - best.values[1]))
            ids = best.indices[:1][None]
    if min(margins) < LEAST_MARGIN or len(set(tokens)) < 6:
        return None
    if getattr(model.config, "index_topk", None):          # nor may roundings decide which positions the answer attends to
        with torch.no_grad():
            whole = [load(folder, dtype)(torch.tensor([prompt + tokens[:-1]])).logits[0] for dtype in (torch.float32, torch.float64)]
        if (whole[0] - whole[1]).abs().max() > MOST_ROUNDING or whole[1][-ANSWER:].argmax(-1).tolist() != tokens:
            return None
    return {"prompt": prompt, "tokens": tokens, "margins": [round(m, 6) for m in margins],
            "logits": [[round(float(value), 6) for value in row] for row in logits]}


class LimitedExperts(torch.nn.Module):
    """Experts of Ling 3.0 whose gated units have a limit: min(silu(gate), limit) * max(-limit, min(up, limit)), as in vLLM's
    SwigluStepAndMul. gate, up: [experts][inner][hidden], down: [experts][hidden][inner]. Limit None or 0: none."""

    def __init__(self, gate, up, down, limit):
        super().__init__()
        self.gate, self.up, self.down, self.limit = gate, up, down, limit

    def forward(self, rows, index=None, weights=None):
        shape, rows = rows.shape, rows.reshape(-1, rows.shape[-1])
        if index is None:                       # one shared expert
            index, weights = torch.zeros(len(rows), 1, dtype=torch.long), torch.ones(len(rows), 1)
        out = torch.zeros_like(rows)
        for row, at in enumerate(rows):
            for expert, weight in zip(index[row], weights[row]):
                gate, up = self.gate[expert] @ at, self.up[expert] @ at
                gate = gate / (1 + torch.exp(-gate))
                if self.limit:
                    gate, up = torch.clamp(gate, max=self.limit), torch.clamp(up, -self.limit, self.limit)
                out[row] += weight * (self.down[expert] @ (gate * up))
        return out.reshape(shape)


def make_limits():
    folder = os.path.join(HERE, "bailing_hybrid")
    limits = {"expert_swiglu_limit_list": [0.3, 0.9, 0], "share_expert_swiglu_limit_list": [0.2, None, 0.6]}
    with open(os.path.join(folder, "golden.json"), encoding="utf-8") as file:
        golden = json.load(file)
    model = load(os.path.join(folder, "model"), torch.float32)
    for number, layer in enumerate(model.model.layers):
        if hasattr(layer.mlp, "experts"):
            experts, shared = layer.mlp.experts, layer.mlp.shared_experts
            gate, up = experts.gate_up_proj.chunk(2, dim=1)
            layer.mlp.experts = LimitedExperts(gate, up, experts.down_proj, limits["expert_swiglu_limit_list"][number])
            layer.mlp.shared_experts = LimitedExperts(*(getattr(shared, part).weight[None] for part in ("gate_proj", "up_proj", "down_proj")),
                                                      limits["share_expert_swiglu_limit_list"][number])
    with torch.no_grad():
        logits = model(torch.tensor([golden["prompt"]])).logits[0]
    rows = ",\n".join(json.dumps([round(float(value), 6) for value in row]) for row in logits[3::4])
    with open(os.path.join(folder, "limits.json"), "w", encoding="utf-8") as out:
        out.write(f'{{\n"limits": {json.dumps(limits)},\n"logits": [\n{rows}\n]\n}}\n')


def to_deepseek(folder):
    """The qwen2_moe checkpoint in `folder` under the names and keys of DeepSeekMoE."""
    path = os.path.join(folder, "model.safetensors")
    tensors = {}
    for name, values in safetensors.torch.load_file(path).items():
        if "shared_expert_gate" not in name:
            tensors[name.replace("shared_expert.", "shared_experts.")] = values * 0.5 if "shared_expert.down" in name else values
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        old = json.load(file)
    config = {key: old[key] for key in COMMON if not key.endswith("token_id")}
    config.update(model_type="deepseek", intermediate_size=old["intermediate_size"], n_routed_experts=old["num_experts"],
                  moe_intermediate_size=old["moe_intermediate_size"], n_shared_experts=2, first_k_dense_replace=1,
                  moe_layer_freq=1, num_experts_per_tok=old["num_experts_per_tok"], norm_topk_prob=old["norm_topk_prob"],
                  scoring_func="softmax", rope_theta=10000.0, rope_scaling=None)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")


def drop_zero_experts(folder, experts):
    """Removes tensors of experts from `experts` on, which save_pretrained writes and published files lack: nothing reads them."""
    path = os.path.join(folder, "model.safetensors")
    tensors = {name: values for name, values in safetensors.torch.load_file(path).items()
               if ".experts." not in name or int(name.split(".experts.")[1].split(".")[0]) < experts}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def publish_dense(folder):
    """Renames the networks of dense layers as published: save_pretrained gives them the prefix of experts."""
    path = os.path.join(folder, "model.safetensors")
    dense = ("block_sparse_moe.gate_proj.weight", "block_sparse_moe.up_proj.weight", "block_sparse_moe.down_proj.weight")
    tensors = {name.replace("block_sparse_moe", "mlp") if name.endswith(dense) else name: values
               for name, values in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def publish_states(folder):
    """Renames the outputs of layers with a state as published: save_pretrained gives them the name of attention's."""
    path = os.path.join(folder, "model.safetensors")
    tensors = safetensors.torch.load_file(path)
    states = [name[:-len("A_log")] for name in tensors if name.endswith(".A_log")]
    tensors = {name.replace("dense.weight", "o_proj.weight") if name.startswith(tuple(states)) else name: values
               for name, values in tensors.items()}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def nest(folder):
    """Turns the text model in `folder` into the text part of a model with a vision tower."""
    path = os.path.join(folder, "model.safetensors")
    tensors = {name.replace("model.", "model.language_model.", 1): values
               for name, values in safetensors.torch.load_file(path).items()}
    tensors["model.visual.pos_embed.weight"] = torch.zeros(2, 2, dtype=torch.bfloat16)
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        text = json.load(file)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"model_type": "qwen3_5_moe", "text_config": text, "tie_word_embeddings": False,
                   "vision_config": {"model_type": "qwen3_5_moe"}}, file, indent=2, sort_keys=True)
        file.write("\n")


def make(family):
    settings = {**COMMON, **FAMILIES[family]}
    if "norm_eps" in settings or "layer_norm_epsilon" in settings:
        del settings["rms_norm_eps"]
    kind = {"deepseek": "qwen2_moe", "qwen3_5_moe": "qwen3_5_moe_text"}.get(family, family.split("-")[0])
    config = AutoConfig.for_model(kind, **settings)
    folder = os.path.join(HERE, family)
    shutil.rmtree(folder, ignore_errors=True)
    for seed in range(200):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
        draw(model, settings["tie_word_embeddings"], family, seed)
        model.to(torch.bfloat16).save_pretrained(os.path.join(folder, "model"))
        prompt = [random.Random(seed + i).randrange(settings["vocab_size"]) for i in range(PROMPT)]
        golden = compute(os.path.join(folder, "model"), prompt)
        if golden:
            break
    else:
        raise SystemExit(f"{family}: no draw is clear enough")
    if family == "deepseek":
        to_deepseek(os.path.join(folder, "model"))
    if family == "kimi_linear":
        publish_dense(os.path.join(folder, "model"))
    if family == "bailing_hybrid":
        publish_states(os.path.join(folder, "model"))
    if family == "longcat_flash":
        drop_zero_experts(os.path.join(folder, "model"), settings["n_routed_experts"])
    if family == "qwen3_5_moe":
        nest(os.path.join(folder, "model"))
    os.chmod(os.path.join(folder, "model", "model.safetensors"), 0o644)
    generation = os.path.join(folder, "model", "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)
    with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8") as out:
        out.write("{\n" + ",\n".join(f'"{key}": {json.dumps(golden[key])}' for key in ("prompt", "tokens", "margins")))
        rows = ",\n".join(json.dumps(row) for row in golden["logits"][3::4])
        out.write(f',\n"logits": [\n{rows}\n]\n}}\n')
    print(f"{family}: draw {seed}, least margin {min(golden['margins'])}")


if transformers.__version__ != VERSION:
    raise SystemExit(f"transformers is {transformers.__version__}; the goldens are those of {VERSION}")
torch.set_num_threads(1)
transformers.logging.disable_progress_bar()
for name in sys.argv[1:] or [*FAMILIES, "limits"]:
    make_limits() if name == "limits" else make(name)
