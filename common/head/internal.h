/* Shared declarations of common/head. */
#ifndef MOE_HEAD_INTERNAL_H
#define MOE_HEAD_INTERNAL_H

#include "common/engine/layer.h"
#include "common/engine/rope.h"
#include "common/head/head.h"
#include "common/head/weights.h"

/* A forward in progress. Rows are those of the batch; buffers are [rows][...] f32 on the device. */
struct head_pass {
    struct head *head;
    const struct head_batch *batch;
    struct layer_rows *rows;
    struct buffer reads;                 /* input of attention; none: the norm of x */
    struct buffer branch[HEAD_BRANCHES_MAX];     /* [rows][hidden] inputs of the output head, per branch */
    struct buffer made;            /* [rows][hidden] the head's output from which later rows continue; none: the first branch */
};

/* One kind of network. x is head->space.x, the residual stream. */
struct head_class {
    enum head_kind kind;
    int branches;                        /* number of branches; 0: one for each of its heads */
    bool joins;                          /* the next token is drawn from all branches under one softmax */
    bool guesses;                        /* logits come from head_guess */
    /* Computes x, and pass->reads, from embeddings and states. */
    int (*enter)(struct head_pass *pass, struct err *err);
    /* Computes the branches from x after attention. */
    int (*leave)(struct head_pass *pass, const struct layer *layer, struct err *err);
};

struct modules;

extern const struct head_class head_mtp, head_eagle1, head_eagle3, head_medusa, head_hydra, head_kangaroo, head_jakiro,
                               head_jakiro_star;

struct head {
    const struct head_class *class;
    struct head_setup setup;
    const struct head_params *params;
    struct head_params own;              /* description of a predictor; the model file contains none */
    const struct hparams *shape;
    int layers, number;                  /* layers: 1 or 0; number: index of the layer in shape->layer[] */
    struct device *device;
    const struct device_ops *ops;
    struct queue *queue;
    struct engine_ends ends;             /* embedding and output head of the target */
    struct head_weights weights;
    struct workspace space;
    struct kv kv;                        /* of the text */
    struct row_table table;
    struct rope_positions rope;
    struct buffer token;                 /* [max_rows] i32; hydra: [heads][max_rows] */
    struct buffer state_row, logit_row;  /* [max_rows] i32 */
    struct buffer every_row;             /* [max_rows] 0, 1, 2, ... */
    struct buffer embedded;              /* [max_rows][hidden]; for heads that guess: z, the input of their output heads */
    struct buffer joined;                /* [max_rows][the widest concatenation] */
    struct buffer pair;                  /* [max_rows][2 hidden] */
    /* [1 + HEAD_NODES_MAX][hidden] the head's output for the newest committed row, then for each pending node. */
    struct buffer made;
    /* For heads with their own experts: [max_rows][router rows], [..][slots], [..][hidden], [..][hidden]; and the chosen
     * experts, i32 [..][slots], in order of their scores [..][experts]. With two of two experts nothing is chosen: 0, 1, 0, 1,
     * ... */
    struct buffer router, weight, branch, scaled;
    struct buffer chosen, wanted, score;
    int slots;                           /* max experts of a row that a forward requests */
    struct buffer last, logits;          /* [branches][max_logit_rows][hidden], [...][vocab] */
    /* [branches][max_logit_rows][HEAD_BEST_MAX] the most probable tokens; [draft_vocab] i32 their ids in the target's
     * vocabulary, address 0: the same ids. */
    struct buffer best_token, best_logp, best_scratch, map;
    bool ranks;                          /* supports requests for the most probable tokens; the buffers above are allocated */
    struct buffer landing;               /* shared memory for logits or the most probable tokens */
    int32_t *index;                      /* [max_rows] scratch */
    /* For rows that use only some experts (head_routes): the number of each chosen expert of the last forward, [routes] on the
     * host; routes: rows times experts per row. */
    int32_t *routed;
    int routes;
    /* only for a predictor with experts: */
    struct layer_routing routing;
    struct expert_source *experts;
    /* All predictors of a model; besides these only setup, params and shape are then used. NULL: one network. */
    struct modules *modules;
};

/* Returns the number of branches that a forward must compute. */
int head_wanted_branches(const struct head_pass *pass);

/* eagle.c. Computes x = joint [E(token); state], which attention reads without a norm. */
int head_enter_pair(struct head_pass *pass, struct err *err);

/* head.c. Stores the embedding E(t) of each row at `out`, with a stride in floats; head_embed_tokens: of the tokens in
 * `token`. */
void head_embed(const struct head_pass *pass, struct buffer out, int out_stride);
void head_embed_tokens(const struct head_pass *pass, struct buffer token, struct buffer out, int out_stride);
/* Computes out[r] = in[index[r]]; widths and strides in floats. */
void head_gather(const struct head_pass *pass, struct buffer in, int in_rows, int in_stride, struct buffer index,
                 struct buffer out, int out_stride, int width);
/* Computes out = [out +] matrix . in + bias. */
void head_linear(const struct head_pass *pass, struct buffer in, const struct matrix *matrix, struct buffer bias,
                 struct buffer out, int out_stride, bool add);
/* Computes out = norm of in, over `width` floats. */
void head_norm(const struct head_pass *pass, struct buffer in, int in_stride, struct buffer weight, struct buffer out,
               int out_stride, int width);
/* Returns the buffer from column `first` on, in floats. */
struct buffer head_columns(struct buffer rows, int first);
/* Stores the head's output for the parents of the rows. */
void head_recycle(const struct head_pass *pass, struct buffer out, int out_stride);
/* Queues the copy of head->logits [branches][rows][vocab] to *out on the host, or of the `best` most probable tokens. */
void head_fetch(const struct head *head, int branches, int rows, int best, struct head_forward *out);
/* Fails if `best` most probable tokens are not supported; 0, none requested, always succeeds. */
int head_check_best(const struct head *head, int best, struct err *err);

/* mtp.c. All predictors of a model as one head. Nodes are true rows, which all modules share, or rows of drafted tokens, each
 * of which belongs to one module. */
struct modules {
    int count;
    struct head *module[PREDICTORS_MAX];
    int nodes, true_nodes;
    int skipped[PREDICTORS_MAX];     /* number of pending true rows, at the text's beginning, without a row in a module */
    int parent[HEAD_NODES_MAX], depth[HEAD_NODES_MAX], own[HEAD_NODES_MAX];     /* own: the node's number in its module */
    int32_t token[HEAD_ROWS_MAX], above[HEAD_ROWS_MAX], state[HEAD_ROWS_MAX], wanted[HEAD_ROWS_MAX];
    int which[HEAD_ROWS_MAX];            /* indices of the requested logits */
    float *logits;                       /* [max_logit_rows][vocab] */
    int32_t *best_token;                 /* [max_logit_rows][HEAD_BEST_MAX], with their log-probabilities below */
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

/* head.c. Opens the network of predictor number `module`. */
int head_open_network(struct head **out, const struct head_setup *setup, int module, struct err *err);

/* experts.c. Routes rows to a predictor's own experts, which are always resident. */
int head_experts_open(struct head *head, struct err *err);
void head_experts_close(struct head *head);
int64_t head_experts_bytes(const struct head *head);      /* bytes of the experts that the last forward used */

#endif
