/* Statistics over what was measured: plain arrays in, figures out.
 *
 * A quantile is interpolated linearly between the two nearest of the sorted values (as numpy's default), NaN of none.
 *
 * A RATIO compares two settings that ran the same prompts. Each pair is one prompt with the tokens and seconds of both; the
 * ratio is that of the rates, (sum tokens / sum seconds) over (sum base_tokens / sum base_seconds).
 *
 * Its interval is a paired bootstrap: STATS_RESAMPLES times, as many pairs as there are drawn with replacement, a prompt always
 * with both its sides, and two quantiles of the resampled ratios. Draw d of resample s takes pair floor(u count / 2^32), u
 * being word d mod 4 of Philox4x32-10 with counter (d / 4, s, 0, 0) and key 0: the same data give the same interval everywhere.
 *
 * The quantiles are at Phi(-sqrt(n / (n - 1)) t) and 1 minus that, t being the quantile of Student's distribution with n - 1
 * degrees of freedom that leaves error / 2 above it (Hesterberg 2015, What teachers should know about the bootstrap, arXiv
 * 1411.5279: the expanded percentile interval). Without this an interval of few pairs is too narrow: of 5 pairs one that says
 * 95 % holds the truth 8 times in 10, and bias-corrected ones (BCa) do worse where single runs are slow. n is the effective
 * number of pairs, the smaller of (sum w)^2 / sum w^2 with seconds and with base_seconds for w, rounded down, 2 at least. As
 * resampled ratios lie between those of single pairs, less than 6 pairs cannot give 95 %: 5 give 91 %
 * and more, by the kind of noise.
 * tests/long/test_coverage.c counts how often the truth is held. One pair alone has no interval (NaN). */
#ifndef MOE_REPORT_STATS_H
#define MOE_REPORT_STATS_H

#include <stddef.h>

#include "common/base/err.h"

enum { STATS_RESAMPLES = 10000 };

double stats_mean(const double *values, size_t count);
double stats_quantile(double *values, size_t count, double share);      /* sorts the values in place */

struct stats_pair {
    double tokens, seconds, base_tokens, base_seconds;
};

struct stats_ratio {
    double ratio, low, high;
};

/* The interval misses the truth with probability `error`, 0 < error < 1. */
int stats_ratio(const struct stats_pair *pairs, size_t count, double error, struct stats_ratio *out, struct err *err);

/* The ratio of the pairs over that of beside[count], the same prompts in the same runs under another setting, which are drawn
 * along with them: what changed both alike cancels. */
int stats_ratio_beside(const struct stats_pair *pairs, const struct stats_pair *beside, size_t count, double error,
                       struct stats_ratio *out, struct err *err);

#endif
