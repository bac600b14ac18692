/* Buffers that layers work in: activations of so many rows, and scratch. Whoever runs layers of one shape after one another
 * needs one of them; nothing is kept in it from one forward to the next. Activations are [rows][...] f32 on the device. */
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
    int attended_width;                              /* the widest of all layers, as qkv_width */
    int qkv_width, spread_width;                     /* qkv_width: with latents that of q alone */
    struct buffer x;                                 /* the residual stream */
    struct buffer normed, qkv, attended;
    struct buffer gate;                              /* [rows][heads * value_dim], of attention that has one */
    struct buffer delta_in, delta_x, delta_gates, delta_beta;    /* of layers with a state (delta.c) */
    struct buffer branch;                            /* [rows][hidden] normed before x gets it; none: x gets it at once */
    struct buffer beside, router_normed;             /* [rows][hidden] of shared_apart, and of a router with a norm */
    struct buffer latent_q, latent_kv, spread;       /* [rows][q_rank], [kv_rank + rotary], [what kv_b makes] */
    struct buffer inner, partial, group;             /* scratch of expert_ffn */
    struct buffer operand;                           /* scratch: rows as products take them (operand_bytes) */
    size_t operand_row;                              /* bytes a row */
    struct buffer router_logits;                     /* [rows][experts], for a sparsemixer */
    struct buffer shared;                            /* [rows] weight of the shared experts, when they have a gate */
    /* On the host, of the layer at work. */
    void *by_slot;                                   /* [rows][top_k] of 4 bytes, several uses */
    uint8_t *mark;                                   /* [experts] */
    /* For sources of experts that are not fixed: pieces.c. */
    int32_t *layer_experts, *layer_tokens;           /* [experts] */
    struct buffer piece_expert;                      /* [rows][top_k] i32, made when first needed */
    int32_t *piece_ids;                              /* the same on the host */
    /* ahead.c, made when first needed: [rows][hidden], [rows][experts] twice, [rows][top_k] three times; on the host
     * [rows][top_k], and [experts] twice. */
    struct buffer ahead_normed, ahead_logits, ahead_score, ahead_wanted, ahead_expert, ahead_weight;
    int32_t *ahead_ids, *ahead_experts, *ahead_tokens;
    /* oracle.c: [rows * top_k][...], made when first asked for. */
    struct buffer apart_in, apart_out, apart_row;
    float *gold, *apart;                             /* [rows][top_k][hidden] */
    int32_t *apart_index;                            /* [rows * top_k] */
};

/* For so many rows of this model's layers. Free it also when making it has failed. */
int workspace_make(struct workspace *space, struct device *device, const struct model *model, int rows, struct err *err);
/* And with these weights, too: another model's of the same shape. */
int workspace_suit(struct workspace *space, const struct model *model, struct err *err);
/* And with others, which take so much scratch a row (operand_bytes). */
int workspace_reserve(struct workspace *space, size_t operand_row, struct err *err);
/* And for so many experts a row, where layers ask for more of them than the shape says. */
int workspace_widen(struct workspace *space, int slots, struct err *err);
void workspace_free(struct workspace *space);

/* A buffer of a * b elements. */
int workspace_alloc(struct device *device, struct buffer *out, int64_t a, int64_t b, size_t size, struct err *err);

#endif
