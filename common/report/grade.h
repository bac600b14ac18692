/* Grades answers. Text is compared with text only, so that a saved stream can be graded again.
 *
 *   number   the answer's number equals that of the expected text: the first after "####" (GSM8K), else the last in the last
 *            \boxed{}, else the last of all. A number is digits, with commas between groups of three, a fraction, and a
 *            minus sign that does not follow a letter, a digit or ')'. 59, 59.0 and 059 are equal; currency signs and units
 *            are ignored.
 *   exact    the texts are equal except for white space at both ends
 *   json     the first JSON object in the answer has exactly the fields of that in the expected text, with equal values; the
 *            order is ignored, and 1 equals 1.0
 *   code     the texts are equal line by line, ignoring blank lines, white space at the ends of lines, and the common
 *            indentation, in tabs or spaces; of a text with a ``` fence only the first fenced block counts
 *   rouge    ROUGE-L of the two texts (rouge.h), for summaries: a score; no answer is right or wrong
 *   boxed    the contents of the last \boxed{} of both are equal (MATH), ignoring white space, $, \left, \right, spacing and
 *            a full stop, and with \frac for \dfrac and \tfrac; a text without a box is compared as a whole
 *   letter   the letter that the answer chooses equals the expected one (grade_choice.h)
 *
 * Default rule of a task: number if the task is known as mathematics, rouge if it is known as summarisation. For other tasks
 * the expected answer decides: number after "####" and for a boxed number, boxed, letter for a single letter ("C", "(C)"),
 * exact otherwise. */
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

/* Adds a cell with the names of a set of rules; bit 1 << GRADE_NONE means a command of the user's. */
int grade_rules_cell(struct table *table, unsigned rules, struct err *err);

/* Returns whether answers with this rule have a score (the report then gives its mean) and are not right or wrong. */
bool grade_scores(const char *rule);

/* Writes the number that `text` answers, in canonical form (no commas or redundant zeros), to *out. *found: there is one. */
int grade_number(const char *text, struct text *out, bool *found, struct err *err);

/* Grades an answer by a rule (not GRADE_NONE). *correct: false for rules with a score. *score: the score, otherwise 1 or 0.
 * *found: the part of `text` that was compared; empty if there was none. */
int grade_answer(enum grade_rule rule, const char *text, const char *expected, bool *correct, double *score,
                 struct text *found, struct err *err);

#endif
