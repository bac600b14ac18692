/* Co-activation streams: results of analyses of routes, one record per layer. Written and read by moe-coact. */
#ifndef MOE_STREAM_COACT_H
#define MOE_STREAM_COACT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/stream/field.h"

struct coact_coverage {
    int layer;                      /* index among the MoE layers */
    const char *method;
    int64_t tokens;
    int points;
    const int32_t *budget;          /* [points], ascending */
    const double *mass;             /* [points], 0 to 1 */
    const double *served;           /* [points], 0 to 1 */
};

struct coact_union {
    int layer;
    bool trees;                     /* windows are trees of `width` nodes, including rejected ones; else runs of consecutive
                                     * tokens */
    int64_t tokens;
    int points;
    const int32_t *width;           /* [points], ascending */
    const int64_t *windows;         /* [points] number of windows averaged */
    const double *distinct;         /* [points] NaN: no text was long enough */
    const double *independent, *alike;      /* [points] */
};

struct coact_locality {
    int layer;
    int64_t tokens;
    double independent, alike;
    int points;
    const int32_t *distance;        /* [points], ascending */
    const int64_t *pairs;           /* [points] number of pairs averaged */
    const double *common;           /* [points] 0 to 1; NaN: no text was long enough */
};

/* The co-activation matrix, row by row; rows and columns are in the order of a clustering. */
struct coact_matrix {
    int layer;
    int64_t tokens;
    int points;                     /* experts x experts */
    const int32_t *first, *second;  /* [points] */
    const int64_t *count;           /* [points]; on the diagonal: tokens that selected the expert */
    const double *lift;             /* [points]; NaN: one of the two experts was never selected */
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
    double pair_expected, concentration;        /* NaN: each token selects one expert only */
};

struct coact_reuse {
    int layer;
    int64_t tokens;
    double acceptance, draft_cost;
    int points;
    const int32_t *drafts;          /* [points], ascending; [points] also below */
    const double *distinct, *ratio, *verified, *emitted, *gain, *gain_verified;         /* NaN: no text was long enough */
};

struct coact_signal {
    int layer;
    int64_t tokens;
    int points;
    const int32_t *width;           /* [points], ascending; [points] also below */
    const int64_t *windows;
    const double *entropy, *entropy_binomial, *snr, *snr_binomial, *correlation, *change;       /* NaN: not available */
    const double *threshold, *margin, *wrong, *within, *faults, *contradicted;
};

struct coact_drift {
    int layer;
    int64_t pairs;
    double state, growth_mean, growth_max, score_mean, score_max, norm_max, bound;      /* NaN: there is no layer before */
};

extern const struct record_kind coact_coverage_kind, coact_matrix_kind, coact_union_kind, coact_locality_kind,
                                coact_stats_kind, coact_reuse_kind, coact_signal_kind, coact_drift_kind;

#endif
