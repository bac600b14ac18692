/* Mistral, dense (mistralai/Mistral-7B-v0.1): Llama with a sliding window in all layers. Reference: transformers
 * models/mistral. */
#include "common/arch/arch.h"

static const struct naming published = {.slot = {LLAMA_NAMES, DENSE_NAMES}};

const struct arch arch_mistral = {
    .model_type = "mistral",
    .summary = "Mistral 7B (dense)",
    .keys = {INT("intermediate_size", dense_inner)},
    .window = WINDOW_ALL_LAYERS,
    .fixed = {.rope.theta = 10000},
    .naming = {&published},
    .gguf_paired = true,
};
