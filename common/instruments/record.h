/* What the loop did, as records of a decode stream (stream/decode.h). */
#ifndef MOE_INSTRUMENTS_RECORD_H
#define MOE_INSTRUMENTS_RECORD_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/decode/decode.h"
#include "common/prompts/prompts.h"
#include "common/session/session.h"
#include "common/stream/writer.h"

struct decode_recorder {
    struct writer *writer;
    int64_t sequence;           /* of the prompt now being decoded */
    bool routes;                /* experts by layer, too */
    bool steps;                 /* probabilities and matches of nodes, and the policy's steps */
    bool flush;                 /* after every record, for a reader that follows */
};

/* What a machine record says of these; options: as resume.h makes them, borrowed; NULL: none. */
struct decode_described {
    struct decode_machine machine;
    char device[sizeof ((struct device_info *)0)->name];        /* to which machine points */
};
void decode_describe(struct decode_described *out, const struct session *session, const struct decoder *decoder,
                     const char *options);
int decode_record_machine(struct decode_recorder *recorder, const struct decode_described *described, struct err *err);
int decode_record_begin(struct decode_recorder *recorder, const struct prompt *prompt, double prefill_s, struct err *err);
int decode_record_iteration(struct decode_recorder *recorder, const struct decode_iteration *iteration, struct err *err);
int decode_record_failed(struct decode_recorder *recorder, const char *id, const char *message, struct err *err);
int decode_record_draft(struct decode_recorder *recorder, const struct decode_draft *draft, struct err *err);
int decode_record_done(struct decode_recorder *recorder, const struct prompt *prompt, const struct decode_result *result,
                       struct err *err);

/* The text of a result as records have it, with U+FFFD for each NUL, which texts of records cannot hold: its own, or one put
 * into *room. */
int decode_record_text(const char **out, struct text *room, const struct decode_result *result, struct err *err);

#endif
