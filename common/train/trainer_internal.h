/* The state of a trainer. Private to train/. */
#ifndef MOE_TRAIN_TRAINER_INTERNAL_H
#define MOE_TRAIN_TRAINER_INTERNAL_H

#include "common/base/text.h"
#include "common/train/trainer.h"

struct trainer {
    struct trainer_setup setup;
    struct tape *tape;
    struct train_batch batch;
    struct text names;              /* names of the batch's texts, for messages */
    const struct train_source *source;      /* source in use: the training texts, or validation texts */
    bool learning;                  /* training: with gradients and noise; false: validation */
    int64_t *index;                 /* [settings.batch] indices of the step's texts in the source */
    int texts;                      /* number of texts in the step */
    int32_t *tokens;                /* [texts] tokens of each */
    int64_t *before;                /* [texts] rows of the step before each text, whichever part it belongs to */
    int parts;                      /* number of parts; part p has texts pick[bound[p]] .. pick[bound[p + 1] - 1] of the step */
    int *pick, *bound, *part;       /* [texts], [texts + 1], [texts] scratch */
    struct train_whole whole;
    int32_t *order;                 /* order of the texts in `epoch` */
    int64_t epoch;                  /* the epoch of `order`; -1: none */
    int64_t steps;
    struct train_best best;
};

#endif
