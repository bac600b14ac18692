/* Definitions shared by the files of engine/. */
#ifndef MOE_ENGINE_INTERNAL_H
#define MOE_ENGINE_INTERNAL_H

#include "common/engine/engine.h"
#include "common/engine/layer.h"
#include "common/engine/rope.h"

/* Scratch of forwards that several texts share, allocated when first needed (shared.c). */
struct shared {
    struct pass_text *text;                          /* [max_rows] */
    int32_t *token, *logit_row;                      /* [max_rows] for the rows of all texts */
    float *row_weight;                               /* [max_rows] for the rows of all texts */
    int32_t *forced;                                 /* [moe][max_rows][top_k] for all texts; NULL until texts have forced
                                                      * experts */
    int32_t *distinct;                               /* [max_rows][3][moe] distinct experts of each text: wanted, loaded,
                                                      * loaded for it only */
    int32_t *user;                                   /* [experts] scratch: the text for which an expert ran */
};

/* Arrays of the device for answers that replace logits, allocated on first use (answer.c). */
struct answers {
    struct buffer position, choice;                  /* [rows] i32 */
    struct buffer best, log_probability;             /* [rows][best] i32, f32 */
    struct buffer scratch;
};

enum { ANSWER_PARTS = 2 };

struct engine {
    struct engine_setup setup;
    const struct hparams *shape;
    struct device *device;
    const struct device_ops *ops;
    struct queue *queue;
    struct weights *weights;
    int piece_rows, slab_rows;                       /* maximum rows of a piece and of a slab in engine_prompt; slab_rows 0:
                                                      * no slabs. setup.max_rows is at least both */
    int moe_layers, max_positions;

    /* On the device. */
    struct workspace space;
    struct rope_positions rope, other_rope;          /* other_rope: for layers of the second kind */
    struct rope_positions no_rope_scale;             /* scales of queries in layers without positions, if there are any */
    struct row_table row;                            /* for max_rows rows */
    struct recurrent_table recurrent;                /* the same for layers with a state */
    struct layer_text *layer_text;                   /* [texts of a forward] for the current layer */
    size_t layer_text_room;
    struct shared shared;
    struct buffer token, logit_row, every_row;       /* i32 */
    struct buffer merge;                             /* [max_rows] i32, for resume.c */
    struct buffer last, logits;
    struct answers answers;
    struct buffer score, wanted, expert, weight;     /* [moe][rows of the forward][...] */
    struct buffer mask;                              /* [moe][experts] u8 */
    struct buffer row_weight;                        /* [rows] f32, for PLAN_PATH */
    struct buffer hidden;                            /* [layers][rows of the forward][hidden], allocated on first use */
    struct buffer features;                          /* [count][rows of the forward][hidden], likewise */

    /* On the host: arrays of struct forward, and scratch. */
    struct buffer landing;                           /* shared with the device: logits, and downloaded arrays (facts.c) */
    float *out_score, *out_weight, *out_hidden;
    int32_t *out_ahead;                              /* allocated on first use */
    int32_t *out_wanted, *out_expert, *distinct_wanted, *distinct_loaded;
    int32_t *node;                                   /* [max_rows] node of each row of the forward */
    int32_t *from;                                   /* [max_rows] index of the stopped node from which the row resumes, -1:
                                                      * none */
    int32_t *indices;                                /* [max_rows + 1] scratch */
    float *reconstruction;                           /* [moe] */
};

/* Pending nodes whose forward exited early, in the order of stopping; at most STOPPED_MAX. */
enum { STOPPED_MAX = 1 + ENGINE_ROWS_MAX };

struct stopped {
    int count;
    int node[STOPPED_MAX], layers[STOPPED_MAX];      /* node number, and number of layers it has passed */
    int32_t token[STOPPED_MAX];
    struct buffer residual;                          /* [max_rows + STOPPED_MAX][hidden]; the first max_rows are scratch for
                                                      * merging (resume.c) */
    int32_t *wanted, *expert;                        /* [STOPPED_MAX][moe][top_k] as in struct forward */
    float *weight;
};

