/* Writes the iterations of decoding as records of a decode stream (stream/decode.h). */
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
    int64_t sequence;           /* number of the current prompt */
    bool routes;                /* record experts by layer */
    bool steps;                 /* record probabilities and matches of nodes, and the policy's steps */
    bool flush;                 /* flush after every record, for a reader that follows the file */
};

/* Description for a machine record. options: made by decode_options (resume.h), borrowed; NULL: none. */
struct decode_described {
    struct decode_machine machine;
    char device[sizeof ((struct device_info *)0)->name];        /* storage for machine.device */
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

/* Returns the text of a result for a record. Texts of records cannot contain NULs, so each becomes U+FFFD in a copy in
 * *room. */
int decode_record_text(const char **out, struct text *room, const struct decode_result *result, struct err *err);

#endif
