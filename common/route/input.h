/* Reads route streams, and decode streams if the consumer accepts iterations: one or more streams of one model, in order, whose
 * records of the requested phases are passed to the consumer. The consumer's results are valid only after route_input_read has
 * succeeded, because only then is every stream known to be complete. */
#ifndef MOE_ROUTE_INPUT_H
#define MOE_ROUTE_INPUT_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/progress.h"
#include "common/base/text.h"
#include "common/stream/decode.h"
#include "common/stream/header.h"
#include "common/stream/route.h"

/* ALL, PROMPT and DECODE select tokens of the text; DECODE those after the prompt, whether drafted or not. VERIFY selects all
 * nodes of forwards that verify a draft, rejected nodes included ("each token processed during verification", MoE-Spec appendix
 * D). The consumer receives these records as if all nodes were accepted, and without mass, which is a sum over accepted nodes
 * only. */
enum route_phases { ROUTE_ALL, ROUTE_PROMPT, ROUTE_DECODE, ROUTE_VERIFY };
extern const char *const route_phase_words[];                   /* in the order of the enum; ends with NULL */

struct route_input {
    const char *const *paths;       /* "-": standard input */
    int count;                      /* 0: standard input */
    int phases;                     /* enum route_phases */
    bool force;                     /* another shape or tokenizer is a note; routes that cannot be counted are an error */
    struct progress *bar;           /* counts tokens; may be NULL */
};

/* Callbacks. Each may be NULL; a failure ends the reading. */
struct route_consumer {
    void *context;
    int (*open)(void *context, const struct stream_model *model, struct err *err);       /* once, before all others */
    void (*begin)(void *context, const struct route_begin *begin);      /* a sequence begins */
    int (*tokens)(void *context, const struct route_tokens *record, struct err *err);
    int (*end)(void *context, int64_t sequence, struct err *err);       /* no further tokens of the sequence follow */
    int (*iteration)(void *context, const struct decode_iter *iter, struct err *err);   /* NULL: decode streams are rejected */
};

/* Sets the error for input without records of these phases: "the routes have no ...; profile ..." Returns -1. */
int route_phase_lacks(int phases, struct err *err);

/* Reads all streams. Adds each stream's header to the sources of *header, and appends notes, one per line, to *note. */
int route_input_read(const struct route_input *input, const struct route_consumer *consumer, struct header *header,
                     struct text *note, struct err *err);

#endif
