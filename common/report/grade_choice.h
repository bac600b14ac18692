/* Finds the final answer in a text by the marks that data sets and models put before it.
 *
 *   #### 58            GSM8K: the number after the marks
 *   \boxed{58}         MATH and most models: the last box
 *   (C), Answer: C     multiple choice: the letter after the last "answer is" or "answer:", optionally within "(", "*", "$"
 *   or a box; else in the last box; else the one that begins the text ("C", "C.", "(C) Paris"); else the last single
 *   capital, except for the words "I" and "A" */
#ifndef MOE_REPORT_GRADE_CHOICE_H
#define MOE_REPORT_GRADE_CHOICE_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/grade.h"

/* Returns the rule for the form of an expected answer: GRADE_NUMBER, GRADE_BOXED, GRADE_LETTER or GRADE_EXACT. */
enum grade_rule grade_choice_rule(const char *expected);

/* Returns the range of a text, up to *stop, in which its number is searched. *first: the first number counts, not the last. */
const char *grade_number_range(const char *text, const char **stop, bool *first);

/* Replaces *out by the comparable contents of the last box (of the whole text if there is none), and by the chosen letter as
 * a capital (nothing if the text chooses none). */
int grade_put_boxed(struct text *out, const char *text, struct err *err);
int grade_put_letter(struct text *out, const char *text, struct err *err);

#endif
