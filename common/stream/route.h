/* Route streams: the experts chosen for every token, their weights, and the token's position in its text.
 *
 * Written by moe-profile and by moe-decode --record route; read by moe-coact. Each sequence has a begin record, one record
 * per forward, and an end record; sequences may interleave. For a model without experts the records contain tokens and other
 * requested data (logits, hidden states), but no experts. */
#ifndef MOE_STREAM_ROUTE_H
#define MOE_STREAM_ROUTE_H

#include <stdint.h>

#include "common/stream/field.h"

struct route_begin {
    int64_t sequence;
    const char *id, *task;
    int prompt_tokens;
    const float *correction;        /* [moe_layers][experts], NULL: the router has none, or probs were not recorded */
};

enum route_phase { PHASE_PROMPT, PHASE_DECODE, PHASE_VERIFY };

struct route_tokens {
    int64_t sequence;
    int pos, n;
    int phase;                      /* enum route_phase */
    const int32_t *tokens;          /* [n] */
    const int32_t *parents;         /* [n], NULL: a chain */
    const uint8_t *accepted;        /* [n], NULL: all */
    const int16_t *experts;         /* [n][moe_layers][top_k], -1: a dropped slot; NULL: the model has no experts */
    const float *weights;           /* [n][moe_layers][top_k], or NULL */
    const double *mass;             /* [moe_layers][experts], NULL: not recorded */
    const float *probs;             /* [n][moe_layers][experts]; this and the next two: NULL if not recorded */
    const float *logits;            /* [n][vocab] */
    const float *hidden;            /* [n][layers][hidden] */
};

struct route_end { int64_t sequence; };

extern const struct record_kind route_begin_kind, route_tokens_kind, route_end_kind;

#endif
