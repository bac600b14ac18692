/* Statistics of measurements, as functions of plain arrays.
 *
 * A quantile is interpolated linearly between the two nearest sorted values (numpy's default); NaN for no values.
 *
 * A RATIO compares two settings that ran the same prompts. Each pair is one prompt with the tokens and seconds of both; the
 * ratio is that of the rates, (sum tokens / sum seconds) over (sum base_tokens / sum base_seconds).
 *
 * Its interval is a paired bootstrap: STATS_RESAMPLES times, as many pairs as exist are drawn with replacement, a prompt
 * always with both its sides; the interval is two quantiles of the resampled ratios. Draw d of resample s uses pair floor(u
 * count / 2^32), where u is word d mod 4 of Philox4x32-10 with counter (d / 4, s, 0, 0) and key 0: the same data give the
 * same interval everywhere.
 *
 * The quantiles are at Phi(-sqrt(n / (n - 1)) t) and 1 minus that, where t is the quantile of Student's distribution with n
 * - 1 degrees of freedom and upper tail error / 2 (Hesterberg 2015, What teachers should know about the bootstrap, arXiv
 * 1411.5279: the expanded percentile interval). Without this correction an interval of few pairs is too narrow: with 5 pairs
 * a nominal 95 % interval covers the truth 8 times in 10; bias-corrected intervals (BCa) are worse if single runs are slow.
 * n is the effective number of pairs, the smaller of (sum w)^2 / sum w^2 with seconds and with base_seconds as w, rounded
 * down, at least 2. As resampled ratios lie between those of single pairs, fewer than 6 pairs cannot give 95 %: 5 give at
 * least 91 %, depending on the noise. tests/long/test_coverage.c measures the coverage. A single pair has no interval (NaN). */
#ifndef MOE_REPORT_STATS_H
#define MOE_REPORT_STATS_H

#include <stddef.h>

#include "common/base/err.h"

enum { STATS_RESAMPLES = 10000 };

/* Returns the mean (NaN of no values), and a quantile, 0 <= share <= 1. */
double stats_mean(const double *values, size_t count);
double stats_quantile(double *values, size_t count, double share);      /* sorts the values in place */

int stats_ascending(const void *a, const void *b);                      /* compares two doubles, for qsort */

struct stats_pair {
    double tokens, seconds, base_tokens, base_seconds;
};

struct stats_ratio {
    double ratio, low, high;
};

/* Computes the ratio and its interval, which misses the truth with probability `error`, 0 < error < 1. */
int stats_ratio(const struct stats_pair *pairs, size_t count, double error, struct stats_ratio *out, struct err *err);

/* Computes the ratio of the pairs divided by that of beside[count]: the same prompts in the same runs under another setting,
 * resampled together with the pairs. Changes that affect both settings equally cancel. */
int stats_ratio_beside(const struct stats_pair *pairs, const struct stats_pair *beside, size_t count, double error,
                       struct stats_ratio *out, struct err *err);

#endif
