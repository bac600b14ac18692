/* Forecasts the experts of a verification before it begins, from earlier verifications (predict/forecast.h), so that they
 * are read early. Engines make the forecasts by routers and by drafts themselves.
 *
 * A source that reads tokens predicts when all tokens of a verification are known, any other before they are drafted. */
#ifndef MOE_DECODE_FORECASTING_H
#define MOE_DECODE_FORECASTING_H

#include "common/base/text.h"
#include "common/decode/watch.h"
#include "common/session/caching.h"

struct forecasting;

/* Opens the forecasts that the options request; *out is NULL if there is none, or if no experts are cached. Learns from all
 * tokens of the route streams that the options name; appends notes on them to *note. draft_length: the longest draft. */
int forecasting_open(struct forecasting **out, const struct caching_options *options, const struct engine *engine,
                   int draft_length, struct text *note, struct err *err);
void forecasting_close(struct forecasting **forecasting);

struct watch *forecasting_watch(struct forecasting *forecasting);

#endif
