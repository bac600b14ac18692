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
 * experts a layer for each open text. */
#ifndef MOE_ROUTE_NEIGHBOURS_H
#define MOE_ROUTE_NEIGHBOURS_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/route/put.h"
#include "common/stream/route.h"

enum { NEIGHBOUR_WIDTHS = 7 };              /* 1, 2, 4, ... 64 */

struct neighbours;

int neighbours_open(struct neighbours **out, const struct stream_model *model, struct err *err);
void neighbours_free(struct neighbours **neighbours);

/* Adds a record, whose experts must be in range. neighbours_end ends a text; texts still open are not part of the results. */
int neighbours_add(struct neighbours *neighbours, const struct route_tokens *record, struct err *err);
void neighbours_end(struct neighbours *neighbours, int64_t sequence);

struct neighbour_width {
    int width;
    int64_t windows, pairs;                 /* means are over these; 0: no text was long enough, the means are NaN */
    double distinct, distinct_alike, distinct_independent;
    double common, common_alike, common_independent;
};

int64_t neighbours_tokens(const struct neighbours *neighbours);
int neighbours_layers(const struct neighbours *neighbours);
void neighbours_layer(const struct neighbours *neighbours, int layer, struct neighbour_width out[NEIGHBOUR_WIDTHS]);

/* Write one `union` or `locality` record a layer. */
int neighbours_put_union(const struct neighbours *neighbours, record_put *put, void *context, struct err *err);
int neighbours_put_locality(const struct neighbours *neighbours, record_put *put, void *context, struct err *err);

#endif
