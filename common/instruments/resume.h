/* What a run of moe-decode left that was ended before its time: its decode stream, with an abort record or cut off. Finished
 * texts are taken over from it; one that was begun is decoded anew.
 *
 * A text is known by its prompt's ids and by how many equal ones came before it, as random numbers know it (sample/sampler.h):
 * so the texts of both runs must come in the same order, but prompts may have come in between that were left out then. The
 * stream is taken only if it came from the same model file, seed, device, instruction set and cache, and from options on which
 * texts, or what is measured of them, depend in the same way (decode_options). */
#ifndef MOE_INSTRUMENTS_RESUME_H
#define MOE_INSTRUMENTS_RESUME_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/instruments/record.h"
#include "common/prompts/prompts.h"
#include "common/session/settings.h"
#include "common/stream/decode.h"
#include "common/stream/header.h"

/* What texts depend on beside model and prompts, as the machine record has it: JSON, appended to *out. context: most tokens of
 * a text and its prompt. departs: texts depend on drafts or budgets (decode_lossless_label). record: what the stream has more.
 * */
int decode_options(struct text *out, const struct decode_settings *settings, int context, bool departs, const char *record,
                   int record_length, struct err *err);

struct decode_resume;

/* header and machine: those of this run. */
int decode_resume_open(struct decode_resume **out, const char *path, const struct header *header,
                       const struct decode_machine *machine, struct err *err);
void decode_resume_close(struct decode_resume **resume);

const struct header *decode_resume_header(const struct decode_resume *resume);      /* NULL: the stream has not even that */
bool decode_resume_whole(const struct decode_resume *resume);       /* that run ended by itself */
int decode_resume_count(const struct decode_resume *resume);        /* finished texts */
int decode_resume_left(const struct decode_resume *resume);         /* those that were not taken so far */

/* Before the run, for all prompts in order: will their finished texts be taken? decode_resume_checked tells in the end. */
int decode_resume_expect(struct decode_resume *resume, const struct prompt *prompt, struct err *err);
int decode_resume_checked(const struct decode_resume *resume, struct err *err);

/* For every text of the run in order: is it the next one of the stream? */
int decode_resume_has(struct decode_resume *resume, const struct prompt *prompt, bool *has, struct err *err);

struct decode_taken {
    const int32_t *token;               /* [tokens] valid until the next call */
    int tokens, iterations, drafts, draft_tokens, accepted_tokens;
};

/* Then: its records, as those of the recorder's sequence (without a writer none), and what came out. */
int decode_resume_take(struct decode_resume *resume, const struct prompt *prompt, struct decode_recorder *recorder,
                       struct decode_taken *out, struct err *err);

#endif