struct sequence {
    struct engine *engine;
    struct kv kv;
    struct recurrent recurrent;                      /* states of layers that have one */
    const struct forward_part **part;                /* [capacity] part that each node was computed with; NULL: the whole
                                                      * model */
    struct stopped *stopped;                         /* allocated on first use */
};

/* The part of one text in a forward. */
struct pass_text {
    struct sequence *sequence;
    const struct batch *batch;
    int first, rows;                                 /* index of its first row among all rows; number of its rows */
    int longest;                                     /* maximum positions that a row attends to; 0: only the device knows */
    int pending, stopped;                            /* nodes of the sequence before this forward */
};

/* State of one forward that its functions share. */
struct pass {
    struct engine *engine;
    struct sequence *sequence;                       /* sequence of the first text */
    const struct batch *batch;                       /* batch of all rows; parents and per-text options are in the texts' own
                                                      * batches */
    struct pass_text *text;                          /* [texts] at least one */
    int texts;
    int rows;                                        /* rows of all texts */
    bool slab;                                       /* the rows are a slab (kernels/linear.h) */
    bool prompt;                                     /* the rows are a piece of a prompt */
    bool resumes;                                    /* some rows resume from stopped nodes: engine->from */
};

/* Several pieces of a prompt that run layer by layer together. */
enum { SPAN_ROWS = 4096, SPAN_PIECES = 64 };

struct span {
    int pieces, rows;                                /* rows: total of all pieces */
    int piece_rows[SPAN_PIECES];
    bool slab[SPAN_PIECES];
    bool every, last;                                /* logits of every row; logits of the last row of the last piece */
};

/* forward.c. Return how many layers a forward runs, with how many experts per row, and whether it runs attention and
 * feed-forward of layer n. */
int pass_layers(const struct pass *pass);
int pass_top_k(const struct pass *pass);
bool pass_attends(const struct pass *pass, int n);
bool pass_feeds(const struct pass *pass, int n);
bool pass_skips_layers(const struct pass *pass);
bool pass_leaves_nothing_else_out(const struct batch *batch);        /* nothing, or only layers after an early exit */
struct layer_experts pass_experts(const struct pass *pass, int n);

/* Queues all operations of a forward. Tokens, positions and slots must have been uploaded. */
int forward_put(const struct pass *pass, struct err *err);

/* The parts of forward_put: forward_begin allocates the results that the batch requests; forward_embed writes the embeddings
 * of the rows to engine->space.x; forward_layer runs layer n, which is layer `moe` of those with experts; forward_end
 * computes the logits. */
int forward_begin(const struct pass *pass, struct err *err);
void forward_embed(const struct pass *pass, int rows);
int forward_layer(const struct pass *pass, const struct layer_rows *rows, int n, int moe, struct err *err);
int forward_end(const struct pass *pass, struct err *err);

/* The purpose of a forward. */
enum occasion { VERIFICATION, PROMPT, PROMPT_SLAB };

/* Announces a forward of `rows` rows to the expert source and the second processor. */
void forward_begin_experts(const struct pass *pass, enum occasion occasion, int rows);

/* Runs one whole forward; out [texts]. On failure sequences are unchanged, except that batch.resume may have dropped pending
 * nodes. forward_run runs a forward of one text. */
int forward_pass(struct pass *pass, enum occasion occasion, struct forward *out, struct err *err);
int forward_run(struct engine *engine, struct sequence *sequence, const struct batch *batch, enum occasion occasion,
                struct forward *out, struct err *err);
void shared_free(struct engine *engine);

/* span.c: runs several pieces of a prompt layer by layer: all pieces run a layer before any runs the next one, so that an
 * expert is read once for all of them. batch: the first piece's, with its options; piece i has rows[i] tokens and is a slab
 * if slab[i]. Commits the pieces; `each` as in engine_prompt. On failure the sequence is unchanged, or ends with a piece
 * that `each` refused. */
