/* --forecasts: scores every source of forecasts (predict/forecast.h) in every verification, with or without prefetching: how
 * many of a layer's requested experts the source named, and how many others it named. A source names up to 2 x top_k experts
 * of a layer. Sources learn from the text's verifications, not from prompts.
 *
 * Scoring is not part of the measured times, except for the additional router products for next-layer. */
#ifndef MOE_DECODE_SCORING_H
#define MOE_DECODE_SCORING_H

#include "common/decode/watch.h"

struct scoring;

/* Fails if the model has no routed experts. */
int scoring_open(struct scoring **out, const struct engine *engine, int draft_length, struct err *err);
void scoring_close(struct scoring **scoring);

struct watch *scoring_watch(struct scoring *scoring);

#endif
