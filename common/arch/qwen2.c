/* Qwen2 and Qwen2.5, dense (Qwen/Qwen2.5-0.5B): biases on q, k and v; upper layers may have a window. Reference:
 * transformers models/qwen2. */
#include "common/arch/arch.h"

static const struct naming published = {.slot = {LLAMA_NAMES, DENSE_NAMES}};

const struct arch arch_qwen2 = {
    .model_type = "qwen2",
    .summary = "Qwen2, Qwen2.5 (dense)",
    .keys = {INT("intermediate_size", dense_inner)},
    .bias = BIAS_QKV,
    .window = WINDOW_UPPER_IF_USED,
    .fixed = {.rope.theta = 10000},
    .naming = {&published},
};
