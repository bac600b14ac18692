/* The middle of differences that scatter symmetrically about it, with bounds that hold whatever their distribution: the
 * estimate of Hodges and Lehmann, the median of all means of two differences (one with itself, too), and the bounds of
 * Wilcoxon's signed-rank test (Hollander, Wolfe and Chicken 2014, Nonparametric Statistical Methods, sections 3.1 to 3.3).
 *
 * Each bound misses the middle with a probability of at most `error`, computed exactly by counting all 2^count choices of
 * signs. This needs independent signs alone: no variance, no normal distribution, and differences may be of unequal size.
 * Fewer than log2(1 / error) differences have no bounds: they are then infinite. */
#ifndef MOE_REPORT_SIGNED_RANK_H
#define MOE_REPORT_SIGNED_RANK_H

#include <stddef.h>

#include "common/base/err.h"

enum { SIGNED_RANK_MAX = 1000 };

struct signed_rank {
    double middle;                      /* NaN: there are no differences */
    double low, high;                   /* the middle is below `low` with probability error_low at most; above `high` alike */
};

/* count <= SIGNED_RANK_MAX; 0 < error_low, error_high < 0.5. */
int signed_rank(const double *differences, size_t count, double error_low, double error_high, struct signed_rank *out,
                struct err *err);

#endif
