/* AdamW with decoupled weight decay on every trained tensor (arXiv 1711.05101, computed as torch.optim.AdamW does), after
 * gradient clipping, with a learning-rate schedule. Sums have a fixed order, whatever the number of threads. */
#ifndef MOE_TRAIN_OPTIMISER_H
#define MOE_TRAIN_OPTIMISER_H

#include "common/ranks/ranks.h"
#include "common/train/weights.h"

enum clipping {
    CLIP_NONE,
    CLIP_ELEMENT,       /* limits each element of the gradient to -bound .. bound */
    CLIP_NORM           /* multiplies the whole gradient by min(1, bound / (norm + 1e-6)) */
};
enum schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_LINEAR,    /* rate (1 - x) */
    SCHEDULE_COSINE     /* rate (1 + cos(pi x)) / 2; x: 0 after the warm-up, 1 at the last step */
};

struct optimiser_settings {
    double rate, beta1, beta2, epsilon, decay;
    enum clipping clipping;
    double bound;
    enum schedule schedule;
    int64_t warmup, steps;      /* during the first `warmup` steps the rate rises from 0 */
};

/* Sets the values with which the original programs train heads of a kind; rate, warmup and steps are 0. */
void optimiser_defaults(struct optimiser_settings *out, enum head_kind kind);

double optimiser_rate(const struct optimiser_settings *settings, int64_t step);   /* Returns the learning rate; step: from 0. */

struct optimiser_report {
    double rate, norm;          /* norm: of the gradient before clipping */
    int64_t clipped;            /* elements outside the bound; with CLIP_NORM all elements if the norm was clipped */
};

/* Elements per partial sum: sums over gradients are computed per block and then added in order. */
enum { OPTIMISER_BLOCK = LEARN_BLOCK };

/* The piece of one process if several processes make the step together: floats cut[rank] .. cut[rank + 1] - 1 of the weights
 * (ranks.h); the cuts are multiples of a block. Each process keeps only its own piece's moments. */
struct gradient_piece {
    struct ranks *ranks;
    const size_t *cut;
    float *gradient;                /* gradients of the piece, in host memory; NULL: those in the weights */
};

/* Makes step number `step`, counted from 0, with the gradients of the weights or of a piece, and sets the weights' gradients to
 * 0. With pieces, all processes receive all new weights, with the same bytes as a single process. A gradient that is not finite
 * is an error and leaves everything unchanged. */
int optimiser_step(const struct optimiser_settings *settings, struct weights *weights, int64_t step,
                   struct optimiser_report *out, struct err *err);
int optimiser_step_piece(const struct optimiser_settings *settings, struct weights *weights, int64_t step,
                         const struct gradient_piece *piece, struct optimiser_report *out, struct err *err);

#endif
