#include "kernels/cuda/cuda.h"
#include "kernels/cuda/learn.h"

extern "C" const struct device_ops cuda_ops = {
    cuda_embed, cuda_norm, cuda_clamp, cuda_gather, cuda_linear, cuda_rope, cuda_kv_write, cuda_qkv, cuda_kv_move,
    cuda_attention, cuda_route_score, cuda_route_shortlist, cuda_route_select, cuda_expert_sum, cuda_expert_ffn, cuda_activate,
    cuda_log_add, cuda_blend, cuda_blend_weights, cuda_top, cuda_choose, cuda_loop_draft, cuda_loop_facts, cuda_loop_accept,
    cuda_short_conv, cuda_delta_keys, cuda_delta, cuda_gated,
    NULL,                               /* sparse attention (kernels/index.h): not yet computed on GPUs */
    cuda_routed_ffn, cuda_norm_linear,
};

extern "C" const struct learn_ops cuda_learn_ops = {
    cuda_learn_product, cuda_learn_unpack, cuda_learn_clear, cuda_learn_add, cuda_learn_copy, cuda_learn_accumulate,
    cuda_learn_add_row, cuda_learn_sum_rows, cuda_learn_select, cuda_learn_scatter, cuda_learn_norm, cuda_learn_norm_back,
    cuda_learn_norm_weight_back, cuda_learn_function, cuda_learn_function_back, cuda_learn_gated, cuda_learn_gated_back,
    cuda_learn_mix, cuda_learn_mix_back, cuda_learn_rotate, cuda_learn_rotate_back, cuda_learn_attention_scratch,
    cuda_learn_attention, cuda_learn_attention_back, cuda_learn_smooth, cuda_learn_target, cuda_learn_judge,
    cuda_learn_total, cuda_learn_measure, cuda_learn_adam,
};
