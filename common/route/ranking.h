/* Rankings: the order in which each layer's experts are kept. Made from counts, written to and read from rank streams.
 *
 *   frequency   how often an expert was selected (MoE-Spec section 3.2, eq. 4)
 *   mass        the expert's routing probability, summed over tokens
 *   coverage, pairs     what the expert serves together with those ranked before it (elimination.h)
 *
 * Best first. With frequency and mass, experts with equal scores are ordered by their number. */
#ifndef MOE_ROUTE_RANKING_H
#define MOE_ROUTE_RANKING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/route/counts.h"
#include "common/route/put.h"
#include "common/stream/reader.h"

enum ranking_method { RANKING_FREQUENCY, RANKING_MASS, RANKING_COVERAGE, RANKING_PAIRS };
extern const char *const ranking_methods[];     /* names in the order of the enum; ends with NULL */

struct ranking {
    int moe_layers, experts;
    char method[32];
    int32_t *budget;            /* [moe_layers]; -1: none recommended */
    int32_t *order;             /* [moe_layers][experts], a permutation of the experts */
    double *score;              /* [moe_layers][experts], of the expert at the same index of order */
};

/* Allocates a ranking without budgets. */
int ranking_open(struct ranking **out, const char *method, int moe_layers, int experts, struct err *err);

/* Ranks by frequency or mass. Errors: nothing was counted; mass was requested and not recorded. */
int ranking_make(struct ranking **out, const struct route_counts *counts, enum ranking_method method, struct err *err);

/* Parses "12", or "12,8,...", one number per layer, into size[layer]. A number above `experts` means all experts, and
 * appends a line to note, which may be NULL. */
int budget_parse(int32_t *size, const char *text, int moe_layers, int experts, struct text *note, struct err *err);

/* Recommends for each layer the smallest number of experts whose scores sum to at least this share, 0 to 1, of the layer's
 * total. */
void ranking_recommend(struct ranking *ranking, double share);

/* Recommends budgets of at least 1 that sum to `total` and maximise the product over layers of the share of score kept; the
 * maximum is exact for any scores. (A product, because a token passes through all layers: a sum would starve one layer in
 * favour of another.) Errors: a total below moe_layers or above moe_layers x experts. */
int ranking_spread(struct ranking *ranking, int total, struct err *err);

/* Writes one `rank` record per layer. */
int ranking_put(const struct ranking *ranking, record_put *put, void *context, struct err *err);

/* Reads a rank stream to its end. Each layer must occur once, all with one method, and each order must be a permutation. */
int ranking_read(struct ranking **out, struct reader *in, struct err *err);

/* Returns 0 if this rank stream can be used with the model, by the rules of header_same_model. Appends notes, one per line,
 * to *note. */
int ranking_check_model(const struct reader *in, const struct stream_model *model, bool force, struct text *note,
                        struct err *err);

void ranking_free(struct ranking **ranking);

#endif
