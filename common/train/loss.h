/* Losses of draft heads. Each function adds a loss to a sum on the device and at once adds its gradient, times `scale`, to the
 * gradient of the judged value, if that value has one. So no loss needs memory for [rows][vocabulary]: logits are computed for
 * a chunk of rows, used for loss and gradient, and overwritten.
 *
 * Row i of the judged value is compared with row target_row[i] of the target's states; -1: row i does not count. weight[i] is
 * the factor of row i in the sum. target_row and weight are read during the call; a sum is complete once the device has been
 * waited for. */
#ifndef MOE_TRAIN_LOSS_H
#define MOE_TRAIN_LOSS_H

#include <stdint.h>

#include "common/train/tape.h"
/* One value with what its loss needs. */

struct judged {
    struct variable *out;
    const int *target_row;      /* [out->rows] */
    const float *weight;        /* [out->rows] */
    float scale;
    struct buffer sum;          /* [1] f64 on the device: the sum over rows of weight * loss is added */
};

/* Adds the smooth L1 loss, mean over the width: d^2 / 2 where |d| < 1, else |d| - 1/2; d = out - target. target:
 * [..][out->width]. */
int loss_smooth(struct tape *tape, const struct judged *judged, struct buffer target);

/* Cross-entropy with the target's distribution: -sum_v softmax(p)_v log softmax(q)_v, with logits p = states head^T and q = out
 * output^T. The target's logits are computed once for all judged values. */
struct soft_target {
    struct buffer states;       /* [..][width] on the device */
    struct variable *head;      /* [vocab][width] the target's output head, as a stored matrix or as f32 data */
    /* [words] restricts p to these ids of the vocabulary; a row whose most probable token is not among them does not count.
     * NULL: all ids */
    const int32_t *word;
    int words;
    struct variable *output;       /* [words][out->width] the output head that q is computed with; may be `head` */
};
/* Adds the cross-entropy with the target's distribution. judged: [count], at most 16 values. */
int loss_soft(struct tape *tape, const struct soft_target *target, const struct judged *judged, int count);

/* Adds the cross-entropy with labels: -log softmax(out output^T + bias)_label, over all rows of `out`, each times `weight`.
 * label: [rows of out]; bias may be NULL. */
int loss_hard(struct tape *tape, struct variable *out, struct variable *output, struct variable *bias, const int32_t *label,
              float weight, struct buffer sum);

#endif
