/* An expert budget: from what --budget, --rank, --budget-mode and --budget-phase say to the plan that the engine follows
 * (MoE-Spec section 3).
 *
 *   budget   "12"         that many experts in every layer
 *            "12,8,..."   one number a layer with experts
 *            "rank"       what the rank stream recommends
 *            "auto"       one number for all layers that follows what is measured (policy/governor.h)
 *   rank     "router"     this forward's own scores choose (the default, as in the paper)
 *            "path"       the same, each drafted token counting as it is likely to be kept
 *            "oracle"     what the experts add chooses: an upper bound, as it computes all of them; "oracle:as=routed"
 *            "oracle:as=printed"  the same by the equation as it is printed (engine/oracle.h)
 *            FILE or "-"  a rank stream chooses, once and for all
 *   phase    "decode"     it holds in every forward after the prompt (the default)
 *            "verify"     in those that verify a draft
 *            "draft"      in those of a draft model with experts; alone, it leaves the text as it is
 *            "decode,draft", "verify,draft"
 *
 * A number above the model's experts means all of them: then nothing is left out and the text is that without a budget.
 * A rank stream must be of this model: another shape or tokenizer is an error (with force a note), other weights or
 * another dtype are a note. It must rank every layer once and be whole. */
#ifndef MOE_DECODE_BUDGET_H
#define MOE_DECODE_BUDGET_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/engine/expert_plan.h"
#include "common/policy/governor.h"
#include "common/session/settings.h"
#include "common/stream/header.h"

struct budget_options {
    const char *budget;         /* NULL: none */
    const char *rank;           /* NULL: router */
    const char *phase;          /* NULL: decode */
    int mode;                   /* enum budget_mode */
    bool force;
};

static inline struct budget_options budget_options_of(const struct decode_settings *settings, bool force)
{
    return (struct budget_options){settings->budget, settings->rank, settings->budget_phase, settings->budget_mode, force};
}

struct budget {
    struct expert_plan plan;            /* its arrays belong to the budget */
    bool decodes, verifies, drafts;     /* forwards in which it holds: of one token, with a draft, of the draft model */
    struct header source;               /* of the rank stream, for header_derive; kind STREAM_ANY: there was none */
    bool automatic;                     /* the plan's numbers are a beginning; `governor` says how they go on */
    struct governor governor;
    bool lossless;                      /* every expert of every layer is kept, or only drafts are made with fewer */
    char label[160];                    /* "budget 12 of 32, static by frequency, substitute" */
    int32_t *size, *order;              /* what the plan points to */
};

/* *out is NULL when no budget is asked for. Notes, one a line, are appended to *note. */
int budget_open(struct budget **out, const struct budget_options *options, const struct stream_model *model,
                struct text *note, struct err *err);
void budget_close(struct budget **budget);

#endif
