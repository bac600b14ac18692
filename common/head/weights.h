/* The weights of a head file as device buffers, by role. */
#ifndef MOE_HEAD_WEIGHTS_H
#define MOE_HEAD_WEIGHTS_H

#include "common/engine/weights.h"
#include "common/head/head.h"

/* One of Medusa's or Hydra's heads. */
struct head_guess {
    struct matrix block[HEAD_BLOCKS_MAX];
    struct buffer block_bias[HEAD_BLOCKS_MAX];
    struct matrix residual, output;
    struct buffer residual_bias, output_bias;
};

struct head_weights {
    struct device *device;
    bool predictor;                      /* the weights are those of a model's own predictor */
    bool routed;                         /* a row uses only some of the experts */
    bool owned;                          /* data was copied to the device */
    struct buffer *data;                 /* [count] one buffer per tensor of the file */
    int count;
    /* Parts of `data`; address 0: the head has none. */
    struct matrix embed, output, joint;
    struct buffer final_norm, joint_bias, states_norm, state_norm[HEAD_STATES_MAX], embed_norm, hidden_norm;
    struct layer_weights layer;       /* dense and dense_table: the block of a dense layer, or the blocks of jakiro's experts */
    struct matrix branch_up[HEAD_BRANCHES_MAX], branch_down[HEAD_BRANCHES_MAX];    /* jakiro_star */
    struct head_guess *guess;            /* [heads] */
    struct buffer experts_table;         /* u64 [experts] addresses of a predictor's routed experts */
    int64_t layer_bytes;                 /* bytes that a row of a layer reads, without output heads, embeddings and a
                                          * predictor's routed experts */
};

/* Opens the weights of a head's file, or, from a model, those of the predictor in this layer. */
int head_weights_open(struct head_weights *weights, const struct model *model, int layer, struct device *device,
                      struct err *err);
void head_weights_close(struct head_weights *weights);      /* Must also be called after head_weights_open has failed. */

#endif
