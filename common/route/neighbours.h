/* What tokens that are next to each other in a text have in common, layer by layer.
 *
 *   distinct[l][i]    experts that at least one of `width` consecutive tokens selected, on average over all such windows of
 *                     a text, width = 1, 2, 4, ... 64: what verifying a draft of that many tokens must load (MoE-Spec eq. 3)
 *   common[l][i]      share of a token's experts that the token `width` before it selected, too
 *
 * Next to what was measured comes what independence would give: alike, when all experts are equally likely and tokens
 * choose independently of each other; independent, when each expert is as likely as it was here.
 *
 * Tokens are those that are part of the text, in its order. A text shorter than a width has no such windows. Memory: 128
 * sets of experts a layer for each text that is open. */
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

/* Experts must be in range. A text ends with neighbours_end; what is still open is left out by the results. */
int neighbours_add(struct neighbours *neighbours, const struct route_tokens *record, struct err *err);
void neighbours_end(struct neighbours *neighbours, int64_t sequence);

struct neighbour_width {
    int width;
    int64_t windows, pairs;                 /* that the means are over; 0: no text was long enough, and they are NaN */
    double distinct, distinct_alike, distinct_independent;
    double common, common_alike, common_independent;
};

int64_t neighbours_tokens(const struct neighbours *neighbours);
int neighbours_layers(const struct neighbours *neighbours);
void neighbours_layer(const struct neighbours *neighbours, int layer, struct neighbour_width out[NEIGHBOUR_WIDTHS]);

/* A `union` or `locality` record a layer. */
int neighbours_put_union(const struct neighbours *neighbours, record_put *put, void *context, struct err *err);
int neighbours_put_locality(const struct neighbours *neighbours, record_put *put, void *context, struct err *err);

#endif
