#include "kernels/ref/ref_internal.h"

const struct device_ops ref_ops = {
    .embed = ref_embed,
    .norm = ref_norm,
    .clamp = ref_clamp,
    .gather = ref_gather,
    .linear = ref_linear,
    .rope = ref_rope,
    .kv_write = ref_kv_write,
    .kv_move = ref_kv_move,
    .attention = ref_attention,
    .route_score = ref_route_score,
    .route_shortlist = ref_route_shortlist,
    .route_select = ref_route_select,
    .expert_sum = ref_expert_sum,
    .expert_ffn = ref_expert_ffn,
    .activate = ref_activate,
    .log_add = ref_log_add,
    .blend = ref_blend,
    .blend_weights = ref_blend_weights,
    .top = ref_top,
};
