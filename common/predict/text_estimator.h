/* The acceptance probability of a drafter's tokens in one text. Texts of a task differ in acceptance. If policies of concurrent
 * texts share the estimator of the task, each text has one of its own besides, and each of the two counts by how well it
 * predicted the text's recent outcomes. Otherwise all values are those of the task's estimator, bit by bit. */
#ifndef MOE_PREDICT_TEXT_ESTIMATOR_H
#define MOE_PREDICT_TEXT_ESTIMATOR_H

#include "common/predict/estimator.h"

struct text_estimator {
    struct estimator *task;
    const int *users;                   /* number of texts that may share the task's estimator */
    struct estimator own;               /* learned from the text alone, if the task's is shared */
    /* Recent sums of log(probability by `own` / by the task's) of outcomes, for drafted tokens, and for tokens ahead. */
    double lead, lead_ahead;
};

/* Begins a text. task, users: must outlive the text. */
void text_estimator_begin(struct text_estimator *text, struct estimator *task, const int *users);

/* As in estimator.h. */
void text_estimator_observe(struct text_estimator *text, const struct estimator_signal *signal, bool kept);
double text_estimator_of(const struct text_estimator *text, const struct estimator_signal *signal);
double text_estimator_ahead(const struct text_estimator *text, int depth);

#endif
