/* What a trainer is made of. Private to train/. */
#ifndef MOE_TRAIN_TRAINER_INTERNAL_H
#define MOE_TRAIN_TRAINER_INTERNAL_H

#include "common/base/text.h"
#include "common/train/trainer.h"

struct trainer {
    struct trainer_setup setup;
    struct tape *tape;
    struct train_batch batch;
    struct text names;              /* of the batch's texts */
    const struct train_source *source;      /* of the texts at work: those to learn from, or those to judge by */
    bool learning;                  /* from them: with gradients, and noise */
    int64_t *index;                 /* [settings.batch] which texts the step is made of */
    int texts;                      /* so many */
    int32_t *tokens;                /* [texts] of each */
    int64_t *before;                /* [texts] rows of the step in front of each, whichever part it is in */
    int parts;                      /* of the step: part p is texts pick[bound[p]] .. pick[bound[p + 1] - 1] of it */
    int *pick, *bound, *part;       /* [texts], [texts + 1], [texts] scratch */
    struct train_whole whole;
    int32_t *order;                 /* of the epoch at work */
    int64_t epoch;                  /* that `order` is of; -1: none */
    int64_t steps;
    struct train_best best;
};

#endif
