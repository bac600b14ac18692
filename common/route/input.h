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

/* Of the first three the tokens that are part of the text; DECODE: those after the prompt, drafted or not. VERIFY: all nodes
 * of forwards that verify a draft, rejected ones included ("each token processed during verification", MoE-Spec appendix D):
 * their records are handed on as if all were accepted, and with no mass, which is summed over the accepted alone. */
enum route_phases { ROUTE_ALL, ROUTE_PROMPT, ROUTE_DECODE, ROUTE_VERIFY };
extern const char *const route_phase_words[];                   /* in the order of the enum, NULL after the last */

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
    void (*begin)(void *context, const struct route_begin *begin);      /* a sequence begins */
    int (*tokens)(void *context, const struct route_tokens *record, struct err *err);
    int (*end)(void *context, int64_t sequence, struct err *err);       /* the sequence gets no more tokens */
    int (*iteration)(void *context, const struct decode_iter *iter, struct err *err);   /* NULL: decode streams are refused */
};

/* What to say where no record of these phases came: "the routes have no ...; profile ..." */
int route_phase_lacks(int phases, struct err *err);

/* Each stream's header is added to the sources of *header; notes, one a line, to *note. */
int route_input_read(const struct route_input *input, const struct route_consumer *consumer, struct header *header,
                     struct text *note, struct err *err);

#endif
