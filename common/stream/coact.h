/* Co-activation streams: what analyses of routes found, a record a layer. Written and read by moe-coact. */
#ifndef MOE_STREAM_COACT_H
#define MOE_STREAM_COACT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/stream/field.h"

struct coact_coverage {
    int layer;                      /* among the layers with a router */
    const char *method;
    int64_t tokens;
    int points;
    const int32_t *budget;          /* [points], ascending */
    const double *mass;             /* [points], 0 to 1 */
    const double *served;           /* [points], 0 to 1 */
};

struct coact_union {
    int layer;
    bool trees;                     /* of `width` nodes, rejected ones included; not runs of consecutive tokens */
    int64_t tokens;
    int points;
    const int32_t *width;           /* [points], ascending */
    const int64_t *windows;         /* [points] that the means are over */
    const double *distinct;         /* [points], NaN: no text was as long */
    const double *independent, *alike;      /* [points] */
};

struct coact_locality {
    int layer;
    int64_t tokens;
    double independent, alike;
    int points;
    const int32_t *distance;        /* [points], ascending */
    const int64_t *pairs;           /* [points] that the means are over */
    const double *common;           /* [points], 0 to 1; NaN: no text was as long */
};

/* Rows of the matrix one after the other, rows and columns in the order of a clustering. */
struct coact_matrix {
    int layer;
    int64_t tokens;
    int points;                     /* experts x experts */
    const int32_t *first, *second;  /* [points] */
    const int64_t *count;           /* [points]; of an expert and itself: tokens that selected it */
    const double *lift;             /* [points]; NaN: one of the two was never selected */
};

struct coact_stats {
    int layer;
    int64_t tokens;
    int used, half;
    double effective, dropped;
    int busiest;
    double busiest_share;
    int pair_first, pair_second;
    int64_t pair_tokens;
    double pair_expected, concentration;        /* NaN: tokens select one expert only */
};

struct coact_reuse {
    int layer;
    int64_t tokens;
    double acceptance, draft_cost;
    int points;
    const int32_t *drafts;          /* [points], ascending; so below */
    const double *distinct, *ratio, *verified, *emitted, *gain, *gain_verified;         /* NaN: no text was as long */
};

struct coact_signal {
    int layer;
    int64_t tokens;
    int points;
    const int32_t *width;           /* [points], ascending; so below */
    const int64_t *windows;
    const double *entropy, *entropy_binomial, *snr, *snr_binomial, *correlation, *change;       /* NaN: cannot be had */
    const double *threshold, *margin, *wrong, *within, *faults, *contradicted;
};

struct coact_drift {
    int layer;
    int64_t pairs;
    double state, growth_mean, growth_max, score_mean, score_max, norm_max, bound;      /* NaN: no layer comes before */
};

extern const struct record_kind coact_coverage_kind, coact_matrix_kind, coact_union_kind, coact_locality_kind,
                                coact_stats_kind, coact_reuse_kind, coact_signal_kind, coact_drift_kind;

#endif
