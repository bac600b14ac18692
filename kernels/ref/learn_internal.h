/* The training operations (kernels/learn.h) of the reference, listed by file. */
#ifndef MOE_KERNELS_REF_LEARN_INTERNAL_H
#define MOE_KERNELS_REF_LEARN_INTERNAL_H

#include "kernels/ref/ref_internal.h"

/* Resolve `count` doubles, or 64-bit integers. */
static inline double *ref_doubles(struct queue *queue, struct buffer buffer, int64_t count)
{
    return ref_bytes(queue, buffer, (uint64_t)count * sizeof(double));
}

static inline int64_t *ref_longs(struct queue *queue, struct buffer buffer, int64_t count)
{
    return ref_bytes(queue, buffer, (uint64_t)count * sizeof(int64_t));
}

/* Resolves floats; returns NULL for none. */
static inline float *ref_floats_or_none(struct queue *queue, struct buffer buffer, int64_t count)
{
    return buffer.address ? ref_floats(queue, buffer, count) : NULL;
}

void ref_learn_product(struct queue *, const struct learn_product_args *);
void ref_learn_unpack(struct queue *, const struct learn_unpack_args *);
void ref_learn_clear(struct queue *, const struct learn_clear_args *);
void ref_learn_add(struct queue *, const struct learn_add_args *);
void ref_learn_copy(struct queue *, const struct learn_copy_args *);
void ref_learn_accumulate(struct queue *, const struct learn_copy_args *);
void ref_learn_add_row(struct queue *, const struct learn_row_args *);
void ref_learn_sum_rows(struct queue *, const struct learn_row_args *);
void ref_learn_select(struct queue *, const struct learn_select_args *);
void ref_learn_scatter(struct queue *, const struct learn_select_args *);
void ref_learn_norm(struct queue *, const struct learn_norm_args *);
void ref_learn_norm_back(struct queue *, const struct learn_norm_args *);
void ref_learn_norm_weight_back(struct queue *, const struct learn_norm_args *);
void ref_learn_function(struct queue *, const struct learn_function_args *);
void ref_learn_function_back(struct queue *, const struct learn_function_args *);
void ref_learn_gated(struct queue *, const struct learn_gated_args *);
void ref_learn_gated_back(struct queue *, const struct learn_gated_args *);
void ref_learn_mix(struct queue *, const struct learn_mix_args *);
void ref_learn_mix_back(struct queue *, const struct learn_mix_args *);
void ref_learn_rotate(struct queue *, const struct learn_rotate_args *);
void ref_learn_rotate_back(struct queue *, const struct learn_rotate_args *);
size_t ref_learn_attention_scratch(struct queue *, const struct learn_attention_args *);
void ref_learn_attention(struct queue *, const struct learn_attention_args *);
void ref_learn_attention_back(struct queue *, const struct learn_attention_args *);
void ref_learn_smooth(struct queue *, const struct learn_smooth_args *);
void ref_learn_target(struct queue *, const struct learn_target_args *);
void ref_learn_judge(struct queue *, const struct learn_judge_args *);
void ref_learn_total(struct queue *, const struct learn_total_args *);
void ref_learn_measure(struct queue *, const struct learn_measure_args *);
void ref_learn_adam(struct queue *, const struct learn_adam_args *);

#endif
