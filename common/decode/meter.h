/* How far an answer under a budget is from the model without one: the divergence (divergence.h) of every token, found out at
 * intervals. Beside the decoder's KV cache there is one that no budget has touched. It begins as a copy of the decoder's as far
 * as that was untouched; then a PROBE has the model without a budget read all tokens since the last one, in one forward, and
 * sets its logits against those that the decoder had. So a text that no budget touches costs nothing, and else each token is
 * read once more: many at a time, or, where that is asked for, before it is emitted, with all that wait. */
#ifndef MOE_DECODE_METER_H
#define MOE_DECODE_METER_H

#include "common/base/err.h"
#include "common/decode/decode.h"
#include "common/engine/engine.h"

struct meter;

struct meter_reading {
    int tokens;                         /* that waited */
    double divergence;                  /* nats, summed over them */
    int64_t bytes;                      /* that the probe read, nominal */
};

/* rows: emitted tokens of an iteration, at most. The target stays open longer. */
int meter_open(struct meter **out, const struct engine *target, int rows, struct err *err);
void meter_close(struct meter **meter);

/* A new text, of up to `capacity` tokens with its prompt. */
void meter_begin(struct meter *meter, int capacity);

/* Whether a budget has touched this text; tokens that wait for a probe, and whether those of one more iteration would fit. */
bool meter_is_running(const struct meter *meter);
int meter_waiting(const struct meter *meter);
bool meter_has_room(const struct meter *meter);

/* Keeps tokens and logits of an iteration; the first time, what was before it is what no budget has touched. */
void meter_add(struct meter *meter, const struct decode_iteration *iteration);

/* The probe. own: the decoder's sequence, of the same text. */
int meter_probe(struct meter *meter, const struct sequence *own, struct meter_reading *out, struct err *err);

/* A probe of the rows of an iteration's path, too, whose tokens are not emitted yet; it has room for them. May be called again
 * for another path; what waited is reported once. */
int meter_probe_path(struct meter *meter, const struct sequence *own, const struct decode_iteration *iteration,
                     struct meter_reading *out, struct err *err);
const float *meter_logits(const struct meter *meter, int row);          /* of the path, until the next probe */
int meter_keep(struct meter *meter, int rows, struct err *err);         /* rows: of the path, that were emitted */

#endif
