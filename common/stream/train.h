/* Train streams: the course of training a draft head, step by step, with intermediate evaluations, so that every figure and
 * curve of a report can be recomputed.
 *
 * Written by moe-draft-train, read by moe-bench report. The first record is a `run`. */
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
    struct values parts;            /* parts of the loss, before weighting */
    double lr;
    double gradient_norm;           /* before clipping */
    int64_t clipped;                /* clipped elements of the gradient; -1: clipped as a whole, or not at all */
    int64_t tokens;
    double seconds;
};

struct train_eval {
    int step;
    int texts;
    double loss;                    /* NaN: not measured; this applies also to the following members */
    int positions;
    const int32_t *position;        /* [positions] */
    const double *acceptance;       /* [positions] */
    const double *conditional;      /* [positions] NULL: not measured */
    const double *begun;            /* [positions] NULL: not measured */
    double tokens_per_iteration, tree_tokens_per_iteration;
    const char *by;                 /* "text"; NULL: unknown */
    int64_t tokens, iterations, tree_iterations;        /* -1: not counted */
    bool best;
    double seconds;
};

extern const struct record_kind train_run_kind, train_step_kind, train_eval_kind;

#endif
