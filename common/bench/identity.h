/* Do all ways of decoding give the same bytes? Every prompt of a suite is decoded under every setting, and token ids and text
 * are compared with those of a reference.
 *
 * The reference of a setting is the first one that samples alike (temperature and, above 0, filters and seed; limits and
 * ends) and
 *   - is, or is a variant of, the setting that the suite names as "reference"; or, when it names none,
 *   - neither drafts nor keeps a budget, and has the same model, device and instruction set: across these bits may differ.
 *
 * A setting that does not promise the text of its reference is reported apart: it does not decide the answer, unless
 * `strict` says so. Threads, order of prompts and all that drafts may vary from setting to setting; prompts that are equal
 * get the same random numbers each time.
 *
 * The answers of references are kept, those of other settings only while they are compared. */
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
    struct session_options session;     /* for settings that do not say otherwise; its model is not looked at */
    bool force;                         /* see budget.h */
    bool strict;
    const struct console *console;
};

/* Where an answer leaves that of the reference. */
struct identity_token {
    int32_t id;                         /* -1: the answer has ended before */
    char *text;                         /* as JSON would write it, in quotes; NULL: no token, or no tokenizer */
    double margin;                      /* between the two best logits that the token was chosen from; NaN: no token */
};

struct identity_difference {
    char *prompt;                       /* its id, or "file:line" */
    int number;                         /* of the prompt in the suite's order, from 0 */
    int index;                          /* of the token in the answer, from 0; their number when only the texts differ */
    int position;                       /* of the token in the text, that of the first prompt token being 0 */
    struct identity_token here, reference;
};

struct identity_row {                   /* one setting */
    int setting, reference;             /* equal: it is a reference */
    char *apart;                        /* why its text may differ; NULL: it must not */
    int prompts;                        /* that were decoded and compared */
    int64_t tokens;                     /* of their answers */
    struct identity_difference *differences;    /* the first of each prompt that differs, by number */
    size_t count, room;
};

struct identity {
    const struct suite *suite;
    struct identity_row *rows;          /* [suite->setting_count] */
    bool agree;
    const struct identity_row *first;   /* where the first difference is that decides; NULL: they agree */
};

/* Nothing to compare is an error. */
int identity_run(struct identity **out, const struct identity_setup *setup, struct err *err);
void identity_free(struct identity **identity);

/* A table by setting and the first difference, or JSON lines with all: `setting`, `difference`, `verdict`. */
int identity_text(struct text *out, const struct identity *identity, struct err *err);
int identity_json(struct text *out, const struct identity *identity, struct err *err);

/* Sets err to the answer: no, and where the first difference is. */
int identity_refuse(const struct identity *identity, struct err *err);

#endif
