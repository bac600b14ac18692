/* All operations a device offers. Each is specified in its own header; kernels/ref is the executable specification, and
 * kernels/cpu and any other device meet it within the tolerances of tests/kernel.
 *
 * Operations are put on a queue and run in its order; they cannot fail by themselves (shapes were checked by the engine).
 * What a device can only notice later is reported by queue_wait in tensor/device.h. */
#ifndef MOE_KERNELS_OPS_H
#define MOE_KERNELS_OPS_H

#include "kernels/attention.h"
#include "kernels/choose.h"
#include "kernels/delta.h"
#include "kernels/expert_ffn.h"
#include "kernels/linear.h"
#include "kernels/loop.h"
#include "kernels/mix.h"
#include "kernels/route.h"
#include "kernels/rows.h"
#include "kernels/top.h"

/* Where operations are put. `state` belongs to the device: a thread pool for the host, a CUDA stream for a GPU. */
struct queue {
    void *state;
};

struct device_ops {
    void (*embed)(struct queue *, const struct embed_args *);
    void (*norm)(struct queue *, const struct norm_args *);
    void (*clamp)(struct queue *, const struct clamp_args *);
    void (*gather)(struct queue *, const struct gather_args *);
    void (*linear)(struct queue *, const struct linear_args *);
    void (*rope)(struct queue *, const struct rope_args *);
    void (*kv_write)(struct queue *, const struct kv_write_args *);
    void (*qkv)(struct queue *, const struct qkv_args *);          /* NULL: in turn, by ops_qkv */
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
    /* Of devices that decode by themselves (loop_start of tensor/device.h); NULL: this one does not. */
    void (*choose)(struct queue *, const struct choose_args *);
    void (*loop_draft)(struct queue *, const struct loop_args *);
    void (*loop_facts)(struct queue *, const struct loop_args *);
    void (*loop_settle)(struct queue *, const struct loop_args *);
    /* NULL on devices that do not compute layers with a state. */
    void (*short_conv)(struct queue *, const struct short_conv_args *);
    void (*delta_keys)(struct queue *, const struct delta_keys_args *);
    void (*delta)(struct queue *, const struct delta_args *);
    void (*gated)(struct queue *, const struct gated_args *);
};

static inline void ops_qkv_in_turn(const struct device_ops *ops, struct queue *queue, const struct qkv_args *args)
{
    if (args->q_norm.weight.address)
        ops->norm(queue, &args->q_norm);
    if (args->k_norm.weight.address)
        ops->norm(queue, &args->k_norm);
    if (args->clamp.limit > 0)
        ops->clamp(queue, &args->clamp);
    ops->rope(queue, &args->q_rope);
    ops->rope(queue, &args->k_rope);
    ops->kv_write(queue, &args->write);
}

static inline void ops_qkv(const struct device_ops *ops, struct queue *queue, const struct qkv_args *args)
{
    (ops->qkv ? ops->qkv(queue, args) : ops_qkv_in_turn(ops, queue, args));
}

#endif
