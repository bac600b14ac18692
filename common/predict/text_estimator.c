#include "common/predict/text_estimator.h"

#include <math.h>

#include "common/predict/tasks.h"

static const double lead_min = 6, lead_decay = 0.99;

void text_estimator_begin(struct text_estimator *text, struct estimator *task, const int *users)
{
    *text = (struct text_estimator){.task = task, .users = users, .own = *task};
    estimator_fade(&text->own, TASKS_TAKEN_OVER);
}

static double mix(double lead, double of_task, double own)
{
    const double weight = 1 / (1 + exp(fmin(50, fmax(-50, lead_min - lead))));
    return of_task + weight * (own - of_task);
}

double text_estimator_of(const struct text_estimator *text, const struct estimator_signal *signal)
{
    const double of_task = estimator_of(text->task, signal);
    return *text->users > 1 ? mix(text->lead, of_task, estimator_of(&text->own, signal)) : of_task;
}

double text_estimator_ahead(const struct text_estimator *text, int depth)
{
    const double of_task = estimator_ahead(text->task, depth);
    return *text->users > 1 ? mix(text->lead_ahead, of_task, estimator_ahead(&text->own, depth)) : of_task;
}

static double add_lead(double lead, double of_task, double own, bool kept)
{
    return lead_decay * lead + (kept ? log(own / of_task) : log((1 - own) / (1 - of_task)));
}

void text_estimator_observe(struct text_estimator *text, const struct estimator_signal *signal, bool kept)
{
    if (*text->users > 1) {
        text->lead = add_lead(text->lead, estimator_of(text->task, signal), estimator_of(&text->own, signal), kept);
        if (!signal->before)
            text->lead_ahead = add_lead(text->lead_ahead, estimator_ahead(text->task, signal->depth),
                                        estimator_ahead(&text->own, signal->depth), kept);
        estimator_observe(&text->own, signal, kept);
    }
    estimator_observe(text->task, signal, kept);
}
