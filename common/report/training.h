/* What train streams show (stream/train.h): how losses fell, how many guesses are right, and how much runs of one kind of head
 * differ, as tables and as curves in SVG that are drawn from the same points.
 *
 *   run     one a stream: steps, tokens, time, loss at the beginning and at the end
 *   part    the same of each part of the loss
 *   eval    one an evaluation: acceptance by position, tokens per iteration
 *   spread  of runs of one kind of head: mean, least and greatest of what their best evaluations say
 *   curve   (JSON alone) loss, its parts, learning rate and length of the gradient, each point a mean of some steps
 *
 * Beginning and end are 100 steps each, or halves of fewer than 200. */
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
    double acceptance[TRAINING_POSITIONS];          /* of position i + 1; NaN: not tried */
    bool best;
};

struct training {
    char *name, *arch;                  /* of the stream; of the head */
    double parameters;
    int planned;                        /* steps */
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

/* Reads a train stream to its end, as one more. */
int trainings_read(struct trainings *all, struct reader *in, struct err *err);
void trainings_free(struct trainings *all);         /* and back to {0} */

/* Fills a figure, to be written by figure_write, or drawn here; freed by figure_free before the trainings are. */
int training_report(struct figure *out, const struct trainings *all, struct err *err);
int training_svg(const struct figure *report, struct text *out, struct err *err);

#endif
