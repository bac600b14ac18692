/* Measures the divergence of an answer from a reference: the same model without a budget, or another one with the same
 * tokenizer and vocabulary. The reference reads the prompt and then, iteration by iteration, the emitted tokens, so that the
 * logits of both are for the same text.
 *
 *   divergence   KL(p || q) = sum over tokens of p (ln p - ln q), in nats; p the reference's distribution and q the decoder's,
 *                both the softmax of their logits, before temperature and filters
 *   flip         their likeliest tokens differ, ties to the lower token
 *
 * The reference has its own KV cache, in f32. With the model itself, no budget and keys and values in f32, bits are equal and
 * both measures are 0. */
#ifndef MOE_DECODE_DIVERGENCE_H
#define MOE_DECODE_DIVERGENCE_H

#include "common/base/err.h"
#include "common/decode/watch.h"
#include "common/engine/engine.h"

struct divergence;

/* Opens the watch. reference: "self" or a model file. rows: maximum emitted tokens of an iteration. The target must outlive
 * it. */
int divergence_open(struct divergence **out, const char *reference, const struct engine *target, int rows, struct err *err);
void divergence_close(struct divergence **divergence);

/* Returns the watch that sets `divergence` and `flips` of each iteration. */
struct watch *divergence_watch(struct divergence *divergence);

/* Returns the divergence of two rows of logits [vocab]. */
double divergence_between(const float *reference, const float *own, int vocab);

#endif
