/* Reports on train streams (stream/train.h): the loss over time, the share of correct guesses, and the spread between runs
 * of one kind of head, as tables, and as curves in SVG drawn from the same points.
 *
 *   run     one per stream: steps, tokens, time, loss at the beginning and at the end
 *   part    the same for each part of the loss
 *   eval    one per evaluation: acceptance by position, tokens per iteration
 *   spread  of runs of one kind of head: mean, minimum and maximum over their best evaluations
 *   curve   (JSON only) loss, its parts, learning rate and gradient norm; each point is a mean over some steps
 *
 * Beginning and end are 100 steps each, or halves if there are fewer than 200 steps. */
#ifndef MOE_REPORT_TRAINING_H
#define MOE_REPORT_TRAINING_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/figure.h"
#include "common/stream/reader.h"
#include "common/stream/values.h"

enum { TRAINING_PARTS = 8, TRAINING_POSITIONS = 8, TRAINING_WINDOW = 100, TRAINING_POINTS = 200 };

struct training_step {
    int step;
    double epoch, loss, lr, gradient_norm, clipped, tokens, seconds;    /* NaN: not recorded */
    double part[TRAINING_PARTS];
};

struct training_eval {
    int step, texts;
    double loss, tokens_per_iteration, tree_tokens_per_iteration, seconds;
    double acceptance[TRAINING_POSITIONS];          /* at position i + 1; NaN: not tried */
    bool best;
};

struct training {
    char *name, *arch;                  /* name of the stream, kind of the head */
    double parameters;
    int planned;                        /* planned steps */
    char part_name[TRAINING_PARTS][VALUES_KEY];
    int parts;
    struct training_step *steps;
    size_t step_count, step_room;
    struct training_eval *evals;
    size_t eval_count, eval_room;
};

struct trainings {
    struct training *items;
    size_t count, room;
};

/* Reads a train stream to its end and appends it. */
int trainings_read(struct trainings *all, struct reader *in, struct err *err);
void trainings_free(struct trainings *all);         /* *all is {0} afterwards */

/* Fills a figure, which figure_write writes or training_svg draws. It must be freed by figure_free before the trainings. */
int training_report(struct figure *out, const struct trainings *all, struct err *err);
int training_svg(const struct figure *report, struct text *out, struct err *err);

#endif
