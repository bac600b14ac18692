/* Forecasts which experts the next forward will select, before its routers do: for prefetching, cache eviction, and costs of
 * trees. One small interface over plain arrays; each source has a line in the table of sources, and its forecasts are
 * compared with the selected experts.
 *
 *   popular      how often texts selected an expert so far
 *   last         the experts of the last token of the text
 *   table        the experts that a token id selected in texts so far (as in a table of moe-profile), for each coming token
 *   pairs        how often texts selected an expert directly after a token with each of the last token's experts, in the
 *   same
 *                layer
 *   utility      Algorithm 1 of MoE-SpAc as printed (cache/utility_rule.h): the level of each expert
 *   draft        routes of the draft phase, for the tokens that it processed
 *   next-layer   the next layer's router, applied to this layer's state
 *
 * The caller provides the last two (`drafted`, `ahead`), because they need states; the others follow from routes alone. */
#ifndef MOE_PREDICT_FORECAST_H
#define MOE_PREDICT_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct forecast_setup {
    int layers, experts, top_k;         /* layers: number of layers with experts */
    int vocab;
    int draft_length;                   /* gamma, for utility */
};

struct forecast_facts {                 /* facts of the coming forward; arrays are valid during the call */
    const int32_t *token;               /* [tokens] root first */
    int tokens;
    const int16_t *drafted;             /* [tokens][layers][top_k] experts in the draft phase; -1: token not processed; NULL:
                                         * none */
    const int16_t *ahead;               /* [tokens][top_k] experts of the layer to predict; NULL: none */
};

struct forecast_outcome {               /* routes of a finished forward */
    const int32_t *token;               /* [tokens] */
    const uint8_t *kept;                /* [tokens] 1: the token is part of the text; NULL: all are */
    const int16_t *expert;              /* [tokens][layers][top_k] selected experts, -1: none */
    int tokens;
};

struct forecast { const struct forecast_class *class; };    /* first member of every source */

struct forecast_class {
    const char *name, *summary;
    bool reads_tokens;                  /* the source reads the tokens of the coming forward */
    bool levels;                        /* scores are integers; experts are fetched in descending order of score */
    int (*open)(struct forecast **out, const struct forecast_setup *setup, struct err *err);
    void (*begin)(struct forecast *forecast);                                           /* begins a new text; NULL: no-op */
    /* Sets score[experts] of a layer: experts with a higher score are expected sooner; 0: no forecast for the expert. */
    void (*expect)(struct forecast *forecast, int layer, const struct forecast_facts *facts, float *score);
    void (*learn)(struct forecast *forecast, const struct forecast_outcome *outcome);   /* NULL: the source does not learn */
    void (*free)(struct forecast *forecast);
};
extern const struct forecast_class *const forecast_classes[];           /* all sources, NULL after the last */
enum { FORECASTS_MAX = 8 };             /* of them */

int forecast_open(struct forecast **out, const char *name, const struct forecast_setup *setup, struct err *err);
void forecast_close(struct forecast **forecast);

/* Stores the experts with the highest scores above 0, best first, at most `max`; of equal scores the lower number first.
 * Returns their number. */
int forecast_name(int32_t *expert, const float *score, int experts, int max);

/* Quality of forecasts: recall is right / wanted; named - right is the number of wasted prefetches. */
struct forecast_score { int64_t wanted, named, right; };
void forecast_score_add(struct forecast_score *score, const int32_t *named, int count, const int32_t *wanted, int wants);
double forecast_recall(const struct forecast_score *score);             /* NaN: no expert was selected */
double forecast_wasted_bytes(const struct forecast_score *score, double expert_bytes);

#endif
