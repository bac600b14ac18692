/* What one process does of a step of training that several make together (common/ranks).
 *
 * A step is cut into parts, batches of some of its texts. Part p is computed by process p mod size, in round p / size; after
 * each round the gradients of its parts are added to those before, in their order: ((part 0 + part 1) + part 2) + ..,
 * whatever the number of processes, and the same parts give the same bytes. Each process gets the sum for its own piece of the
 * weights alone, whose moments it keeps; it makes the optimiser's step there, and hands the new weights to the others. */
#ifndef MOE_TRAIN_SHARE_H
#define MOE_TRAIN_SHARE_H

#include "common/ranks/ranks.h"
#include "common/train/batch.h"
#include "common/train/network.h"
#include "common/train/optimiser.h"

/* What became of a part. */
struct share_report {
    struct losses losses;
    int64_t tokens;
};

struct share {
    struct ranks *ranks;
    struct weights *weights;
    size_t *cut;                    /* [size + 1] which floats of the weights are whose */
    float *sum;                     /* of this process's piece, where a step has several rounds; NULL: not needed so far */
    struct share_report *report;    /* [size][rounds] of a step's parts */
    size_t report_room;
    int parts;                      /* of the step at work */
};

/* ranks and weights stay. */
int share_open(struct share **out, struct ranks *ranks, struct weights *weights, struct err *err);
void share_close(struct share **share);

/* Each process has `each` bytes of an array, one after the other; afterwards all have all. */
int share_equal(struct share *share, void *data, size_t each, struct err *err);

/* Of `texts` texts each process has looked at those of its number, and of those `size` further on: their tokens are in
 * tokens[text], what losses are divided by in *whole. Afterwards each has all of both. */
int share_measures(struct share *share, int32_t *tokens, int texts, struct train_whole *whole, struct err *err);

int share_begin(struct share *share, int parts, struct err *err);       /* a step */
/* The part of this process in a round; -1: it has none. */
int share_part(const struct share *share, int round);
/* After a round: adds its gradients, those of weights->gradient, to the sum. What is there is 0 afterwards, until the last. */
int share_end_round(struct share *share, int round, const struct share_report *own, struct err *err);
/* All parts' losses and tokens, added up in their order. */
int share_total(struct share *share, struct losses *losses, int *tokens, struct err *err);

/* The piece of this process with its gradients, after the last round, for optimiser_step. */
struct gradient_piece share_piece(const struct share *share);

/* Weights and moments of process 0 to all; all moments to process 0. */
int share_scatter(struct share *share, struct err *err);
int share_gather(struct share *share, struct err *err);

/* Cuts texts into `parts`, at most as many as texts, of about equally many tokens: part[text]. None is empty. load: [parts]
 * scratch. */
void share_balance(const int32_t *tokens, int texts, int parts, int64_t *load, int *part);

#endif
