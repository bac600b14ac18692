/* Measures how far an answer under a budget diverges from the model without one: the divergence (divergence.h) of every
 * token, at intervals. Beside the decoder's KV cache the meter has one that no budget has touched. It begins as a copy of
 * the untouched part of the decoder's cache. In a PROBE the model without a budget reads all tokens since the last probe in
 * one forward, and its logits are compared with the decoder's. So a text that no budget touches costs nothing; otherwise
 * each token is read once more: many at a time, or, if requested, before it is emitted, together with all waiting tokens. */
#ifndef MOE_DECODE_METER_H
#define MOE_DECODE_METER_H

#include "common/base/err.h"
#include "common/decode/decode.h"
#include "common/engine/engine.h"

struct meter;

struct meter_reading {
    int tokens;                         /* number of waiting tokens that were measured */
    double divergence;                  /* sum over these tokens, in nats */
    int64_t bytes;                      /* nominal bytes that the probe read */
};

/* Opens a meter. rows: maximum emitted tokens of an iteration. The target must outlive it. */
int meter_open(struct meter **out, const struct engine *target, int rows, struct err *err);
void meter_close(struct meter **meter);

/* Begins a new text of up to `capacity` tokens, prompt included. */
void meter_begin(struct meter *meter, int capacity);

/* Return whether a budget has touched this text; how many tokens wait for a probe; and whether the tokens of one more
 * iteration would fit. */
bool meter_is_running(const struct meter *meter);
int meter_waiting(const struct meter *meter);
bool meter_has_room(const struct meter *meter);

/* Adds tokens and logits of an iteration to the waiting ones. At the first call, all tokens before them count as untouched. */
void meter_add(struct meter *meter, const struct decode_iteration *iteration);

/* Runs a probe. own: the decoder's sequence of the same text. */
int meter_probe(struct meter *meter, const struct sequence *own, struct meter_reading *out, struct err *err);

/* Runs a probe that also reads the rows of an iteration's path, whose tokens are not emitted yet; there must be room for
 * them. May be called again for another path; the divergence of the waiting tokens is reported only once. */
int meter_probe_path(struct meter *meter, const struct sequence *own, const struct decode_iteration *iteration,
                     struct meter_reading *out, struct err *err);
const float *meter_logits(const struct meter *meter, int row);          /* row of the path; valid until the next probe */
int meter_keep(struct meter *meter, int rows, struct err *err);         /* rows: number of rows of the path that were emitted */

#endif
