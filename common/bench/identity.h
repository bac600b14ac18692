/* Checks that all ways of decoding give the same bytes. Every prompt of a suite is decoded under every setting, and token
 * ids and text are compared with those of a reference.
 *
 * The reference of a setting is the first setting with the same sampling (temperature and, above 0, filters and seed; limits
 * and stops) that
 *   - is, or is a variant of, the setting that the suite names as "reference"; or, if it names none,
 *   - neither drafts nor has a budget, and has the same model, device and instruction set, because bits may differ between
 *     these.
 *
 * A setting that does not promise the text of its reference is reported separately and does not decide the result, unless
 * `strict` is set. Threads, order of prompts and all drafting options may differ between settings; equal prompts get the
 * same random numbers each time.
 *
 * Answers of references are kept in memory, those of other settings only while they are compared. */
#ifndef MOE_BENCH_IDENTITY_H
#define MOE_BENCH_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/suite.h"
#include "common/cli/console.h"
#include "common/session/session.h"

struct identity_setup {
    const struct suite *suite;
    struct session_options session;     /* for settings without options of their own; its model is ignored */
    bool force;                         /* see budget.h */
    bool strict;
    const struct console *console;
};

/* The token at which an answer differs, in the answer and in the reference. */
struct identity_token {
    int32_t id;                         /* -1: the answer has already ended */
    char *text;                         /* as a JSON string with quotes; NULL: no token, or no tokenizer */
    double margin;                      /* difference between the two best logits at this token; NaN: no token */
};

struct identity_difference {
    char *prompt;                       /* id of the prompt, or "file:line" */
    int number;                         /* index of the prompt in the suite, from 0 */
    int index;                          /* index of the token in the answer, from 0; the number of tokens if only the texts
                                         * differ */
    int position;                       /* index of the token in the text, prompt included */
    struct identity_token here, reference;
};

struct identity_row {                   /* result of one setting */
    int setting, reference;             /* equal: the setting is a reference */
    char *apart;                        /* why its text may differ; NULL: it must not */
    int prompts;                        /* prompts decoded and compared */
    int64_t tokens;                     /* tokens of these prompts' answers */
    struct identity_difference *differences;    /* the first difference of each prompt that differs, ordered by prompt */
    size_t count, room;
};

struct identity {
    const struct suite *suite;
    struct identity_row *rows;          /* [suite->setting_count] */
    bool agree;
    const struct identity_row *first;   /* row of the first difference that counts; NULL: all agree */
};

/* Runs the comparison. It is an error if there is nothing to compare. */
int identity_run(struct identity **out, const struct identity_setup *setup, struct err *err);
void identity_free(struct identity **identity);

/* Write a table by setting with the first difference, or JSON lines with all differences: `setting`, `difference`,
 * `verdict`. */
int identity_text(struct text *out, const struct identity *identity, struct err *err);
int identity_json(struct text *out, const struct identity *identity, struct err *err);

/* Sets err to the negative result with the first difference. */
int identity_refuse(const struct identity *identity, struct err *err);

#endif
