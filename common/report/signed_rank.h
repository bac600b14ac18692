/* Estimates the centre of symmetrically distributed differences, with distribution-free bounds: the Hodges-Lehmann estimate
 * (the median of all means of two differences, each also with itself) and the bounds of Wilcoxon's signed-rank test
 * (Hollander, Wolfe and Chicken 2014, Nonparametric Statistical Methods, sections 3.1 to 3.3).
 *
 * Each bound fails with a probability of at most `error`, computed exactly by counting all 2^count choices of signs. Only
 * independent signs are assumed: no variance, no normal distribution, and differences may have unequal sizes. With fewer
 * than log2(1 / error) differences the bounds are infinite. */
#ifndef MOE_REPORT_SIGNED_RANK_H
#define MOE_REPORT_SIGNED_RANK_H

#include <stddef.h>

#include "common/base/err.h"

enum { SIGNED_RANK_MAX = 1000 };

struct signed_rank {
    double middle;                      /* NaN: no differences */
    double low, high;                   /* P(centre < low) <= error_low, P(centre > high) <= error_high */
};

/* Computes estimate and bounds. count <= SIGNED_RANK_MAX; 0 < error_low, error_high < 0.5. */
int signed_rank(const double *differences, size_t count, double error_low, double error_high, struct signed_rank *out,
                struct err *err);

#endif
