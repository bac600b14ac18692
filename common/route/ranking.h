/* In which order to keep each layer's experts: made from counts, written to and read from rank streams.
 *
 *   frequency   how often an expert was selected (MoE-Spec section 3.2, eq. 4)
 *   mass        the routing probability that it got, summed over tokens
 *   coverage, pairs     what it serves together with those in front of it (elimination.h)
 *
 * Best first; of frequency and mass, equal scores go by the expert's number. */
#ifndef MOE_ROUTE_RANKING_H
#define MOE_ROUTE_RANKING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/route/counts.h"
#include "common/route/put.h"
#include "common/stream/reader.h"

enum ranking_method { RANKING_FREQUENCY, RANKING_MASS, RANKING_COVERAGE, RANKING_PAIRS };
extern const char *const ranking_methods[];     /* names in the order of the enum, NULL after the last */

struct ranking {
    int moe_layers, experts;
    char method[32];
    int32_t *budget;            /* [moe_layers]; -1: none recommended */
    int32_t *order;             /* [moe_layers][experts], a permutation of the experts */
    double *score;              /* [moe_layers][experts], of the expert at the same index of order */
};

/* Room for a ranking, without budgets. */
int ranking_open(struct ranking **out, const char *method, int moe_layers, int experts, struct err *err);

/* By frequency or mass. Errors: nothing was counted; mass is asked for and was not recorded. */
int ranking_make(struct ranking **out, const struct route_counts *counts, enum ranking_method method, struct err *err);

/* "12", or "12,8,...", one number a layer: size[layer]. A number above `experts` means all of them, and is
 * noted; note: NULL, or gets a line. */
int budget_parse(int32_t *size, const char *text, int moe_layers, int experts, struct text *note, struct err *err);

/* Recommends for each layer the fewest experts whose scores sum to at least this share, 0 to 1, of the layer's. */
void ranking_recommend(struct ranking *ranking, double share);

/* Recommends budgets that sum to `total`, each at least 1, such that the product over layers of the share of its score that
 * each keeps is the largest: exactly, whatever the curves' shapes. (What a text keeps must pass all layers; a sum would let
 * one layer starve for another.) Errors: a total that layers cannot have. */
int ranking_spread(struct ranking *ranking, int total, struct err *err);

/* A `rank` record a layer. */
int ranking_put(const struct ranking *ranking, record_put *put, void *context, struct err *err);

/* Reads a rank stream to its end: every layer must be there once and all of one method, each order a permutation. */
int ranking_read(struct ranking **out, struct reader *in, struct err *err);

/* May this rank stream be used with the model? As header_same_model. A note, one line, is appended to *note. */
int ranking_check_model(const struct reader *in, const struct stream_model *model, bool force, struct text *note,
                        struct err *err);

void ranking_free(struct ranking **ranking);

#endif
