/* AdamW with decoupled weight decay on every trained tensor (arXiv 1711.05101, as torch.optim.AdamW computes it), after
 * clipping, with a learning rate that rises and falls by the step. Sums have one order, whatever the number of threads. */
#ifndef MOE_TRAIN_OPTIMISER_H
#define MOE_TRAIN_OPTIMISER_H

#include "common/ranks/ranks.h"
#include "common/train/weights.h"

enum clipping {
    CLIP_NONE,
    CLIP_ELEMENT,       /* each element of the gradient to -bound .. bound */
    CLIP_NORM           /* the whole gradient times min(1, bound / (norm + 1e-6)) */
};
enum schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_LINEAR,    /* rate (1 - x) */
    SCHEDULE_COSINE     /* rate (1 + cos(pi x)) / 2; x from 0 after the warm-up to 1 at the last step */
};

struct optimiser_settings {
    double rate, beta1, beta2, epsilon, decay;
    enum clipping clipping;
    double bound;
    enum schedule schedule;
    int64_t warmup, steps;      /* the rate rises from 0 over the first `warmup` steps */
};

/* As the originals train heads of a kind; rate, warmup and steps are left 0. */
void optimiser_defaults(struct optimiser_settings *out, enum head_kind kind);

double optimiser_rate(const struct optimiser_settings *settings, int64_t step);     /* step from 0 on */

struct optimiser_report {
    double rate, norm;          /* norm of the gradient before clipping */
    int64_t clipped;            /* elements that were cut, or all of them where the norm was */
};

/* Sums over gradients are of blocks of so many elements, added up in their order. */
enum { OPTIMISER_BLOCK = LEARN_BLOCK };

/* Where several processes make the step together: the gradients of this one's piece, floats cut[rank] .. cut[rank + 1] - 1 of
 * the weights (ranks.h), cut at multiples of a block. Its moments are the process's alone. */
struct gradient_piece {
    struct ranks *ranks;
    const size_t *cut;
    float *gradient;                /* in memory of the host; NULL: those that there are */
};

/* Step number `step`, from 0 on, with the gradients that there are, or with those of a piece; they are 0
 * afterwards. With pieces all have all new weights, and the same bytes as one process. A gradient that is no finite number is
 * an error, before anything is changed. */
int optimiser_step(const struct optimiser_settings *settings, struct weights *weights, int64_t step,
                   struct optimiser_report *out, struct err *err);
int optimiser_step_piece(const struct optimiser_settings *settings, struct weights *weights, int64_t step,
                         const struct gradient_piece *piece, struct optimiser_report *out, struct err *err);

#endif
