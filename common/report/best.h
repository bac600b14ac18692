/* Which settings are candidates for the best static one, that an adaptive policy must be compared with.
 *
 * A setting is static and lossless when its options fix the draft beforehand and nothing about it may change the text: no
 * policy but static, no draft length "auto", no tree that grows by what drafters say (dynamic), no budget, acceptance not
 * typical. Decoding without a draft is one, too. Options are the JSON map of a suite's setting, or the words of a
 * moe-decode command line. Pure text. */
#ifndef MOE_REPORT_BEST_H
#define MOE_REPORT_BEST_H

#include <stdbool.h>

bool options_are_static(const char *options);

#endif
