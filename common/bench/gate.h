/* Limits that a suite sets to the figures of its report (suite.h, "gate"), held against what was measured.
 *
 * A gate passes when the figure of its setting and task (all tasks, when it names none) is within its limits, fails when it
 * is not, and is unclear when the figure cannot be had. Altogether they fail when one fails, pass when all do, and are unclear
 * otherwise. */
#ifndef MOE_BENCH_GATE_H
#define MOE_BENCH_GATE_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/suite.h"
#include "common/report/measurements.h"
#include "common/report/summary.h"

enum gate_verdict { GATE_PASSES, GATE_FAILS, GATE_UNCLEAR };

struct gates {
    const struct suite *suite;
    double *values;                     /* [suite->gate_count]; NaN: cannot be had */
    int *verdicts;                      /* [suite->gate_count] enum gate_verdict */
    int passed, failed, unclear;
};

/* Starts from {0}. A suite without gates is an error. */
int gates_make(struct gates *out, const struct suite *suite, const struct measurements *all, const struct summary *summary,
               struct err *err);
void gates_free(struct gates *gates);           /* and back to {0} */

int gates_text(struct text *out, const struct gates *gates, struct err *err);
int gates_junit(struct text *out, const struct gates *gates, struct err *err);     /* what CI servers read; unclear: skipped */

/* 0 when all pass; otherwise err is set to the answer: no, or that there is none. */
int gates_answer(const struct gates *gates, struct err *err);

#endif
