/* Experts that verifications will want, named before they begin by what earlier ones of the run wanted (predict/forecast.h), so
 * that they are read early. What routers and drafts say is not asked here: engines forecast these by themselves.
 *
 * A source that looks at tokens is asked when all tokens of a verification are known, any other before they are drafted. */
#ifndef MOE_DECODE_FORECASTING_H
#define MOE_DECODE_FORECASTING_H

#include "common/base/text.h"
#include "common/decode/watch.h"
#include "common/session/caching.h"

struct forecasting;

/* *out is NULL where nothing of that is asked for, or no experts are cached. Of route streams that prefetching names all tokens
 * are learned from; notes on them are appended to *note. draft_length: the longest draft. */
int forecasting_open(struct forecasting **out, const struct caching_options *options, const struct engine *engine,
                   int draft_length, struct text *note, struct err *err);
void forecasting_close(struct forecasting **forecasting);

struct watch *forecasting_watch(struct forecasting *forecasting);

#endif
