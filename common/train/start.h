/* The head that training begins with. Its description follows from the target and a few choices, which default to those of the
 * original programs; its weights are initialised as theirs (weights.h). */
#ifndef MOE_TRAIN_START_H
#define MOE_TRAIN_START_H

#include "common/arch/head.h"

struct start_options {
    enum head_kind kind;
    int inner;              /* of the layer's feed-forward network; of jakiro's experts hidden; 0: as the target's */
    int heads, kv_heads;    /* of attention; 0: the target's heads, and as many */
    double theta;           /* of the rotation */
    double epsilon;         /* of norms */
    bool no_bias;           /* eagle1, jakiro, jakiro_star: joint has none */
    int draft_vocab;        /* eagle3; 0: the smaller of 32000 and the target's vocabulary */
    int layers[HEAD_STATES_MAX], layer_count;   /* eagle3: the states after these; 0: its authors' rule */
    int exit_layer;         /* kangaroo: the state after so many layers */
    int guesses, blocks;    /* medusa, hydra */
    bool prefix;            /* hydra */
    int experts, used;      /* jakiro: number of experts, and number of experts in the first branch's sum */
    int second, ahead;      /* jakiro: its second branch (enum head_second), and how many tokens ahead it predicts: 1 or 2 */
    bool scaled;            /* jakiro_star: branches by equation 4 of the paper */
};
extern const struct start_options start_defaults;

/* out: {0}; to be freed by head_reading_free, also after a failure. The words of eagle3 are any. */
int start_head(struct head_reading *out, const struct start_options *options, const struct model *target, struct err *err);

/* The words of eagle3, where it does not know all: the commonest by `count` [vocab], the lowest ids of equal ones. */
int start_words(struct head_params *head, const int64_t *count, struct err *err);

#endif
