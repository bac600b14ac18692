/* Gaussian process regression: from scores seen at some points, what to expect at another one, and how sure that is. As
 * scikit-learn's GaussianProcessRegressor computes it with a Matern kernel of nu = 5/2 and normalize_y, which bayes_opt uses:
 *
 *     k(x, x') = (1 + r + r^2 / 3) exp(-r),   r = sqrt(5) |x - x'| / length
 *
 * Scores are shifted and scaled to mean 0 and standard deviation 1 (where all are equal: shifted). `noise` is added to the
 * diagonal of the scaled scores' covariance. The length is the one of largest marginal likelihood between 1e-5 and 1e5: the
 * best of a grid, then refined between its neighbours. */
#ifndef MOE_DRAFT_GAUSSIAN_H
#define MOE_DRAFT_GAUSSIAN_H

#include "common/base/err.h"

struct gaussian;

int gaussian_open(struct gaussian **out, int dimensions, double noise, struct err *err);
void gaussian_close(struct gaussian **gaussian);

int gaussian_add(struct gaussian *gaussian, const double *point, double score, struct err *err);
int gaussian_points(const struct gaussian *gaussian);

/* Takes in what was added: finds the length, and solves for it. Before this, nothing is predicted. */
int gaussian_fit(struct gaussian *gaussian, struct err *err);
double gaussian_length(const struct gaussian *gaussian);
double gaussian_log_likelihood(const struct gaussian *gaussian);        /* marginal, at that length */

struct expectation { double mean, deviation; };

/* gradient: [2][dimensions] of the mean, then of the deviation; NULL: not wanted. */
struct expectation gaussian_expect(struct gaussian *gaussian, const double *point, double *gradient);

#endif
