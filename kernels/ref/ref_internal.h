/* Memory access of reference kernels: every buffer is resolved with the number of bytes that the kernel will touch. */
#ifndef MOE_KERNELS_REF_INTERNAL_H
#define MOE_KERNELS_REF_INTERNAL_H

#include "kernels/ref/ref.h"

static inline void *ref_bytes(struct queue *queue, struct buffer buffer, uint64_t bytes)
{
    struct ref_memory *memory = queue->state;
    return memory->resolve(memory, buffer, bytes);
}

/* Resolve `count` floats, or 32-bit integers. */
static inline float *ref_floats(struct queue *queue, struct buffer buffer, int64_t count)
{
    return ref_bytes(queue, buffer, (uint64_t)count * sizeof(float));
}

static inline int32_t *ref_integers(struct queue *queue, struct buffer buffer, int64_t count)
{
    return ref_bytes(queue, buffer, (uint64_t)count * sizeof(int32_t));
}

/* Returns the number of floats from the first to the last used one of `rows` rows. */
static inline int64_t ref_span(int rows, int stride, int64_t width)
{
    return rows > 0 ? (int64_t)(rows - 1) * stride + width : 0;
}

/* Quantise a row of `inputs` floats, and compute its product with one output of a MATRIX in a format with integers, as
 * formats.h defines both. */
void ref_quantise(const float *in, int inputs, struct quantised *out);
float ref_quantised_product(enum weight_format format, const void *matrix, int inputs, int output, const struct quantised *in);

/* Returns whether products with the format use converted activations: integers, or values rounded to bf16. Such products are
 * computed in f32 at every step and in the order of the contract, because only one result is correct. */
static inline bool ref_converts(const struct queue *queue, enum weight_format format)
{
    return format_quantised(format) || (format_integers(format) && queue->integer_activations) ||
           (format == FORMAT_BF16 && queue->bf16_activations);
}

/* Converts a row of `inputs` floats into operand_bytes; computes its product with one output of a MATRIX of that format. */
void ref_convert(enum weight_format format, const float *in, int inputs, void *operand);
float ref_converted_product(enum weight_format format, const void *matrix, int inputs, int output, const void *operand);

void ref_embed(struct queue *, const struct embed_args *);
void ref_norm(struct queue *, const struct norm_args *);
void ref_clamp(struct queue *, const struct clamp_args *);
void ref_gather(struct queue *, const struct gather_args *);
void ref_linear(struct queue *, const struct linear_args *);
void ref_rope(struct queue *, const struct rope_args *);
void ref_kv_write(struct queue *, const struct kv_write_args *);
void ref_kv_move(struct queue *, const struct kv_move_args *);
void ref_attention(struct queue *, const struct attention_args *);
void ref_route_score(struct queue *, const struct route_score_args *);
void ref_route_shortlist(struct queue *, const struct route_shortlist_args *);
void ref_route_select(struct queue *, const struct route_select_args *);
void ref_expert_sum(struct queue *, const struct expert_ffn_args *);
void ref_expert_ffn(struct queue *, const struct expert_ffn_args *);
void ref_activate(struct queue *, const struct activate_args *);
void ref_log_add(struct queue *, const struct log_add_args *);
void ref_blend(struct queue *, const struct blend_args *);
void ref_blend_weights(struct queue *, const struct blend_weights_args *);
void ref_top(struct queue *, const struct top_args *);
void ref_short_conv(struct queue *, const struct short_conv_args *);
void ref_delta_keys(struct queue *, const struct delta_keys_args *);
void ref_delta(struct queue *, const struct delta_args *);
void ref_gated(struct queue *, const struct gated_args *);
void ref_index(struct queue *, const struct index_args *);

#endif
