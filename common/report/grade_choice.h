/* Where the final answer of a text stands, by the marks that data sets and models put before it.
 *
 *   #### 58            GSM8K: the number after the marks
 *   \boxed{58}         MATH and most models: the last box
 *   (C), Answer: C     multiple choice: the letter after the last "answer is" or "answer:" ("(", "*", "$" and a box may be
 *                      around it); else in the last box; else the one that begins the text ("C", "C.", "(C) Paris"); else
 *                      the last capital that stands alone, the words "I" and "A" aside */
#ifndef MOE_REPORT_GRADE_CHOICE_H
#define MOE_REPORT_GRADE_CHOICE_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/grade.h"

/* Returns the rule that the form of an expected answer asks for: GRADE_NUMBER, GRADE_BOXED, GRADE_LETTER or GRADE_EXACT. */
enum grade_rule grade_choice_rule(const char *expected);

/* Returns where the number of a text is looked for, up to *stop; *first: the first number there counts, not the last. */
const char *grade_number_place(const char *text, const char **stop, bool *first);

/* Replace *out by the comparable contents of the last box, or of the whole text if there is none; and by the chosen letter,
 * as a capital, or nothing if the text chooses none. */
int grade_put_boxed(struct text *out, const char *text, struct err *err);
int grade_put_letter(struct text *out, const char *text, struct err *err);

#endif
