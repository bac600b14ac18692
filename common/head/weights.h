/* The weights of a head file as buffers of a device, found by their roles. */
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
    bool predictor;                      /* of a model */
    bool routed;                         /* a row does not use all experts */
    bool owned;                          /* data was copied to the device */
    struct buffer *data;                 /* [count] of each tensor of the file */
    int count;
    /* Parts of those; address 0: the head has none. */
    struct matrix embed, output, joint;
    struct buffer final_norm, joint_bias, states_norm, state_norm[HEAD_STATES_MAX], embed_norm, hidden_norm;
    struct layer_weights layer;          /* dense and dense_table: the block of a dense layer, or those of jakiro's experts */
    struct matrix branch_up[HEAD_BRANCHES_MAX], branch_down[HEAD_BRANCHES_MAX];    /* jakiro_star */
    struct head_guess *guess;            /* [heads] */
    struct buffer experts_table;         /* u64 [experts] addresses of a predictor's routed experts */
    int64_t layer_bytes;                 /* all that a row with a layer reads; output heads, embeddings and a predictor's routed
                                          * experts left out */
};

/* Of a head's file; or of a model, and then of this layer of its predictors. */
int head_weights_open(struct head_weights *weights, const struct model *model, int layer, struct device *device,
                      struct err *err);
void head_weights_close(struct head_weights *weights);      /* also when opening them has failed */

#endif
