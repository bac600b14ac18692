/* What moe-draft-train train learns from, and judges by: a feature stream, or texts with answers, or prompts that the model
 * answers first. */
#ifndef MOE_CMD_DRAFT_TRAIN_DATA_H
#define MOE_CMD_DRAFT_TRAIN_DATA_H

#include "common/cli/console.h"
#include "common/model/head_states.h"
#include "common/session/session.h"
#include "common/train/batch.h"

struct train_data_options {
    struct session_prompts prompts;
    struct decode_settings settings;    /* max_tokens: the model answers */
    struct strings inputs;
    double validation;                  /* share of the texts */
    int cut;
    bool force;
};

struct train_data_setup {
    const struct train_data_options *options;
    const struct session_options *target;       /* what was asked of the model's computing */
    const struct session *session;
    const struct console *console;
    const char *output;                 /* the head: what is no file waits beside it */
    struct head_states points;
    bool count;                         /* are words to be counted? */
};

struct train_data {
    struct train_source learnt, validation;     /* validation.texts 0: there are none */
    int64_t *count;                     /* [vocab] how often each token is learnt; NULL: not counted */
    char digest[33];                    /* of tokens and masks, and of what is kept apart */
    bool rounded;                       /* the states are of bf16 */
    char *folder;                       /* that and what follows: of the stream's source */
    struct stream_model target;
    struct head_states points;
};

/* Options that would change nothing: of texts where a stream is read, of answering where nothing is answered. */
int train_data_check(const struct train_data_options *options, const struct session_options *target, const char *stream,
                     struct err *err);
/* out stays where it is as long as it is open; to be closed after a failure, too. */
int train_data_open(struct train_data *out, const struct train_data_setup *setup, const char *stream, struct err *err);
void train_data_close(struct train_data *data);

#endif
