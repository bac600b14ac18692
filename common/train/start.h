/* The draft head with which training begins. Its description follows from the target and a few options, which default to the
 * values of the original programs; weights_start (weights.h) initialises its weights as the original programs do. */
#ifndef MOE_TRAIN_START_H
#define MOE_TRAIN_START_H

#include "common/arch/head.h"

struct start_options {
    enum head_kind kind;
    int inner;              /* inner width of the layer's feed-forward network; jakiro: of each expert; 0: as the target's */
    int heads, kv_heads;    /* numbers of attention heads; 0: heads as the target's, kv_heads as heads */
    double theta;           /* base of the rotary position embedding */
    double epsilon;         /* of the norms */
    bool no_bias;           /* eagle1, jakiro, jakiro_star: the joint projection has no bias */
    int draft_vocab;        /* eagle3; 0: the smaller of 32000 and the target's vocabulary */
    int layers[HEAD_STATES_MAX], layer_count;   /* eagle3: reads the states after these layers; 0: the authors' rule */
    int exit_layer;         /* kangaroo: reads the state after this many layers */
    int guesses, blocks;    /* medusa, hydra: number of heads, and blocks per head */
    bool prefix;            /* hydra: has a prefix layer */
    int experts, used;      /* jakiro: number of experts, and number of experts in the first branch's sum */
    int second, ahead;      /* jakiro: its second branch (enum head_second), and how many tokens ahead it predicts: 1 or 2 */
    bool scaled;            /* jakiro_star: scales the branches by equation 4 of the paper */
};
extern const struct start_options start_defaults;

/* Describes the head. *out must be {0}; the caller frees it with head_reading_free, also after a failure. The draft vocabulary
 * of eagle3 has the right size, but any ids. */
int start_head(struct head_reading *out, const struct start_options *options, const struct model *target, struct err *err);

/* Selects the draft vocabulary of eagle3, if it is smaller than the target's: the most frequent ids by count[vocab], the lower
 * id first among equals. */
int start_words(struct head_params *head, const int64_t *count, struct err *err);

#endif
