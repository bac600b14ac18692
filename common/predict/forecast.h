/* Forecasts which experts the next forward will select, before its routers do: for prefetching, keeping, and costs of trees.
 * One small interface over plain arrays; each source is a line of the table, and each is scored against what was wanted.
 *
 *   popular      how often texts wanted an expert so far
 *   last         the experts of the last token of the text
 *   table        those that texts wanted with a token so far, by its id (a table from moe-profile): of each token to come
 *   pairs        how often texts wanted an expert right after a token with each of the last token's experts, in the same layer
 *   utility      Algorithm 1 of MoE-SpAc as printed (cache/utility_rule.h): the level of each expert
 *   draft        routes that the draft phase had, of the tokens that it went through
 *   next-layer   the next layer's router on this layer's state
 *
 * The last two are handed over by who has states (`drafted`, `ahead`), the others follow from routes alone. */
#ifndef MOE_PREDICT_FORECAST_H
#define MOE_PREDICT_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct forecast_setup {
    int layers, experts, top_k;         /* layers with experts */
    int vocab;
    int draft_length;                   /* gamma, for utility */
};

struct forecast_facts {                 /* of the forward to come; arrays hold during the call */
    const int32_t *token;               /* [tokens] the root first */
    int tokens;
    const int16_t *drafted;             /* [tokens][layers][top_k] -1: the draft phase did not go through it; NULL: nothing */
    const int16_t *ahead;               /* [tokens][top_k] of the layer to predict; NULL: nothing */
};

struct forecast_outcome {               /* of a forward that was */
    const int32_t *token;               /* [tokens] */
    const uint8_t *kept;                /* [tokens] part of the text; NULL: all */
    const int16_t *expert;              /* [tokens][layers][top_k], -1: none */
    int tokens;
};

struct forecast { const struct forecast_class *class; };    /* what all sources begin with */

struct forecast_class {
    const char *name, *summary;
    bool reads_tokens;                  /* it looks at the tokens of the forward to come */
    bool levels;                        /* scores are whole numbers, by which what is named is fetched, the highest first */
    int (*open)(struct forecast **out, const struct forecast_setup *setup, struct err *err);
    void (*begin)(struct forecast *forecast);                                           /* a new text; NULL: all the same */
    /* score[experts] of a layer: the higher, the sooner it is wanted; 0: it says nothing of this one. */
    void (*expect)(struct forecast *forecast, int layer, const struct forecast_facts *facts, float *score);
    void (*learn)(struct forecast *forecast, const struct forecast_outcome *outcome);   /* NULL: it does not */
    void (*free)(struct forecast *forecast);
};
extern const struct forecast_class *const forecast_classes[];           /* all, NULL after the last */
enum { FORECASTS_MAX = 8 };             /* of them */

int forecast_open(struct forecast **out, const char *name, const struct forecast_setup *setup, struct err *err);
void forecast_close(struct forecast **forecast);

/* The experts of the highest scores above 0, best first, at most `max` of them; equal ones go by number. How many. */
int forecast_name(int32_t *expert, const float *score, int experts, int max);

/* Quality of forecasts: recall is right / wanted; named - right is the number of wasted prefetches. */
struct forecast_score { int64_t wanted, named, right; };
void forecast_score_add(struct forecast_score *score, const int32_t *named, int count, const int32_t *wanted, int wants);
double forecast_recall(const struct forecast_score *score);             /* NaN: nothing was wanted */
double forecast_wasted_bytes(const struct forecast_score *score, double expert_bytes);

#endif
