/* ROUGE-L of a summary (Lin 2004): the F1 score of the longest common subsequence of words. Words are runs of a to z and 0
 * to 9 after conversion to lower case, without stemming; all other characters separate words, letters beyond ASCII, too. It
 * equals rouge-score (rougeL, without stemmer), with which papers report; texts without Latin letters score 0. From 0 to 1;
 * 0 if either text has no words. Only the first ROUGE_WORDS words of a text count. */
#ifndef MOE_REPORT_ROUGE_H
#define MOE_REPORT_ROUGE_H

#include "common/base/err.h"

enum { ROUGE_WORDS = 8192 };

int rouge_l(const char *text, const char *expected, double *score, struct err *err);

#endif
