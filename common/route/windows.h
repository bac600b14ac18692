/* Cuts texts into consecutive windows of 1, 2, ... tokens. A window represents a verification that accepts all drafted tokens.
 * Computes for each expert the number of a window's tokens that select it (its activation frequency f), and how well
 * the previous window predicts f.
 *
 * Only tokens of the text count, in its order; an incomplete window at a text's end is dropped. Sequences may interleave.
 * Memory: two bytes for each width, layer and expert of each open text, and 8 x (width + 1) bytes for each width, layer and
 * expert. */
#ifndef MOE_ROUTE_WINDOWS_H
#define MOE_ROUTE_WINDOWS_H

#include <stdint.h>

#include "common/route/analysis.h"

enum { WINDOWS_MAX = 17 };

/* Records `reuse`: MoE-SpAc eq. 13 to 18, for drafts of up to setup->draft_length tokens; and `signal`: eq. 19 to 22, for
 * windows of up to one token more. Windows of one token use the threshold 0.5, as in the paper. */
extern const struct analysis_class reuse_analysis, signal_analysis;

/* The functions below take an analysis of these two classes. */

/* The figures of one layer and width. Means are over experts, and NaN if no expert qualifies. */
struct window_facts {
    int64_t windows, pairs;             /* pairs: number of pairs of consecutive windows */
    double distinct;                    /* distinct experts per window */
    double entropy, entropy_binomial;   /* entropy of f in bits; the same for independent tokens */
    double snr, snr_binomial;           /* mean of f divided by its standard deviation, of experts whose f varies */
    double correlation;                 /* correlation of f in a window and in the next one, over all experts */
    double change;                      /* sum of |next f - f| divided by the sum of f: 0 no change, 2 all experts change */
};
void windows_layer(const struct analysis *analysis, int layer, int width, struct window_facts *out);

/* Judges the previous window's f as the estimate of f, for decisions by a threshold. Shares of all experts and pairs of
 * windows. */
struct window_faults {
    double wrong;                       /* the estimate differs from f */
    double margin;                      /* mean of |f - threshold| */
    double within;                      /* the estimate is wrong by at most the margin */
    double faults;                      /* estimate and f lead to different decisions */
    double contradicted;                /* a fault although within the margin (contradicts eq. 22) */
};
void windows_faults(const struct analysis *analysis, int layer, int width, double threshold, struct window_faults *out);

int windows_max(const struct analysis *analysis);               /* returns the largest width */

/* Returns f of the first text's first windows, at most `experts` of them: [experts][experts], one row for each expert; *count:
 * the number of windows. Only widths 1 and max are kept. */
const uint8_t *windows_map(const struct analysis *analysis, int layer, int width, int *count);

#endif
