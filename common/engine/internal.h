/* What the files of engine/ share. */
#ifndef MOE_ENGINE_INTERNAL_H
#define MOE_ENGINE_INTERNAL_H

#include "common/engine/engine.h"
#include "common/engine/layer.h"
#include "common/engine/rope.h"

struct engine {
    struct engine_setup setup;
    const struct hparams *shape;
    struct device *device;
    const struct device_ops *ops;
    struct queue *queue;
    struct weights *weights;
    int piece_rows, slab_rows;                       /* of engine_prompt, no slabs: 0; setup.max_rows has room for both */
    int moe_layers, max_positions;

    /* On the device. */
    struct workspace space;
    struct rope_positions rope, other_rope;          /* other_rope: of layers of the other kind */
    struct row_table row;                            /* of max_rows */
    struct recurrent_table recurrent;                /* the same of layers with a state */
    struct buffer token, logit_row, every_row;       /* i32 */
    struct buffer merge;                             /* [max_rows] i32, resume.c */
    struct buffer last, logits;
    struct buffer score, wanted, expert, weight;     /* [moe][rows of the forward][...] */
    struct buffer mask;                              /* [moe][experts] u8 */
    struct buffer row_weight;                        /* [rows] f32, of a plan that goes by paths */
    struct buffer hidden;                            /* [layers][rows of the forward][hidden], made when first asked for */
    struct buffer features;                          /* [count][rows of the forward][hidden], the same */

    /* On the host: what struct forward points to, and scratch. */
    struct buffer landing;                           /* shared: logits, and other arrays as they come (facts.c) */
    float *out_score, *out_weight, *out_hidden;
    int32_t *out_wanted, *out_expert, *distinct_wanted, *distinct_loaded;
    int32_t *node;                                   /* [max_rows] of the forward */
    int32_t *from;                                   /* [max_rows] stopped nodes that rows go on from, -1: none */
    int32_t *indices;                                /* [max_rows + 1], several uses */
    float *reconstruction;                           /* [moe] */
};

/* Pending nodes whose forward was stopped on its way, in the order in which that happened; at most STOPPED_MAX. */
enum { STOPPED_MAX = 1 + ENGINE_ROWS_MAX };

struct stopped {
    int count;
    int node[STOPPED_MAX], layers[STOPPED_MAX];      /* which, and the layers that it has gone through */
    int32_t token[STOPPED_MAX];
    struct buffer residual;                          /* [max_rows + STOPPED_MAX][hidden]: the first for merging, resume.c */
    int32_t *wanted, *expert;                        /* [STOPPED_MAX][moe][top_k] what struct forward said of them */
    float *weight;
};

struct sequence {
    struct engine *engine;
    struct kv kv;
    struct recurrent recurrent;                      /* of layers with a state */
    const struct forward_part **part;                /* [capacity] that it went through; NULL: whole */
    struct stopped *stopped;                         /* made when first needed */
};

/* A forward on its way through the layers: what they share. */
struct pass {
    struct engine *engine;
    struct sequence *sequence;
    const struct batch *batch;
    int rows;
    int longest;                                     /* positions that a row may see; 0: the device alone knows */
    bool slab;                                       /* its rows are one (kernels/linear.h) */
    bool prompt;                                     /* its rows are a piece of a prompt */
    bool resumes;                                    /* some rows go on from stopped nodes: engine->from */
};

/* Pieces of a prompt that go through the layers together. */
enum { SPAN_ROWS = 4096, SPAN_PIECES = 64 };

struct span {
    int pieces, rows;                                /* rows of all pieces */
    int piece_rows[SPAN_PIECES];
    bool slab[SPAN_PIECES];
    bool every, last;                                /* logits of every row; of the last row of the last piece */
};

/* forward.c. A forward of the pass runs `layers` layers with `top_k` experts; those halves of a layer that it does not skip. */
int pass_layers(const struct pass *pass);
int pass_top_k(const struct pass *pass);
bool pass_attends(const struct pass *pass, int n);
bool pass_feeds(const struct pass *pass, int n);
bool pass_leaves_nothing_else_out(const struct batch *batch);        /* than layers after the one where it stops */
struct layer_experts pass_experts(const struct pass *pass, int n);

/* Puts the operations of a forward on the queue, tokens, positions and slots being there. */
int forward_put(const struct pass *pass, struct err *err);

/* The parts of forward_put: _begin allocates the results that the batch requests; _embed writes the embeddings of the rows to
 * engine->space.x; _layer runs layer n, which is layer `moe` of those with experts; _end computes the logits. */
