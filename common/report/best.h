/* Decides which settings are candidates for the best static setting, with which an adaptive policy is compared.
 *
 * A setting is static and lossless if its options fix the draft in advance and nothing in it can change the text: no policy
 * except static, no draft length "auto", no tree that depends on the drafter's probabilities (dynamic), no budget,
 * acceptance not typical. Decoding without a draft is one, too. Options are the JSON object of a suite's setting, or the
 * words of a moe-decode command line. */
#ifndef MOE_REPORT_BEST_H
#define MOE_REPORT_BEST_H

#include <stdbool.h>

/* Returns whether a setting with these options is static and lossless. */
bool options_are_static(const char *options);

#endif
