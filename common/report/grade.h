/* Is an answer right? Pure text against text, so that a saved stream can be graded again.
 *
 *   number   the last number of the answer equals the last number of the expected text. A number is digits, with commas
 *            between groups of three, a fraction, and a minus sign that does not follow a letter, a digit or ')'. 59, 59.0
 *            and 059 are equal; currency signs and units do not matter.
 *   exact    the texts are equal, white space at both ends aside
 *   json     the first JSON object in the answer has the fields of that in the expected text, no more and no fewer, with equal
 *            values: in any order, and 1 is 1.0
 *   code     the texts are equal line by line: without blank lines, white space at the ends of lines, and what all lines are
 *            indented by; in tabs or spaces; of a text with a ``` fence what is in the first one
 *   rouge    ROUGE-L of the two (rouge.h), for summaries: a score, and nothing is right or wrong
 *
 * Without a rule of its own a task is graded by number if it is known as mathematics, by rouge if as summaries, and exactly
 * otherwise. */
#ifndef MOE_REPORT_GRADE_H
#define MOE_REPORT_GRADE_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/text.h"

enum grade_rule { GRADE_NONE, GRADE_NUMBER, GRADE_EXACT, GRADE_JSON, GRADE_CODE, GRADE_ROUGE };

extern const char *const grade_rule_names[];            /* "none", "number", ..., NULL */

enum grade_rule grade_rule_of_task(const char *task);   /* task may be NULL */

/* Whether answers graded so have a score, of which the mean is reported, and are not right or wrong. */
bool grade_scores(const char *rule);

/* The last number of `text` in canonical form (no commas, no needless zeros) into *out; false when there is none. */
int grade_number(const char *text, struct text *out, bool *found, struct err *err);

/* *correct by the rule (not GRADE_NONE), false by one that scores; and *score, otherwise 1 or 0. *found is what was taken from
 * `text` to be compared; empty when there was none. */
int grade_answer(enum grade_rule rule, const char *text, const char *expected, bool *correct, double *score,
                 struct text *found, struct err *err);

#endif
