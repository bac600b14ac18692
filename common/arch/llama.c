/* Llama 1 to 3.2, Vicuna (meta-llama/Llama-3.2-1B): the plain dense transformer, which other families differ from.
 * Reference: transformers models/llama. */
#include "common/arch/arch.h"

static const struct naming published = {
    .slot = {LLAMA_NAMES, DENSE_NAMES},
    .ignored = {"model.layers.{n}.self_attn.rotary_emb.inv_freq"},
};

const struct arch arch_llama = {
    .model_type = "llama",
    .summary = "Llama 1 to 3.2, Vicuna (dense)",
    .keys = {INT("intermediate_size", dense_inner)},
    .refused = {"mlp_bias"},
    .bias = BIAS_ALL,
    .fixed = {.rope.theta = 10000},
    .naming = {&published},
    .gguf_paired = true,
};
