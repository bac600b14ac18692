/* Is an answer right? Pure text against text, so that a saved stream can be graded again.
 *
 *   number   the number of the answer equals the number of the expected text: the first after "####" (GSM8K), else the last
 *            in the last \boxed{}, else the last of all. A number is digits, with commas between groups of three, a
 *            fraction, and a minus sign that does not follow a letter, a digit or ')'. 59, 59.0 and 059 are equal; currency
 *            signs and units do not matter.
 *   exact    the texts are equal, white space at both ends aside
 *   json     the first JSON object in the answer has the fields of that in the expected text, no more and no fewer, with equal
 *            values: in any order, and 1 is 1.0
 *   code     the texts are equal line by line: without blank lines, white space at the ends of lines, and what all lines are
 *            indented by; in tabs or spaces; of a text with a ``` fence what is in the first one
 *   rouge    ROUGE-L of the two (rouge.h), for summaries: a score, and nothing is right or wrong
 *   boxed    the contents of the last \boxed{} of both are equal (MATH), without white space, $, \left, \right, spacing and a
 *            full stop, and with \frac for \dfrac and \tfrac; of a text without a box all of it is compared
 *   letter   the letter that the answer chooses equals the expected one (grade_choice.h)
 *
 * The rule of an answer whose task has none of its own: number if the task is known as mathematics, rouge if as summaries. For
 * other tasks the expected answer decides: number after "####" and for a boxed number, boxed, letter for a single letter
 * ("C", "(C)"), exact otherwise. */
#ifndef MOE_REPORT_GRADE_H
#define MOE_REPORT_GRADE_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/table.h"

enum grade_rule { GRADE_NONE, GRADE_NUMBER, GRADE_EXACT, GRADE_JSON, GRADE_CODE, GRADE_ROUGE, GRADE_BOXED, GRADE_LETTER };

extern const char *const grade_rule_names[];            /* "none", "number", ..., NULL */

#define GRADE_RULE_WORDS "number, exact, json, code, rouge, boxed, letter or none"

enum grade_rule grade_rule_of(const char *task, const char *expected);      /* both may be NULL */

/* Adds a cell with the names of a set of rules; 1 << GRADE_NONE stands for a command of the user's. */
int grade_rules_cell(struct table *table, unsigned rules, struct err *err);

/* Whether answers graded so have a score, of which the mean is reported, and are not right or wrong. */
bool grade_scores(const char *rule);

/* Writes the number that answers `text`, in canonical form (no commas, no needless zeros), to *out; *found: there is one. */
int grade_number(const char *text, struct text *out, bool *found, struct err *err);

/* *correct by the rule (not GRADE_NONE), false by one that scores; and *score, otherwise 1 or 0. *found is what was taken from
 * `text` to be compared; empty when there was none. */
int grade_answer(enum grade_rule rule, const char *text, const char *expected, bool *correct, double *score,
                 struct text *found, struct err *err);

#endif
