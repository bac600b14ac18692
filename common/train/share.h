/* The share of one process in a training step that several processes make together (common/ranks).
 *
 * A step is divided into parts: batches of some of its texts. Process p mod size computes part p, in round p / size. After each
 * round the gradients of its parts are added to the sum so far, in order: ((part 0 + part 1) + part 2) + .. So the same parts
 * give the same bytes with any number of processes. Each process receives the sum for its own piece of the weights only and
 * keeps the moments of that piece; it makes the optimiser's step there and sends the new weights to all. */
#ifndef MOE_TRAIN_SHARE_H
#define MOE_TRAIN_SHARE_H

#include "common/ranks/ranks.h"
#include "common/train/batch.h"
#include "common/train/network.h"
#include "common/train/optimiser.h"

/* Result of one part. */
struct share_report {
    struct losses losses;
    int64_t tokens;
};

struct share {
    struct ranks *ranks;
    struct weights *weights;
    size_t *cut;                    /* [size + 1] bounds of the pieces of the weights, in floats */
    float *sum;                     /* gradients of this process's piece if a step has several rounds; NULL until needed */
    struct share_report *report;    /* [size][rounds] of a step's parts */
    size_t report_room;
    int parts;                      /* number of parts in the current step */
};

/* Opens a share; ranks and weights must outlive the share. */
int share_open(struct share **out, struct ranks *ranks, struct weights *weights, struct err *err);
void share_close(struct share **share);

/* Gathers `each` bytes of every process in all processes, in order of rank. */
int share_equal(struct share *share, void *data, size_t each, struct err *err);

/* Exchanges the token counts of all texts. Process r passes those of texts r, r + size, ... in tokens[text], and their divisors
 * of the losses in *whole. Afterwards each process has the counts of all texts. */
int share_measures(struct share *share, int32_t *tokens, int texts, struct train_whole *whole, struct err *err);

int share_begin(struct share *share, int parts, struct err *err);       /* Begins a step. */
/* Returns the part of this process in a round; -1 if none. */
int share_part(const struct share *share, int round);
/* Ends a round: adds weights->gradient to the sum and zeroes weights->gradient, except in a step of one round. */
int share_end_round(struct share *share, int round, const struct share_report *own, struct err *err);
/* Adds up losses and tokens of all parts, in order. */
int share_total(struct share *share, struct losses *losses, int *tokens, struct err *err);

/* Returns the piece of this process with its gradients for optimiser_step_piece; must be called after the last round. */
struct gradient_piece share_piece(const struct share *share);

/* Sends weights and moments of process 0 to all processes; collects all moments in process 0. */
int share_scatter(struct share *share, struct err *err);
int share_gather(struct share *share, struct err *err);

/* Divides texts into `parts` parts (at most one part per text) with about equal numbers of tokens and stores the part of each
 * text in part[text]. No part is empty. load: [parts] scratch. */
void share_balance(const int32_t *tokens, int texts, int parts, int64_t *load, int *part);

#endif
