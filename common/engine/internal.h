/* What the files of engine/ share. */
#ifndef MOE_ENGINE_INTERNAL_H
#define MOE_ENGINE_INTERNAL_H

#include "common/engine/engine.h"
#include "common/engine/weights.h"

struct engine {
    struct engine_setup setup;
    const struct hparams *shape;
    struct device *device;
    const struct device_ops *ops;
    struct queue *queue;
    struct weights *weights;
    int piece_rows, slab_rows;                       /* of engine_prompt, no slabs: 0; setup.max_rows has room for both */
    int moe_layers, qkv_width, spread_width, max_positions;      /* qkv_width: with latents that of q alone */

    /* On the device. Activations are [rows][...] f32. */
    struct buffer rope;                              /* for rope_positions positions */
    int rope_positions;
    struct buffer x, normed, qkv, attended, last, logits;
    struct buffer latent_q, latent_kv, spread;       /* [rows][q_rank], [kv_rank + rotary], [what kv_b makes] */
    struct buffer inner, partial, group;             /* scratch of expert_ffn */
    struct buffer operand;                           /* scratch: rows as products take them (operand_bytes) */
    struct buffer token, position, slot, prefix, path_start, path, logit_row, every_row;     /* i32 */
    struct buffer score, wanted, expert, weight;     /* [moe][rows of the forward][...] */
    struct buffer router_logits;                     /* [rows][experts] of the layer at work, for a sparsemixer */
    struct buffer shared;                            /* [rows] weight of the shared experts, when they have a gate */
    struct buffer mask;                              /* [moe][experts] u8 */
    struct buffer row_weight;                        /* [rows] f32, of a plan that goes by paths */
    struct buffer hidden;                            /* [layers][rows of the forward][hidden], made when first asked for */
    struct buffer apart_in, apart_out, apart_row;    /* oracle.c: [rows * top_k][...], made when first asked for */

    /* On the host: what struct forward points to, and scratch. */
    struct buffer landing;                           /* shared: logits, and other arrays as they come (facts.c) */
    float *out_score, *out_weight, *out_hidden;
    int32_t *out_wanted, *out_expert, *distinct_wanted, *distinct_loaded;
    int32_t *indices;                                /* [max_rows + 1], several uses */
    int32_t *path_list;
    size_t path_room;
    void *by_slot;                                   /* [max_rows][top_k] of 4 bytes, several uses */
    uint8_t *mark;                                   /* [experts] */
    float *gold, *apart;                             /* oracle.c: [rows][top_k][hidden] */
    float *reconstruction;                           /* [moe] */
    int32_t *layer_experts;                          /* [experts], for sources that are not fixed */
};

struct sequence {
    struct engine *engine;
    struct buffer *k, *v;                            /* [layers], each as kernels/attention.h says */
    int capacity, length, pending;
    int32_t *parent, *depth, *run;                   /* [capacity] by pending node; run: see node_append */
};

/* Where a forward stands: what all layers of it share. */
struct pass {
    struct engine *engine;
    struct sequence *sequence;
    const struct batch *batch;
    int rows;
    int longest;                                     /* positions that a row may see; 0: the device alone knows */
    bool slab;                                       /* its rows are one (kernels/linear.h) */
};

/* experts.c: an expert layer at work; all buffers are its own parts of the engine's. */
struct expert_layer {
    const struct pass *pass;
    const struct layer_weights *weights;
    int n, moe;                                      /* among all layers, among those with experts */
    struct buffer score, logits, wanted, expert, weight, mask;
};

int plan_begin(const struct pass *pass, struct err *err);
int experts_ffn(const struct pass *pass, int n, int moe, struct err *err);
void dense_ffn(const struct pass *pass, int n, int inner, struct buffer weight);
void shared_ffn(const struct pass *pass, int n);
int experts_acquire(const struct expert_layer *at, struct buffer *table, int *count, struct err *err);
void experts_release(const struct expert_layer *at, int count);

/* oracle.c: what each routed expert adds to each row. _look keeps that of the natural routing, which is the layer's now; _mask
 * chooses from it; _compare sets it against the routing that is the layer's by then. */
int oracle_look(const struct expert_layer *at, struct err *err);
int oracle_mask(const struct expert_layer *at, int budget, struct err *err);
int oracle_compare(const struct expert_layer *at, float *error, struct err *err);

/* oracle_printed.c: the same as oracle_mask, of all experts by the scores of this forward, with no need of oracle_look. */
int oracle_mask_printed(const struct expert_layer *at, int budget, struct err *err);

/* What both use: out [count][hidden] = weight[i] times what expert[i] makes of row[i], experts being in place. At most
 * oracle_places at once, for which oracle_alloc makes room. */
struct apart_rows {
    struct buffer row, expert, weight;               /* [count] i32, i32, f32 */
    int count;
};

size_t oracle_places(const struct engine *engine);
int oracle_alloc(struct engine *engine, struct err *err);
int oracle_compute(const struct expert_layer *at, const struct apart_rows *apart, struct buffer table, float *out,
                   struct err *err);

/* Grows the table of rotations to `positions`. */
int engine_rope_cover(struct engine *engine, int positions, struct err *err);

/* tree.c: the rows of a batch as pending nodes, with positions, slots and paths on the device. Nothing is changed on
 * failure. */
int tree_append(struct engine *engine, struct sequence *sequence, const struct batch *batch, struct err *err);

/* forward.c: puts the operations of a forward on the queue, tokens, positions and slots being there. */
int forward_put(const struct pass *pass, struct err *err);

/* facts.c: the bytes of a forward of so many rows, with `cached` tokens and nodes in all and engine->distinct_loaded. */
int64_t nominal_bytes(const struct engine *engine, int64_t cached, int rows, bool with_head);

/* facts.c: fetches what the forward computed and fills *out. */
int facts_collect(struct engine *engine, const struct sequence *sequence, const struct batch *batch, struct forward *out,
                  struct err *err);

#endif
