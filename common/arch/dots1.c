/* dots.llm1 (rednote-hilab/dots.llm1.inst): a norm of each head of q and k; the sigmoid router adds a correction for the
 * selection only; groups, shared experts, dense layers first. Reference: transformers models/dots1. */
#include "common/arch/arch.h"

static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, CORRECTED_NAMES}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, CORRECTED_NAMES}};

const struct arch arch_dots1 = {
    .model_type = "dots1",
    .summary = "dots.llm1",
    .keys = {CORRECTED_KEYS(0, false, 1, 1, 1)},
    .bias = BIAS_ALL,
    .expert_layers = EXPERTS_AFTER_DENSE,
    .window = WINDOW_UPPER,
    .shared_counted = true,
    .fixed = {.attention.qk_norm = QK_NORM_HEAD, .router.kind = ROUTER_SIGMOID, .router.correction = true,
              .router.group_rank = 2, .rope.theta = 10000},
    .naming = {&published, &fused},
};
