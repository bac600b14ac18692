/* Train streams: how a draft head was trained, step by step, and how well it guessed in between, so that every figure and curve
 * of a report can be had again.
 *
 * Written by moe-draft-train, read by moe-bench report. One `run` comes first. */
#ifndef MOE_STREAM_TRAIN_H
#define MOE_STREAM_TRAIN_H

#include <stdint.h>

#include "common/stream/field.h"

struct train_run {
    const char *arch;               /* "eagle1" */
    int64_t parameters;
    int steps;
    const char *options;            /* all of them, as JSON; NULL: not recorded */
};

struct train_step {
    int step;                       /* 0, 1, ... */
    double epoch;
    double loss;
    struct values parts;            /* of the loss, before they are weighted */
    double lr;
    double gradient_norm;           /* before clipping */
    int64_t clipped;                /* elements of the gradient; -1: it is clipped as a whole, or not at all */
    int64_t tokens;
    double seconds;
};

struct train_eval {
    int step;
    int texts;
    double loss;                    /* NaN: not measured; so below */
    int positions;
    const int32_t *position;        /* [positions] */
    const double *acceptance;       /* [positions] */
    const double *conditional;      /* [positions] NULL: not measured */
    const double *begun;            /* [positions] NULL: not measured */
    double tokens_per_iteration, tree_tokens_per_iteration;
    const char *by;                 /* "text"; NULL: not said */
    int64_t tokens, iterations, tree_iterations;        /* -1: not counted */
    bool best;
    double seconds;
};

extern const struct record_kind train_run_kind, train_step_kind, train_eval_kind;

#endif
