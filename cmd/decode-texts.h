/* Decodes the texts of a run of moe-decode, several at once; their output is written in the order of their prompts.
 *
 * A PROMPT AT WORK has been read, but the text of its last turn is not completely written. Each prompt that is being decoded
 * has a decoder; all decoders share forwards. Tokens of the oldest prompt are written as soon as they are decoded; text and
 * records of the others wait until they are the oldest. */
#ifndef MOE_CMD_DECODE_TEXTS_H
#define MOE_CMD_DECODE_TEXTS_H

#include <stdbool.h>

#include "cmd/decode-pool.h"
#include "cmd/decode-summary.h"
#include "common/base/file.h"
#include "common/base/progress.h"
#include "common/base/text.h"
#include "common/cli/console.h"
#include "common/decode/decode.h"
#include "common/instruments/probe.h"
#include "common/instruments/record.h"
#include "common/instruments/resume.h"
#include "common/prompts/prompts.h"

struct work;

struct texts {
    const struct console *console;          /* all pointers down to `text` are borrowed */
    const struct stop *stop;
    struct prompts *prompts;
    struct decode_resume *resume;           /* NULL: none */
    const char *resume_path;                /* the name for messages */
    bool in_place;                          /* the stream of this run replaces the resumed one */
    struct probe *probe;                    /* NULL: drafts are not recorded */
    struct output *text;                    /* NULL: the stream is written to standard output */
    struct decoder_pool pool;
    bool json, keep_going;
    struct decode_recorder recorder;        /* without a writer: no stream is written; recorder.sequence is the next text
                                             * number */
    struct progress bar;
    struct decode_summary summary;
    int finished, failed;                   /* texts; prompts that were skipped */
    int decoded;                            /* texts that this run began, not the resumed ones */
    struct work **work;                     /* [works] prompts at work, in order; the oldest first */
    size_t works, room;
};

/* Decodes until there are no more prompts, or until the run must end, which sets *ended. */
int texts_decode(struct texts *texts, bool *ended, struct err *err);
void texts_free(struct texts *texts);

/* Check, and answer, one turn of a conversation: this prompt is the only text. */
int texts_check_turn(struct texts *texts, const struct prompt *prompt, struct err *err);
int texts_answer_turn(struct texts *texts, struct prompt *prompt, struct decode_result *result, struct err *err);

#endif
