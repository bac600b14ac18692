/* Losses. Each adds to a sum, and its gradient, times `scale`, to that of the value it judges (where that is wanted), at once:
 * so a loss needs no memory of [rows][vocabulary]; logits are made for some rows, used three times, and forgotten.
 *
 * A row that counts is judged by a row of the target's states: target_row[row]; -1: it does not count. weight: what it counts.
 * target_row and weight are read at once; a sum is there when the device has been waited for. */
#ifndef MOE_TRAIN_LOSS_H
#define MOE_TRAIN_LOSS_H

#include <stdint.h>

#include "common/train/tape.h"

struct judged {
    struct variable *out;
    const int *target_row;      /* [out->rows] */
    const float *weight;        /* [out->rows] */
    float scale;
    struct buffer sum;          /* [1] f64 of the device: gets sum over rows of weight * loss */
};

/* The mean over the width of d^2 / 2 where |d| < 1, else |d| - 1/2; d = out - target [..][out->width]. */
int loss_smooth(struct tape *tape, const struct judged *judged, struct buffer target);

/* -sum_v softmax(p)_v log softmax(q)_v, p = states head^T, q = out output^T. The target's logits are made once for all that is
 * judged by them. */
struct soft_target {
    struct buffer states;       /* [..][width] of the device */
    struct variable *head;      /* [vocab][width] the target's output head; stored, or its data */
    /* [words] p is of these words of the vocabulary alone, and a row whose most probable word is not among them does not count;
     * NULL: all */
    const int32_t *word;
    int words;
    struct variable *output;       /* [words][out->width] that q is made with; may be `head` */
};
int loss_soft(struct tape *tape, const struct soft_target *target, const struct judged *judged, int count);

/* -log softmax(out output^T + bias)_label for all rows of `out`; bias may be NULL. */
int loss_hard(struct tape *tape, struct variable *out, struct variable *output, struct variable *bias, const int32_t *label,
              float weight, struct buffer sum);

#endif
