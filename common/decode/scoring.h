/* --forecasts: scores every source of forecasts (predict/forecast.h) on every verification, whether anything is prefetched or
 * not: how many of the experts that a layer wanted it had named, and how many it named in vain. Each names up to twice as many
 * experts of a layer as a token wants. The sources learn from the text's own verifications; no prompt teaches them.
 *
 * The clock is stopped meanwhile, but for the routers that a forward asks once more for next-layer. */
#ifndef MOE_DECODE_SCORING_H
#define MOE_DECODE_SCORING_H

#include "common/decode/watch.h"

struct scoring;

/* Fails if the model has no routed experts. */
int scoring_open(struct scoring **out, const struct engine *engine, int draft_length, struct err *err);
void scoring_close(struct scoring **scoring);

struct watch *scoring_watch(struct scoring *scoring);

#endif
