#include "kernels/cuda/cuda.h"

extern "C" const struct device_ops cuda_ops = {
    cuda_embed, cuda_norm, cuda_clamp, cuda_gather, cuda_linear, cuda_rope, cuda_kv_write, cuda_qkv, cuda_kv_move,
    cuda_attention, cuda_route_score, cuda_route_shortlist, cuda_route_select, cuda_expert_sum, cuda_expert_ffn, cuda_activate,
    cuda_log_add, cuda_blend, cuda_blend_weights, cuda_top, cuda_choose, cuda_loop_draft, cuda_loop_facts, cuda_loop_settle,
};
