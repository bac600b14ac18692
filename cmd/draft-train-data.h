/* The training and validation data of moe-draft-train train: a feature stream, texts with answers, or prompts that the model
 * answers first. */
#ifndef MOE_CMD_DRAFT_TRAIN_DATA_H
#define MOE_CMD_DRAFT_TRAIN_DATA_H

#include "common/cli/console.h"
#include "common/model/head_states.h"
#include "common/session/session.h"
#include "common/train/batch.h"

struct train_data_options {
    struct session_prompts prompts;
    struct decode_settings settings;    /* with max_tokens, the model answers the prompts */
    struct strings inputs;
    double validation;                  /* share of the texts that are kept for validation */
    int cut;
    bool force;
};

struct train_data_setup {
    const struct train_data_options *options;
    const struct session_options *target;       /* options of the target model */
    const struct session *session;
    const struct console *console;
    const char *output;                 /* path of the head; temporary files are created beside it */
    struct head_states points;
    bool count;                         /* count tokens */
};

struct train_data {
    struct train_source learnt, validation;     /* validation.texts 0: no validation */
    int64_t *count;                     /* [vocab] occurrences of each token in the training texts; NULL: not counted */
    char digest[33];                    /* digest of tokens and masks, and of the choice of validation texts */
    bool rounded;                       /* the states are bf16 */
    char *folder;                       /* this and the following members belong to the stream's source */
    struct stream_model target;
    struct head_states points;
};

/* Refuses options without effect: options of texts with a stream, and options of answers if nothing is answered. */
int train_data_check(const struct train_data_options *options, const struct session_options *target, const char *stream,
                     struct err *err);
/* Opens the data. *out must not be moved while it is open, and must be closed also after a failure. */
int train_data_open(struct train_data *out, const struct train_data_setup *setup, const char *stream, struct err *err);
void train_data_close(struct train_data *data);

#endif
