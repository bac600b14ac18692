/* An expert budget: turns --budget, --rank, --budget-mode and --budget-phase into the plan that the engine follows
 * (MoE-Spec section 3).
 *
 *   budget   "12"         that many experts in every layer
 *            "12,8,..."   one number a layer with experts
 *            "rank"       the recommendation of the rank stream
 *            "auto"       one number for all layers, adjusted by measurements (policy/governor.h); "auto:each=1": a number
 *                         for each text
 *   rank     "router"     by the router scores of this forward (the default, as in the paper)
 *            "path"       the same, each drafted token weighted by its acceptance probability
 *            "oracle"     by the experts' outputs: an upper bound, since all are computed; "oracle:as=routed"
 *            "oracle:as=printed"  the same by the equation as it is printed (engine/oracle.h)
 *            FILE or "-"  by a rank stream, fixed for the run
 *   phase    "decode"     applies to every forward after the prompt (the default)
 *            "verify"     applies to forwards that verify a draft
 *            "draft"      applies to forwards of a draft model with experts; alone, it is lossless
 *            "decode,draft", "verify,draft"
 *
 * A number above the model's experts means all of them; the output is then that without a budget.
 * A rank stream must be of this model: another shape or tokenizer is an error (with force a note), other weights or
 * another dtype are a note. It must be complete and rank every layer once. */
#ifndef MOE_DECODE_BUDGET_H
#define MOE_DECODE_BUDGET_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/engine/expert_plan.h"
#include "common/policy/governor.h"
#include "common/session/settings.h"
#include "common/stream/header.h"

struct budget {
    struct expert_plan plan;            /* its arrays belong to the budget */
    bool decodes, verifies, drafts;     /* forwards to which the budget applies: of one token, with a draft, of the draft
                                         * model */
    struct header source;               /* header of the rank stream, for header_derive; kind STREAM_ANY: none */
    bool automatic;                     /* the plan's numbers are initial values; `governor` adjusts them */
    struct governor governor;
    bool lossless;                      /* keeps every expert of every layer, or limits the draft model only */
    char label[160];                    /* "budget 12 of 32, static by frequency, substitute" */
    int32_t *size, *order;              /* arrays that `plan` points to */
};

/* Returns the number of KV caches that a text needs: an automatic budget has one that no budget touches. NULL: no budget. */
static inline int budget_caches(const struct budget *budget) { return budget && budget->automatic ? 2 : 1; }

/* Opens the budget of these settings (rank NULL: router; budget_phase NULL: decode). force: accepts a ranking of a model
 * with another tokenizer or vocabulary. *out is NULL without a budget. Appends notes, one per line, to *note. */
int budget_open(struct budget **out, const struct decode_settings *settings, bool force, const struct stream_model *model,
                struct text *note, struct err *err);
void budget_close(struct budget **budget);

#endif
