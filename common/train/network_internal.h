/* Shared parts of the networks of all kinds of heads. Private to train/. */
#ifndef MOE_TRAIN_NETWORK_INTERNAL_H
#define MOE_TRAIN_NETWORK_INTERNAL_H

#include "common/train/loss.h"
#include "common/train/network.h"

struct network {
    struct weights *weights;
    const struct head_params *head;
    const struct hparams *shape;
    const struct model *target;
    struct device *device;
    struct stored_matrix *embed;    /* the target's embedding; NULL: not needed */
    struct variable own_embed;      /* the head's own embedding; without data: the head uses the target's */
    struct variable target_head;    /* [vocab][hidden of the target], a stored matrix; empty: not needed */
    /* [positions][head_dim / 2][2] cos and sin, on the device */
    struct buffer rotations;
    struct attention attention;
    struct loss_settings settings;
};

/* One forward in progress. */
struct pass {
    struct network *network;
    struct tape *tape;
    const struct train_batch *batch;
    struct losses *losses;
    struct buffer state[POINTS_MAX], clean;     /* the batch's arrays, on the device */
    struct buffer sums;                         /* [LOSS_PARTS_MAX] f64: one sum for each part of the loss */
};

/* Returns a weight, NULL if the head has none of this role; an expert's weight. */
struct variable *find_pass_weight(const struct pass *pass, enum tensor_role role, int layer, int stage);
struct variable *pass_expert(const struct pass *pass, enum tensor_role role, enum weight_part part, int expert);

/* Returns [rows][hidden], the embedding of the token `shift` rows after each row. Past the end of a text it is that of token 0,
 * as in the padding of the original programs. */
struct variable *pass_embedding(const struct pass *pass, int shift);
/* Returns the target's states after its final norm, without noise, which losses compare with. */
struct buffer pass_judge(const struct pass *pass);
/* Returns the target's states that the head reads: head->state[number]; the states after the final norm. */
struct variable *pass_state(const struct pass *pass, int number);
struct variable *pass_final(const struct pass *pass);
/* Runs the head's own attention over x, with its output projection. Stores the rotated queries, keys and values of this step in
 * qkv[steps]. */
struct variable *pass_attention(const struct pass *pass, struct variable *x, struct variable **qkv, int steps);
/* Returns u + down(silu(gate) up), the feed-forward network, applied to norm u. */
struct variable *pass_dense(const struct pass *pass, struct variable *u);

/* Returns the counts of the whole step, of which the batch may be a part. */
const struct train_whole *pass_whole(const struct pass *pass);
/* Which rows count, and what with: row i counts if mask[i + mask_shift] is 1, and is compared with the target's row i +
 * target_shift, with weight 1. The mask of a text's last token counts as 0. Fails without memory. */
struct rows_judged {
    int *target_row;
    float *weight;
    double count;           /* number of such rows in the whole step */
};
int pass_rows(const struct pass *pass, int mask_shift, int target_shift, struct rows_judged *out);
/* Sets all weights to `each`. */
void rows_weigh(const struct pass *pass, const struct rows_judged *rows, double each);

/* Adds a named part to the losses, with a number if `number` >= 0, and returns its index; returns the part's sum on the device,
 * 0 so far; waits for the device and copies all sums into the parts' values. */
int pass_part(const struct pass *pass, const char *name, int number);
struct buffer pass_sum(const struct pass *pass, int part);
int pass_collect(const struct pass *pass);

/* Returns the loss setup that uses the target's output head for both distributions. */
struct soft_target pass_soft_target(const struct pass *pass);

/* The networks of all kinds. Each function adds its parts and its *total. */
int network_joined(const struct pass *pass);       /* eagle1, jakiro, jakiro_star */
int network_eagle3(const struct pass *pass);
int network_kangaroo(const struct pass *pass);
int network_guesses(const struct pass *pass);       /* medusa, hydra */

#endif
