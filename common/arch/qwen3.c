/* Qwen3, dense (Qwen/Qwen3-0.6B): RMSNorm on each head of q and k; a key states the width of a head; upper layers may have a
 * window. Reference: transformers models/qwen3. */
#include "common/arch/arch.h"

static const struct naming published = {.slot = {LLAMA_NAMES, DENSE_NAMES}};

const struct arch arch_qwen3 = {
    .model_type = "qwen3",
    .summary = "Qwen3 (dense)",
    .keys = {INT("intermediate_size", dense_inner)},
    .bias = BIAS_ALL,
    .window = WINDOW_UPPER_IF_USED,
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .rope.theta = 10000},
    .naming = {&published},
};
