/* The figures of a report, computed from measurements: one row per task and setting, and one per setting over all tasks.
 *
 * Every figure is a plain function of records in the stream; summary_columns says what each means, and defines the columns
 * of table, CSV and JSON. A figure that is not available (no drafts, nothing to compare with) is NaN. */
#ifndef MOE_REPORT_SUMMARY_H
#define MOE_REPORT_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/report/measurements.h"
#include "common/report/stats.h"
#include "common/stream/decode.h"

enum { SUMMARY_POSITIONS = 64, SUMMARY_BINS = 10, SUMMARY_COLUMNS = 96 };

struct summary_row {
    int task;                           /* index in measurements.tasks; -1: all */
    int setting;
    double prompts, samples, tokens, steps;
    double tokens_per_s, ratio, ratio_low, ratio_high, ratio_median, ceiling;
    int best_static;                    /* fastest static, lossless setting that this one is compared with; -1: none */
    double best_ratio, best_ratio_low, best_ratio_high;
    double acceptance_length, tokens_per_step, drafts, draft_tokens, accepted_tokens;
    double ttft_ms_mean, ttft_ms_median, ttft_ms_p99;
    double tpot_ms_mean, tpot_ms_median, tpot_ms_p99;
    double itl_ms_mean, itl_ms_median, itl_ms_p99;
    double texts_per_forward, experts_per_forward, texts_per_s, goodput;
    double experts_per_layer, bytes_per_step, bandwidth, bandwidth_share;
    double identical, compared, correct, graded, correct_share, correct_deviation, scored, score, score_deviation;
    unsigned rules;                     /* set of enum grade_rule that graded answers (grade_rules_cell) */
    double trials, trials_kept, bound, bound_common_noise;
    /* Tokens with an acceptance probability by their drafter, and by the policy. error: expected calibration error; noise:
     * the error that right probabilities would show by chance. */
    double stated, stated_brier, stated_error, stated_noise;
    double estimated, estimated_brier, estimated_error, estimated_noise;
    double reliability_tokens[SUMMARY_BINS], reliability_predicted[SUMMARY_BINS], reliability_kept[SUMMARY_BINS];
    double divergence, divergence_low, divergence_high, flips, flips_low, flips_high, reconstruction;
    int positions;                      /* valid elements of the arrays below */
    double accepted_per_pos[SUMMARY_POSITIONS];     /* share of drafts with at least this many accepted tokens, from 1 on */
    double trials_per_pos[SUMMARY_POSITIONS];       /* tokens at this position that were tried and whose bound is known */
    double kept_per_pos[SUMMARY_POSITIONS];         /* share of them that was kept */
    double bound_per_pos[SUMMARY_POSITIONS];        /* mean of their bounds */
    int drafters;                       /* valid elements of the arrays below; 0: not several drafters */
    double drafter_steps[DECODE_DRAFTERS_MAX];             /* calls of each */
    double drafter_share[DECODE_DRAFTERS_MAX];             /* share of the accepted tokens that are its own */
    double drafter_acceptance[DECODE_DRAFTERS_MAX];        /* share of its verified tokens that were accepted */
    double drafter_us_per_step[DECODE_DRAFTERS_MAX];
    double figure[SUMMARY_COLUMNS];     /* values of the columns that have no member: element i of summary_columns[i] */
};

/* The sum `numerator` over the total of the sums `below`; without `below` the sum itself. Sums are numbered as in summary.c.
 * NaN if the sums `needs` are all 0. */
struct summary_quotient { int numerator, below[2], needs[2]; };

struct summary_column {
    const char *key, *meaning;
    size_t offset;                      /* offset of a double in struct summary_row; 0: the value is in `figure` */
    struct summary_quotient quotient;   /* numerator 0: the column is not a quotient */
};
extern const struct summary_column summary_columns[];       /* ends with key NULL */
double summary_value(const struct summary_row *row, const struct summary_column *column);

struct summary {
    struct summary_row *rows;           /* by task in order of appearance, then all tasks; within a task by setting */
    size_t count, room;
};

/* Computes all rows from arranged measurements. */
int summary_make(struct summary *out, const struct measurements *all, struct err *err);
void summary_free(struct summary *summary);

/* Collects the prompts that ran under both settings, with tokens and seconds of iterations as in tokens_per_s, in
 * pairs[count], and the ascending indices of these prompts in prompts[count] (may be NULL). Both must have room for
 * all->prompts. */
int summary_pairs(const struct measurements *all, int setting, int reference, struct stats_pair *pairs, int *prompts,
                  size_t *count, struct err *err);

/* Counts the samples of a setting whose prompt also ran under the reference, and those whose token ids and text are equal. */
void summary_outputs(const struct measurements *all, int setting, int reference, size_t *compared, size_t *identical);

#endif
