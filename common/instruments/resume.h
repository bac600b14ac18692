/* Resumes an interrupted run of moe-decode from its decode stream, which ends with an abort record or is truncated. Finished
 * texts are copied from it; an unfinished one is decoded again.
 *
 * A text is identified by the ids of its prompt and by how many equal prompts came before it, as for random numbers
 * (sample/sampler.h). So the texts of both runs must be in the same order, but the new run may have additional prompts in
 * between. The stream is accepted only if model file, seed, device, instruction set and cache are the same, and all options
 * that texts, or what is measured of them, depend on (decode_options). */
#ifndef MOE_INSTRUMENTS_RESUME_H
#define MOE_INSTRUMENTS_RESUME_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/instruments/record.h"
#include "common/prompts/prompts.h"
#include "common/session/settings.h"
#include "common/stream/decode.h"
#include "common/stream/header.h"

/* Appends a JSON object to *out for the machine record: everything that texts depend on besides model and prompts. context:
 * maximum tokens of a text including its prompt. departs: texts depend on drafts or budgets (decode_lossless_label). record,
 * record_length: what else the stream records. */
int decode_options(struct text *out, const struct decode_settings *settings, int context, bool departs, const char *record,
                   int record_length, struct err *err);

struct decode_resume;

/* Opens the stream of the earlier run. header and machine: those of this run, for comparison. */
int decode_resume_open(struct decode_resume **out, const char *path, const struct header *header,
                       const struct decode_machine *machine, struct err *err);
void decode_resume_close(struct decode_resume **resume);

const struct header *decode_resume_header(const struct decode_resume *resume);      /* NULL: the stream does not contain a
                                                                                     * header */
bool decode_resume_whole(const struct decode_resume *resume);       /* whether that run was not interrupted */
int decode_resume_count(const struct decode_resume *resume);        /* finished texts */
int decode_resume_left(const struct decode_resume *resume);         /* finished texts not copied yet */

/* Must be called before the run for all prompts in order: checks that their finished texts will be copied.
 * decode_resume_checked, called last, returns the result. */
int decode_resume_expect(struct decode_resume *resume, const struct prompt *prompt, struct err *err);
int decode_resume_checked(const struct decode_resume *resume, struct err *err);

/* Must be called for every text of the run in order. *has: the text is the next finished text of the stream. */
int decode_resume_has(struct decode_resume *resume, const struct prompt *prompt, bool *has, struct err *err);

struct decode_taken {
    const int32_t *token;               /* [tokens] valid until the next call */
    int tokens, iterations, drafts, draft_tokens, accepted_tokens;
};

/* Must be called if *has: copies the text's records with the recorder's sequence number (without a writer none), and returns
 * the text's result. */
int decode_resume_take(struct decode_resume *resume, const struct prompt *prompt, struct decode_recorder *recorder,
                       struct decode_taken *out, struct err *err);

#endif
