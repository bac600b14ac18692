/* Gates: limits that a suite sets for figures of its report (suite.h, "gate").
 *
 * A gate passes if the figure of its setting and task (all tasks, if none is named) is within its limits, fails if it is
 * outside, and is unclear if the figure is not available. All gates together fail if one fails, pass if all pass, and are
 * unclear otherwise. */
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
    double *values;                     /* [suite->gate_count]; NaN: not available */
    int *verdicts;                      /* [suite->gate_count] enum gate_verdict */
    int passed, failed, unclear;
};

/* Evaluates all gates. *out must be {0}. A suite without gates is an error. */
int gates_make(struct gates *out, const struct suite *suite, const struct measurements *all, const struct summary *summary,
               struct err *err);
void gates_free(struct gates *gates);           /* *gates is {0} afterwards */

int gates_text(struct text *out, const struct gates *gates, struct err *err);
int gates_junit(struct text *out, const struct gates *gates, struct err *err);     /* JUnit XML for CI servers; unclear gates
                                                                                    * are skipped tests */

/* Returns 0 if all gates pass; otherwise sets err to the answer: failed or unclear. */
int gates_answer(const struct gates *gates, struct err *err);

#endif
