/* Overlap of the experts of neighbouring tokens of a text, layer by layer.
 *
 *   distinct[l][i]    experts that at least one of `width` consecutive tokens selected, on average over all such windows of
 *                     a text, width = 1, 2, 4, ... 64: what verifying a draft of that many tokens must load (MoE-Spec eq. 3)
 *   common[l][i]      share of a token's experts that were also selected `width` tokens earlier
 *
 * Beside each measurement are two values for tokens that choose independently of each other: alike, with all experts equally
 * likely; independent, with each expert as likely as it was in these texts.
 *
 * Only tokens of the text count, in its order. A text shorter than a width has no windows of that width. Memory: 128 sets of
 * experts per layer for each open text. */
#ifndef MOE_ROUTE_NEIGHBOURS_H
#define MOE_ROUTE_NEIGHBOURS_H

#include <stdint.h>

#include "common/route/analysis.h"

enum { NEIGHBOUR_WIDTHS = 7 };              /* 1, 2, 4, ... 64 */

/* Records `union` and `locality`. Texts that are still open at the end are left out. */
extern const struct analysis_class union_analysis, locality_analysis;

struct neighbour_width {
    int width;
    int64_t windows, pairs;                 /* number of values in the means; 0: no text was long enough, and the means are
                                             * NaN */
    double distinct, distinct_alike, distinct_independent;
    double common, common_alike, common_independent;
};

/* Computes the figures of one layer, from an analysis of these two classes. */
void neighbours_layer(const struct analysis *analysis, int layer, struct neighbour_width out[NEIGHBOUR_WIDTHS]);

#endif
