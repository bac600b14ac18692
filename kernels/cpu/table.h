/* The operations of one instruction set, listed by file. */
#ifndef MOE_KERNELS_CPU_TABLE_H
#define MOE_KERNELS_CPU_TABLE_H

#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

#define cpu_embed ISA_VECTOR_NAME(cpu_embed)
#define cpu_norm ISA_VECTOR_NAME(cpu_norm)
#define cpu_clamp ISA_VECTOR_NAME(cpu_clamp)
#define cpu_gather ISA_VECTOR_NAME(cpu_gather)
#define cpu_linear ISA_NAME(cpu_linear)
#define cpu_rope ISA_VECTOR_NAME(cpu_rope)
#define cpu_kv_write ISA_VECTOR_NAME(cpu_kv_write)
#define cpu_kv_move ISA_VECTOR_NAME(cpu_kv_move)
#define cpu_attention ISA_VECTOR_NAME(cpu_attention)
#define cpu_route_score ISA_VECTOR_NAME(cpu_route_score)
#define cpu_route_shortlist ISA_VECTOR_NAME(cpu_route_shortlist)
#define cpu_route_select ISA_VECTOR_NAME(cpu_route_select)
#define cpu_expert_sum ISA_NAME(cpu_expert_sum)
#define cpu_expert_ffn ISA_NAME(cpu_expert_ffn)
#define cpu_activate ISA_VECTOR_NAME(cpu_activate)
#define cpu_log_add ISA_VECTOR_NAME(cpu_log_add)
#define cpu_blend ISA_VECTOR_NAME(cpu_blend)
#define cpu_blend_weights ISA_VECTOR_NAME(cpu_blend_weights)
#define cpu_top ISA_VECTOR_NAME(cpu_top)
#define cpu_short_conv ISA_VECTOR_NAME(cpu_short_conv)
#define cpu_delta_keys ISA_VECTOR_NAME(cpu_delta_keys)
#define cpu_delta ISA_VECTOR_NAME(cpu_delta)
#define cpu_gated ISA_VECTOR_NAME(cpu_gated)
#define cpu_index ISA_VECTOR_NAME(cpu_index)

/* Attention for processors with VNNI. */
#define cpu_attention_integers ISA_NAME(cpu_attention_integers)

void cpu_embed(struct queue *, const struct embed_args *);
void cpu_norm(struct queue *, const struct norm_args *);
void cpu_clamp(struct queue *, const struct clamp_args *);
void cpu_gather(struct queue *, const struct gather_args *);
void cpu_linear(struct queue *, const struct linear_args *);
void cpu_rope(struct queue *, const struct rope_args *);
void cpu_kv_write(struct queue *, const struct kv_write_args *);
void cpu_kv_move(struct queue *, const struct kv_move_args *);
void cpu_attention(struct queue *, const struct attention_args *);
void cpu_attention_integers(struct queue *, const struct attention_args *);
void cpu_route_score(struct queue *, const struct route_score_args *);
void cpu_route_shortlist(struct queue *, const struct route_shortlist_args *);
void cpu_route_select(struct queue *, const struct route_select_args *);
void cpu_expert_sum(struct queue *, const struct expert_ffn_args *);
void cpu_expert_ffn(struct queue *, const struct expert_ffn_args *);
void cpu_activate(struct queue *, const struct activate_args *);
void cpu_log_add(struct queue *, const struct log_add_args *);
void cpu_blend(struct queue *, const struct blend_args *);
void cpu_blend_weights(struct queue *, const struct blend_weights_args *);
void cpu_top(struct queue *, const struct top_args *);
void cpu_short_conv(struct queue *, const struct short_conv_args *);
void cpu_delta_keys(struct queue *, const struct delta_keys_args *);
void cpu_delta(struct queue *, const struct delta_args *);
void cpu_gated(struct queue *, const struct gated_args *);
void cpu_index(struct queue *, const struct index_args *);

#endif
