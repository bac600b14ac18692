/* Route streams as input, and decode streams where a consumer can use their iterations: several of one model, one after the
 * other, of which the records of the phases wanted are handed on. Whatever was learned from them may be used
 * only when this has succeeded: then every stream was whole. */
#ifndef MOE_ROUTE_INPUT_H
#define MOE_ROUTE_INPUT_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/progress.h"
#include "common/base/text.h"
#include "common/stream/decode.h"
#include "common/stream/header.h"
#include "common/stream/route.h"

enum route_phases { ROUTE_ALL, ROUTE_PROMPT, ROUTE_DECODE };    /* DECODE: generated tokens, drafted or not */
extern const char *const route_phase_words[];                   /* in the order of the enum, NULL behind the last */

struct route_input {
    const char *const *paths;       /* "-": standard input */
    int count;                      /* 0: standard input */
    int phases;                     /* enum route_phases */
    bool force;                     /* models of another shape or tokenizer are a note; what cannot be counted stays an error */
    struct progress *bar;           /* steps by tokens; may be NULL */
};

/* Any function may be NULL; a failure ends the reading. */
struct route_consumer {
    void *context;
    int (*open)(void *context, const struct stream_model *model, struct err *err);       /* once, before all else */
    int (*tokens)(void *context, const struct route_tokens *record, struct err *err);
    int (*end)(void *context, int64_t sequence, struct err *err);       /* the sequence gets no more tokens */
    int (*iteration)(void *context, const struct decode_iter *iter, struct err *err);   /* NULL: decode streams are refused */
};

/* Each stream's header is added to the sources of *header; notes, one a line, to *note. */
int route_input_read(const struct route_input *input, const struct route_consumer *consumer, struct header *header,
                     struct text *note, struct err *err);

#endif