int forward_begin(const struct pass *pass, struct err *err);
void forward_embed(const struct pass *pass, int rows);
int forward_layer(const struct pass *pass, const struct layer_rows *rows, int n, int moe, struct err *err);
void forward_end(const struct pass *pass);

/* The purpose of a forward. */
enum occasion { VERIFICATION, PROMPT, PROMPT_SLAB };

/* Announces a forward of `rows` rows to the expert source and the second processor. */
void forward_begin_experts(const struct pass *pass, enum occasion occasion, int rows);

/* One whole forward. On failure the sequence is as before, but for pending nodes with batch.resume. */
int forward_run(struct engine *engine, struct sequence *sequence, const struct batch *batch, enum occasion occasion,
                struct forward *out, struct err *err);

/* span.c: several pieces of a prompt, layer by layer: all pieces run a layer before any runs the next one, so that an expert
 * is read once for all of them. `batch` is that of the first piece, with its options; piece i has rows[i] tokens and is a slab
 * if slab[i]. Commits the pieces; `each` as in engine_prompt. On failure the sequence is as before, or ends with a piece that
 * `each` refused. */
int span_run(struct engine *engine, struct sequence *sequence, const struct batch *batch, const struct span *span,
             engine_piece_function *each, void *context, struct forward *out, struct err *err);

/* oracle.c: what each routed expert adds to each row. _look keeps that of the natural routing, which is the layer's now; _mask
 * chooses from it; _compare sets it against the routing that is the layer's by then. */
int oracle_look(const struct layer *at, struct err *err);
int oracle_mask(const struct layer *at, int budget, struct err *err);
int oracle_compare(const struct layer *at, float *error, struct err *err);

/* ahead.c: the experts of the next layer, by its router on this layer's state. _look puts that on the queue, before a wait;
 * _tell tells the source what came of it. Both do nothing where at->next has nothing. */
int ahead_look(const struct layer *at, struct err *err);
int ahead_tell(const struct layer *at, struct err *err);

/* oracle_printed.c: the same as oracle_mask, of all experts by the scores of this forward, with no need of oracle_look. */
int oracle_mask_printed(const struct layer *at, int budget, struct err *err);

/* What both use: out [count][hidden] = weight[i] times what expert[i] makes of row[i]. At most oracle_pairs at once, for
 * which oracle_alloc makes room. */
struct apart_rows {
    struct buffer row, expert, weight;               /* [count] i32, i32, f32 */
    const int32_t *ids;                              /* expert on the host; NULL: it is not there */
    int count;
};

size_t oracle_pairs(const struct workspace *space);
int oracle_alloc(struct workspace *space, struct err *err);
int oracle_compute(const struct layer *at, const struct apart_rows *apart, float *out, struct err *err);

/* tree.c: the rows of a batch as pending nodes (engine->node), with positions, slots and paths on the device. Nothing is
 * changed on failure, but what batch.resume drops. Sets pass->resumes. */
int tree_append(struct pass *pass, struct err *err);

/* resume.c. resume_find: the stopped node from which a row with this token goes on, its parent being such a node or -1; -1:
 * none. _begin and _join: rows that take part from the beginning, or from layer n on, with x for these; _keep: the nodes of a
 * pass that stops can be gone on from. */
int resume_find(const struct pass *pass, int parent, int32_t token);
int resume_begin(const struct pass *pass, struct layer_rows *rows, struct err *err);
int resume_join(const struct pass *pass, int n, struct layer_rows *rows, struct err *err);
int resume_keep(const struct pass *pass, struct err *err);
int resume_layer(const struct pass *pass, int row);          /* the first that the row runs */
void stopped_free(struct sequence *sequence);

/* facts.c: the bytes of a pass, with `cached` tokens and nodes in all and engine->distinct_loaded. */
int64_t nominal_bytes(const struct pass *pass, int64_t cached);

/* facts.c: fetches what the forward computed and fills *out. */
int facts_collect(const struct pass *pass, struct forward *out, struct err *err);

/* experts_copy.c. experts_alike: both were made from the same weights, so that what one wants of a layer the other may, too. */
bool experts_alike(const struct model *model, const struct model *other);
struct layer_experts experts_copy_layer(const struct experts_copy *copy, int n);
int64_t experts_copy_bytes(const struct experts_copy *copy);         /* of one expert, on average over layers */

#endif
