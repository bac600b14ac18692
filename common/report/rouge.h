/* ROUGE-L of a summary (Lin 2004): the F1 of the longest common subsequence of words. Words are runs of ASCII letters and
 * digits and of bytes above them, in lower case as far as ASCII goes, not stemmed: what rouge_score gives for English text.
 * From 0 to 1; 0 when either has no words. Of a text longer than ROUGE_WORDS the first ones count. */
#ifndef MOE_REPORT_ROUGE_H
#define MOE_REPORT_ROUGE_H

#include "common/base/err.h"

enum { ROUGE_WORDS = 8192 };

int rouge_l(const char *text, const char *expected, double *score, struct err *err);

#endif
