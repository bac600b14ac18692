/* Prepares the models of a suite with their tokenized prompts, and the decoders of its settings. */
#ifndef MOE_BENCH_READY_H
#define MOE_BENCH_READY_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/suite.h"
#include "common/cli/console.h"
#include "common/decode/budget.h"
#include "common/decode/decode.h"
#include "common/prompts/prompts.h"
#include "common/session/drafts.h"
#include "common/session/session.h"

struct bench_model {
    struct session *session;
    struct prompt *prompts;             /* prompts selected by the suite's tasks and limits */
    size_t count, room;
    char *label;                        /* remark that a report must show: "inflated: ...", or "" */
};

/* Opens a model of the suite. *model must be {0}; close it also after a failure. The model in `options` is ignored. */
int bench_model_open(struct bench_model *model, const struct suite *suite, int number, const struct session_options *options,
                     const struct console *console, struct err *err);
void bench_model_keep(struct bench_model *model, size_t first, size_t end);     /* keeps the prompts first .. end - 1 and
                                                                                 * frees the others */
void bench_model_close(struct bench_model *model);              /* *model is {0} afterwards */

struct ready_setting {
    struct decode_settings settings;    /* texts in `settings` belong to the suite, or to `drafts` */
    struct auto_drafts drafts;          /* resolved drafters of `settings`, if they are `auto` */
    struct budget *budget;              /* NULL: none */
    struct decoder **decoders;          /* [texts] for concurrent texts */
    int texts;
};

/* Prepares a setting to decode on the model's session, which must stay open longer. *ready must be {0}; close it also after
 * a failure. force: see budget.h; on_device: see decoder_setup. Appends notes for the user, one per line. */
int ready_setting_open(struct ready_setting *ready, const struct suite *suite, int setting, const struct bench_model *model,
                       bool force, bool on_device, struct text *note, struct err *err);
/* Fails if a prompt does not fit the context, or the setting's concurrent texts do not fit the memory. order [model->count]:
 * the order in which prompts are checked; NULL: that of the model. name: name of the setting. */
int ready_setting_check(const struct ready_setting *ready, const struct bench_model *model, const int *order, const char *name,
                        struct err *err);
void ready_setting_close(struct ready_setting *ready);

#endif
