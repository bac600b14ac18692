/* Statistics over what was measured: plain arrays in, figures out.
 *
 * A quantile is interpolated linearly between the two nearest of the sorted values (as numpy's default), NaN of none.
 *
 * A RATIO compares two settings that ran the same prompts. Each pair is one prompt with the tokens and seconds of both; the
 * ratio is that of the rates, (sum tokens / sum seconds) over (sum base_tokens / sum base_seconds). Its 95 % interval is a
 * paired percentile bootstrap: STATS_RESAMPLES times, as many pairs as there are drawn with replacement, a prompt always
 * with both its sides, and the 2.5 % and 97.5 % quantiles of the resampled ratios. Draw d of resample s takes pair
 * floor(u count / 2^32), u being word d mod 4 of Philox4x32-10 with counter (d / 4, s, 0, 0) and key 0: the same data give
 * the same interval everywhere. One pair alone has no interval (NaN). */
#ifndef MOE_REPORT_STATS_H
#define MOE_REPORT_STATS_H

#include <stddef.h>

#include "common/base/err.h"

enum { STATS_RESAMPLES = 2000 };

double stats_mean(const double *values, size_t count);
double stats_quantile(double *values, size_t count, double share);      /* sorts the values in place */

struct stats_pair {
    double tokens, seconds, base_tokens, base_seconds;
};

struct stats_ratio {
    double ratio, low, high;
};

int stats_ratio(const struct stats_pair *pairs, size_t count, struct stats_ratio *out, struct err *err);

#endif
