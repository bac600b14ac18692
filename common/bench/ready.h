/* What a suite is run with: its models made ready, with its prompts as their tokenizers have them, and what it takes to
 * decode under one of its settings. */
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
    struct prompt *prompts;             /* those that the suite's tasks and limits leave */
    size_t count, room;
    char *label;                        /* what a report must say of it: "inflated: ...", "" */
};

/* Starts from {0}; also after a failure it can be closed. `options` need no model: it is the suite's. */
int bench_model_open(struct bench_model *model, const struct suite *suite, int number, const struct session_options *options,
                     const struct console *console, struct err *err);
void bench_model_close(struct bench_model *model);              /* and back to {0} */

struct ready_setting {
    struct decode_settings settings;
    struct decode_settings_store *store;
    struct auto_drafts drafts;          /* those of `settings`, if they are `auto` */
    struct budget *budget;              /* NULL: none */
    struct decoder *decoder;
};

/* As above. Decodes on the model's session, which stays open longer. force: see budget.h; on_device: see decoder_setup. Notes,
 * one a line, are appended. */
int ready_setting_open(struct ready_setting *ready, const struct suite *suite, int setting, const struct bench_model *model,
                       bool force, bool on_device, struct text *note, struct err *err);
void ready_setting_close(struct ready_setting *ready);

#endif
