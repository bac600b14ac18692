/* What the networks of the kinds of heads share. Private to train/. */
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
    struct stored_matrix *embed;    /* the target's; NULL: not needed */
    struct variable own_embed;      /* data none: the target's */
    struct variable target_head;    /* [vocab][hidden of the target], stored; NULL: not needed */
    struct buffer rotations;
    struct attention attention;
    struct loss_settings settings;
};

/* One forward at work. */
struct pass {
    struct network *network;
    struct tape *tape;
    const struct train_batch *batch;
    struct losses *losses;
    struct buffer state[POINTS_MAX], clean;     /* the batch's, on the device */
    struct buffer sums;                         /* [LOSS_PARTS_MAX] f64: of the parts */
};

struct variable *pass_weight(const struct pass *pass, enum tensor_role role, int layer, int stage);
struct variable *pass_expert(const struct pass *pass, enum tensor_role role, enum weight_part part, int expert);

/* [rows][hidden] the embedding of the token `shift` after each row's; after the text's end that of token 0, as padding has
 * it. */
struct variable *pass_embedding(const struct pass *pass, int shift);
/* The target's states after its final norm, that a head is judged by. */
struct buffer pass_judge(const struct pass *pass);
/* The target's states that the head reads: head->state[number]; and those after the final norm. */
struct variable *pass_state(const struct pass *pass, int number);
struct variable *pass_final(const struct pass *pass);
/* Attention of the layer's own over x, and its output: turned queries, keys and values of this step are left in qkv[steps]. */
struct variable *pass_attention(const struct pass *pass, struct variable *x, struct variable **qkv, int steps);
/* u + down(silu(gate) up) of norm u */
struct variable *pass_dense(const struct pass *pass, struct variable *u);

/* All texts of the step, which the batch may be a part of. */
const struct train_whole *pass_whole(const struct pass *pass);
/* Rows and what they count: row i with mask of i + mask_shift is judged by the target's row i + target_shift, weight 1; the
 * mask of a text's last token is 0. NULL arrays: no memory. */
struct rows_judged {
    int *target_row;
    float *weight;
    double count;           /* how many there are in the whole step */
};
int pass_rows(const struct pass *pass, int mask_shift, int target_shift, struct rows_judged *out);
void rows_weigh(const struct pass *pass, const struct rows_judged *rows, double each);

/* A named part of the loss, and where its sum, 0 so far, is on the device; pass_collect waits for all of them, and puts them
 * into the parts' values. */
int pass_part(const struct pass *pass, const char *name, int number);
struct buffer pass_sum(const struct pass *pass, int part);
int pass_collect(const struct pass *pass);

/* What the target's output head says of each row. */
struct soft_target pass_soft_target(const struct pass *pass);

/* The kinds. Each adds its parts and *total. */
int network_joined(const struct pass *pass);       /* eagle1, jakiro, jakiro_star */
int network_eagle3(const struct pass *pass);
int network_kangaroo(const struct pass *pass);
int network_guesses(const struct pass *pass);       /* medusa, hydra */

#endif
