/* All operations of a device. Each is specified in its own header. kernels/ref is the executable specification; kernels/cpu and
 * other devices match it within the tolerances of tests/kernel.
 *
 * Operations are queued and run one after the other. They return no errors, because the engine has checked shapes; errors that
 * a device notices later are reported by queue_wait in tensor/device.h. */
#ifndef MOE_KERNELS_OPS_H
#define MOE_KERNELS_OPS_H

#include <stdbool.h>

#include "kernels/attention.h"
#include "kernels/choose.h"
#include "kernels/delta.h"
#include "kernels/expert_ffn.h"
#include "kernels/index.h"
#include "kernels/linear.h"
#include "kernels/loop.h"
#include "kernels/mix.h"
#include "kernels/route.h"
#include "kernels/rows.h"
#include "kernels/top.h"

/* A queue of operations. The device owns `state`: a thread pool for the host, a CUDA stream for a GPU. */
struct queue {
    void *state;
    bool bf16_activations;          /* products with bf16 weights round activations to bf16 (linear.h) */
    bool integer_activations;       /* products with mxfp4 and all formats after it quantise activations (formats.h) */
};

struct device_ops {
    void (*embed)(struct queue *, const struct embed_args *);
    void (*norm)(struct queue *, const struct norm_args *);
    void (*clamp)(struct queue *, const struct clamp_args *);
    void (*gather)(struct queue *, const struct gather_args *);
    void (*linear)(struct queue *, const struct linear_args *);
    void (*rope)(struct queue *, const struct rope_args *);
    void (*kv_write)(struct queue *, const struct kv_write_args *);
    void (*qkv)(struct queue *, const struct qkv_args *);          /* NULL: ops_qkv calls the single operations */
    void (*kv_move)(struct queue *, const struct kv_move_args *);
    void (*attention)(struct queue *, const struct attention_args *);
    void (*route_score)(struct queue *, const struct route_score_args *);
    void (*route_shortlist)(struct queue *, const struct route_shortlist_args *);
    void (*route_select)(struct queue *, const struct route_select_args *);
    void (*expert_sum)(struct queue *, const struct expert_ffn_args *);
    void (*expert_ffn)(struct queue *, const struct expert_ffn_args *);
    void (*activate)(struct queue *, const struct activate_args *);
    void (*log_add)(struct queue *, const struct log_add_args *);
    void (*blend)(struct queue *, const struct blend_args *);
    void (*blend_weights)(struct queue *, const struct blend_weights_args *);
    void (*top)(struct queue *, const struct top_args *);
    /* For devices that can decode in a loop of their own (loop_start of tensor/device.h); NULL on others. */
    void (*choose)(struct queue *, const struct choose_args *);
    void (*loop_draft)(struct queue *, const struct loop_args *);
    void (*loop_facts)(struct queue *, const struct loop_args *);
    void (*loop_accept)(struct queue *, const struct loop_args *);
    /* For devices that compute layers with a state; NULL on others. */
    void (*short_conv)(struct queue *, const struct short_conv_args *);
    void (*delta_keys)(struct queue *, const struct delta_keys_args *);
    void (*delta)(struct queue *, const struct delta_args *);
    void (*gated)(struct queue *, const struct gated_args *);
    /* For devices that compute sparse attention; NULL on others. */
    void (*index)(struct queue *, const struct index_args *);
    void (*routed_ffn)(struct queue *, const struct routed_ffn_args *);    /* NULL: ops_routed_ffn_in_turn */
    void (*norm_linear)(struct queue *, const struct norm_linear_args *);  /* NULL: ops_norm_linear calls both */
};

static inline void ops_norm_linear_in_turn(const struct device_ops *ops, struct queue *queue,
                                           const struct norm_linear_args *args)
{
    if (args->norm.rows)
        ops->norm(queue, &args->norm);
    ops->linear(queue, &args->linear);
}

static inline void ops_norm_linear(const struct device_ops *ops, struct queue *queue, const struct norm_linear_args *args)
{
    (ops->norm_linear ? ops->norm_linear(queue, args) : ops_norm_linear_in_turn(ops, queue, args));
}

static inline void ops_routed_ffn_in_turn(const struct device_ops *ops, struct queue *queue,
                                          const struct routed_ffn_args *args)
{
    if (args->logits.linear.rows)
        ops_norm_linear(ops, queue, &args->logits);
    ops->route_score(queue, &args->score);
    ops->route_select(queue, &args->select);
    ops->expert_ffn(queue, &args->ffn);
}

/* Computes all of qkv except for `write`. */
static inline void ops_qk(const struct device_ops *ops, struct queue *queue, const struct qkv_args *args)
{
    if (args->q_norm.weight.address)
        ops->norm(queue, &args->q_norm);
    if (args->k_norm.weight.address)
        ops->norm(queue, &args->k_norm);
    if (args->clamp.limit > 0)
        ops->clamp(queue, &args->clamp);
    ops->rope(queue, &args->q_rope);
    ops->rope(queue, &args->k_rope);
}

static inline void ops_qkv_in_turn(const struct device_ops *ops, struct queue *queue, const struct qkv_args *args)
{
    ops_qk(ops, queue, args);
    ops->kv_write(queue, &args->write);
}

static inline void ops_qkv(const struct device_ops *ops, struct queue *queue, const struct qkv_args *args)
{
    (ops->qkv ? ops->qkv(queue, args) : ops_qkv_in_turn(ops, queue, args));
}

#endif