int span_run(struct engine *engine, struct sequence *sequence, const struct batch *batch, const struct span *span,
             engine_piece_function *each, void *context, struct forward *out, struct err *err);

/* oracle.c: contributions of each routed expert to each row. _contributions computes and stores those of the natural
 * routing, which must be the layer's current one; _mask chooses experts by them; _compare compares the natural result with
 * the result of the layer's routing at that time. */
int oracle_contributions(const struct layer *at, struct err *err);
int oracle_mask(const struct layer *at, int budget, struct err *err);
int oracle_compare(const struct layer *at, float *error, struct err *err);

/* ahead.c: predicts the experts of the next layer by its router on this layer's state. _queue queues the operations, before a
 * wait; _announce passes the prediction to the expert source. Both are no-ops if at->next is empty. */
int ahead_queue(const struct layer *at, struct err *err);
int ahead_announce(const struct layer *at, struct err *err);

/* oracle_printed.c: like oracle_mask, but over all experts weighted by the scores of this forward, without a call of
 * oracle_contributions. */
int oracle_mask_printed(const struct layer *at, int budget, struct err *err);

/* Used by both oracles: out [count][hidden] = weight[i] times the output of expert[i] for row[i], for at most oracle_pairs
 * pairs at once. */
struct apart_rows {
    struct buffer row, expert, weight;               /* row i32, expert i32, weight f32 [count] */
    const int32_t *ids;                              /* `expert` on the host; NULL: not known there */
    int count;
};

/* Returns the maximum number of pairs per call; oracle_alloc allocates buffers for that number. */
size_t oracle_pairs(const struct workspace *space);
int oracle_alloc(struct workspace *space, struct err *err);
int oracle_compute(const struct layer *at, const struct apart_rows *apart, float *out, struct err *err);

/* tree.c: appends the rows of all texts as pending nodes (engine->node), and uploads their positions, slots and paths. Sets
 * pass->resumes, and `longest` of the texts. After a failure some rows may be pending. */
int tree_append(struct pass *pass, struct err *err);

/* resume.c. resume_find returns the stopped node from which a row with this token and this parent (a pending node, or -1)
 * can resume; -1: none. _begin returns the rows that run from the first layer; _join adds the rows that resume at layer n,
 * with their x; _keep stores the nodes of a pass that exits early. */
int resume_find(const struct pass *pass, int parent, int32_t token);
int resume_begin(const struct pass *pass, struct layer_rows *rows, struct err *err);
int resume_join(const struct pass *pass, int n, struct layer_rows *rows, struct err *err);
int resume_keep(const struct pass *pass, struct err *err);
int resume_layer(const struct pass *pass, int row);          /* first layer that the row runs */
void stopped_free(struct sequence *sequence);

/* facts.c: returns the nominal bytes of a pass of one text, with `cached` tokens and nodes in total and
 * engine->distinct_loaded. */
int64_t nominal_bytes(const struct pass *pass, int64_t cached);

/* facts.c: downloads the results of the forward and fills out [texts]. */
int facts_collect(const struct pass *pass, struct forward *out, struct err *err);

/* answer.c: logits, or the answers that replace them. _check checks the request; _put queues the computation after that of
 * the logits, and returns how many buffers part[ANSWER_PARTS] are to be downloaded, one after another (-1: failure); _set
 * points to the downloaded answers. _free frees the buffers. */
int answer_check(const struct pass *pass, struct err *err);
int answer_put(const struct pass *pass, struct buffer *part, struct err *err);
void answer_set(const struct pass *pass, const char *landed, struct forward *out);
void answer_free(struct engine *engine);

/* experts_copy.c. experts_alike returns whether both models were made from the same weights, so that their routes are
 * similar. */
bool experts_alike(const struct model *model, const struct model *other);
struct layer_experts experts_copy_layer(const struct experts_copy *copy, int n);
int64_t experts_copy_bytes(const struct experts_copy *copy);         /* bytes of one expert, averaged over layers */

#endif
