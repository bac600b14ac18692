/* Working buffers of layers: activations of up to `rows` rows, and scratch. One workspace is enough for layers of one shape
 * that run one after another; nothing is kept in it between forwards. Activations are [rows][...] f32 on the device. */
#ifndef MOE_ENGINE_WORKSPACE_H
#define MOE_ENGINE_WORKSPACE_H

#include "common/model/model.h"
#include "common/tensor/device.h"

struct workspace {
    struct device *device;
    const struct device_ops *ops;
    struct queue *queue;
    const struct hparams *shape;
    int rows;
    int attended_width;                              /* maximum over all layers, as for qkv_width */
    int qkv_width, spread_width;                     /* qkv_width: with latent attention the width of q alone */
    struct buffer x;                                 /* the residual stream */
    struct buffer normed, qkv, attended;
    struct buffer gate;                              /* [rows][heads * value_dim], for gated attention */
    struct buffer delta_in, delta_x, delta_gates, delta_gate, delta_steps, delta_beta;   /* for layers with a state (delta.c) */
    struct buffer branch;                            /* [rows][hidden] output that is normed before it is added to x; none:
                                                      * outputs are added to x directly */
    struct buffer beside, router_normed;             /* [rows][hidden], for shared_apart, and for a router with a norm */
    /* Queries, keys and weights of an indexer (indexer.c); scores of some rows; the slots chosen for each row, and where
     * each row's slots begin. */
    struct buffer index_q, index_k, index_weight, index_score, chosen, chosen_start, chosen_prefix;
    bool has_chosen;                                 /* the indexer of an earlier layer has chosen slots for all rows */
    struct buffer shortcut;                          /* [rows][hidden] output of routed experts that is added a layer later */
    struct buffer zero_weight;                       /* [rows] sum of the weights of zero experts, if there are any */
    struct buffer weighed;                           /* [rows][hidden] input of routed experts, if their weight multiplies it */
    struct buffer latent_q, latent_kv, spread;       /* [rows][q_rank], [rows][kv_rank + rotary], [rows][outputs of kv_b] */
    struct buffer inner, partial, group;             /* scratch of expert_ffn */
    struct buffer operand;                           /* scratch: rows in the operand format of products (operand_bytes) */
    size_t operand_row;                              /* bytes of `operand` per row */
    struct buffer router_logits;                     /* [rows][experts], for a sparsemixer */
    struct buffer shared;                            /* [rows] weight of the shared experts, if they have a gate */
    /* On the host, for the current layer: */
    void *by_slot;                                   /* [rows][top_k] of 4 bytes, scratch */
    uint8_t *mark;                                   /* [experts] */
    /* For expert sources that are not fixed (pieces.c): */
    int32_t *layer_experts, *layer_tokens;           /* [experts] */
    struct buffer piece_expert;                      /* [rows][top_k] i32, allocated on first use */
    int32_t *piece_ids;                              /* the same on the host */
    /* ahead.c, allocated on first use: [rows][hidden], [rows][experts] twice, [rows][top_k] three times, [rows]; on the host
     * [rows][top_k], and [experts] twice. */
    struct buffer ahead_normed, ahead_logits, ahead_score, ahead_wanted, ahead_expert, ahead_weight, ahead_zero;
    int32_t *ahead_ids, *ahead_experts, *ahead_tokens;
    /* oracle.c: [rows * top_k][...], allocated on first use. */
    struct buffer apart_in, apart_out, apart_row;
    float *gold, *apart;                             /* [rows][top_k][hidden] */
    int32_t *apart_index;                            /* [rows * top_k] */
};

/* Allocates a workspace for `rows` rows of this model's layers. Free it also if this failed. */
int workspace_make(struct workspace *space, struct device *device, const struct model *model, int rows, struct err *err);
/* Enlarges the scratch for the weights of another model of the same shape. */
int workspace_suit(struct workspace *space, const struct model *model, struct err *err);
/* Enlarges the scratch to `operand_row` bytes per row (operand_bytes). */
int workspace_reserve(struct workspace *space, size_t operand_row, struct err *err);
/* Enlarges the scratch to `slots` experts per row, if layers use more than the shape says. */
int workspace_widen(struct workspace *space, int slots, struct err *err);
void workspace_free(struct workspace *space);

/* Returns the input of the routed experts. */
static inline struct buffer workspace_experts_in(const struct workspace *space)
{
    return space->weighed.address ? space->weighed : space->normed;
}

/* Allocates a buffer of a * b elements. */
int workspace_alloc(struct device *device, struct buffer *out, int64_t a, int64_t b, size_t size, struct err *err);

#endif
