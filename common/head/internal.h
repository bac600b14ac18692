/* What the files of head/ share. */
#ifndef MOE_HEAD_INTERNAL_H
#define MOE_HEAD_INTERNAL_H

#include "common/engine/layer.h"
#include "common/engine/rope.h"
#include "common/head/head.h"
#include "common/head/weights.h"

/* A forward at work. Rows are of the batch; buffers [rows][...] f32 on the device. */
struct head_pass {
    struct head *head;
    const struct head_batch *batch;
    struct layer_rows *rows;
    struct buffer reads;                 /* what attention reads; none: the norm of x */
    struct buffer branch[HEAD_BRANCHES_MAX];     /* [rows][hidden] whose logits are wanted */
    struct buffer made;                  /* [rows][hidden] what rows after these go on from; none: the first branch */
};

/* One kind of network. x is head->space.x, the residual stream. */
struct head_class {
    enum head_kind kind;
    int branches;                        /* 0: one of each of its heads */
    bool joins;                          /* the next token is drawn from all branches under one softmax */
    bool guesses;                        /* its logits come of head_guess */
    /* Sets x, and pass->reads, from embeddings and states. */
    int (*enter)(struct head_pass *pass, struct err *err);
    /* From x after attention to the branches. */
    int (*leave)(struct head_pass *pass, const struct layer *layer, struct err *err);
};

struct modules;

extern const struct head_class head_mtp, head_eagle1, head_eagle3, head_medusa, head_hydra, head_kangaroo, head_jakiro,
                               head_jakiro_star;

struct head {
    const struct head_class *class;
    struct head_setup setup;
    const struct head_params *params;
    struct head_params own;              /* of a predictor, which has none in a file */
    const struct hparams *shape;
    int layers, number;                  /* 1 or 0 layers of its own, number in shape->layer[] */
    struct device *device;
    const struct device_ops *ops;
    struct queue *queue;
    struct engine_ends ends;             /* the target's */
    struct head_weights weights;
    struct workspace space;
    struct kv kv;                        /* of the text */
    struct row_table table;
    struct rope_positions rope;
    struct buffer token;                 /* [max_rows] i32; of hydra so many for each of its heads */
    struct buffer state_row, logit_row;  /* [max_rows] i32 */
    struct buffer every_row;             /* [max_rows] 0, 1, 2, ... */
    struct buffer embedded;              /* [max_rows][hidden]; of heads that guess z, which their output heads read */
    struct buffer joined;                /* [max_rows][the most that is joined] */
    struct buffer pair;                  /* [max_rows][2 hidden] */
    /* [1 + HEAD_NODES_MAX][hidden] what the head made of the newest committed row, then of each pending node. */
    struct buffer made;
    /* With experts of its own: [max_rows][router rows], [..][slots], [..][hidden], [..][hidden]; and which they are, i32
     * [..][slots], in order of their scores [..][experts]. Two of two need no choice: 0, 1, 0, 1, ... */
    struct buffer router, weight, branch, scaled;
    struct buffer chosen, wanted, score;
    int slots;                           /* the most experts of a row that a forward asks for */
    struct buffer last, logits;          /* [branches][max_logit_rows][hidden], [...][vocab] */
    /* [branches][max_logit_rows][HEAD_BEST_MAX] the likeliest tokens; [draft_vocab] i32 the target's, address 0: the same. */
    struct buffer best_token, best_logp, best_scratch, map;
    bool ranks;                          /* can be asked for those: the three others are there */
    struct buffer landing;               /* shared: logits, or the likeliest tokens */
    int32_t *index;                      /* [max_rows] scratch */
    /* Where a row uses some experts alone (head_routes), which ones: on the host, and how many the last forward has. */
    int32_t *routed;
    int routes;
    /* Of a predictor with experts: */
    struct layer_routing routing;
    struct expert_source *experts;
    /* All predictors of a model: nothing else is used here then but setup, params and shape. NULL: one network. */
    struct modules *modules;
};

/* How many branches a forward is to compute. */
int head_wanted_branches(const struct head_pass *pass);

/* eagle.c. x = joint [E(token); state], which attention reads as it is. */
int head_enter_pair(struct head_pass *pass, struct err *err);

/* head.c. E(t) of each row at `out`, of so many floats a row; and of other tokens than the batch's. */
void head_embed(const struct head_pass *pass, struct buffer out, int out_stride);
void head_embed_tokens(const struct head_pass *pass, struct buffer token, struct buffer out, int out_stride);
/* out[r] = in[index[r]], widths and strides in floats. */
void head_gather(const struct head_pass *pass, struct buffer in, int in_rows, int in_stride, struct buffer index,
                 struct buffer out, int out_stride, int width);
/* out = [out +] matrix . in + bias. */
void head_linear(const struct head_pass *pass, struct buffer in, const struct matrix *matrix, struct buffer bias,
                 struct buffer out, int out_stride, bool add);
/* out = norm of in, `width` wide. */
void head_norm(const struct head_pass *pass, struct buffer in, int in_stride, struct buffer weight, struct buffer out,
               int out_stride, int width);
/* The part of each row of a buffer from `first` float on. */
struct buffer head_columns(struct buffer rows, int first);
/* What the head made of the rows' parents. */
void head_recycle(const struct head_pass *pass, struct buffer out, int out_stride);
/* From head->logits [branches][rows][vocab] to *out: they, or so many of the likeliest tokens, are on their way to the host. */
void head_fetch(const struct head *head, int branches, int rows, int best, struct head_forward *out);
/* Whether it answers so many of the likeliest tokens; 0: none are wanted. */
int head_check_best(const struct head *head, int best, struct err *err);

/* mtp.c. All predictors of a model as one head. Nodes are true rows, which all modules then have, or rows of drafted tokens,
 * each of one module. */
struct modules {
    int count;
    struct head *module[PREDICTORS_MAX];
    int nodes, true_nodes;
    int skipped[PREDICTORS_MAX];         /* of the pending true rows, those at the text's beginning that a module has not */
    int parent[HEAD_NODES_MAX], depth[HEAD_NODES_MAX], own[HEAD_NODES_MAX];     /* own: node of its module */
    int32_t token[HEAD_ROWS_MAX], above[HEAD_ROWS_MAX], state[HEAD_ROWS_MAX], wanted[HEAD_ROWS_MAX];
    int which[HEAD_ROWS_MAX];            /* of the logits asked for */
    float *logits;                       /* [max_logit_rows][vocab] */
    int32_t *best_token;                 /* [max_logit_rows][HEAD_BEST_MAX], and their log-probabilities */
    float *best_logp;
};

int modules_open(struct head *head, struct err *err);
void modules_close(struct head *head);
int modules_begin(struct head *head, int tokens, struct err *err);
int modules_run(struct head *head, const struct head_batch *batch, struct head_forward *out, struct err *err);
int modules_commit(struct head *head, const int32_t *node, int count, struct err *err);
void modules_rollback(struct head *head);
int modules_length(const struct head *head);
int modules_pending(const struct head *head);
int modules_capacity(const struct head *head);

/* head.c. The network of predictor `module`. */
int head_open_network(struct head **out, const struct head_setup *setup, int module, struct err *err);

/* experts.c. Routing of a predictor's own experts, which stay where they are. */
int head_experts_open(struct head *head, struct err *err);
void head_experts_close(struct head *head);
int64_t head_experts_bytes(const struct head *head);      /* of those that the last forward used */

#endif
