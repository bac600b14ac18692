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
    struct buffer branch[HEAD_BRANCHES_MAX];     /* [rows][hidden] whose logits are wanted; the first is recycled */
};

/* One kind of network. x stands for head->space.x: the residual stream. */
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

extern const struct head_class head_eagle1, head_eagle3, head_medusa, head_hydra, head_kangaroo, head_jakiro,
                               head_jakiro_star;

struct head {
    const struct head_class *class;
    struct head_setup setup;
    const struct head_params *params;
    const struct hparams *shape;
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
    struct buffer router, weight, branch;        /* with branches: [max_rows][router rows], [..][experts], [..][hidden] */
    struct buffer both;                  /* [max_rows][experts] i32: 0, 1, 0, 1, ... */
    struct buffer last, logits;          /* [branches][max_logit_rows][hidden], [...][vocab] */
    struct buffer landing;               /* shared: logits */
    int32_t *index;                      /* [max_rows] scratch */
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

#endif
