/* ROUGE-L of a summary (Lin 2004): the F1 of the longest common subsequence of words. Words are runs of a to z and 0 to 9 after
 * all was made lower case, and not stemmed; everything else is between them, letters beyond ASCII, too. So it is what
 * rouge-score gives (rougeL, without stemmer), and by it what papers report; texts without Latin letters score 0.
 * From 0 to 1; 0 when either has no words. Of a text longer than ROUGE_WORDS the first ones count. */
#ifndef MOE_REPORT_ROUGE_H
#define MOE_REPORT_ROUGE_H

#include "common/base/err.h"

enum { ROUGE_WORDS = 8192 };

int rouge_l(const char *text, const char *expected, double *score, struct err *err);

#endif
