/* Feature streams: texts with a model's hidden states after some of its layers, for training draft heads.
 *
 * Written by moe-profile features; read by moe-draft-train. Each sequence is a text: a begin record, then records with
 * pieces of it in order, from its first token to its last, and an end record before the next text begins. */
#ifndef MOE_STREAM_FEATURE_H
#define MOE_STREAM_FEATURE_H

#include <stdint.h>

#include "common/stream/field.h"

struct feature_begin {
    int64_t sequence;
    const char *id, *task;
    int prompt_tokens;              /* tokens before the first answer */
    int text_tokens;                /* tokens of the whole text; the following records contain this many */
    bool validation;                /* used for validation, not for training */
};

struct feature_states {
    int64_t sequence;
    int pos, n;
    const int32_t *tokens;          /* [n] */
    const uint8_t *mask;            /* [n] 1: part of an answer, to be learnt */
    int points;
    const int32_t *point;           /* [points] N: the residual stream after layer N; number of layers: after the final norm */
    struct elements values;         /* [points][n][hidden] f32 or bf16 */
};

extern const struct record_kind feature_begin_kind, feature_states_kind;    /* and route_end_kind */

#endif
