/* Gaussian process regression: predicts the score at a point, and its standard deviation, from scores observed at other
 * points. Computes the same as scikit-learn's GaussianProcessRegressor with a Matern kernel of nu = 5/2 and normalize_y,
 * which bayes_opt uses:
 *
 *     k(x, x') = (1 + r + r^2 / 3) exp(-r),   r = sqrt(5) |x - x'| / length
 *
 * Scores are shifted and scaled to mean 0 and standard deviation 1 (if all are equal: only shifted). `noise` is added to the
 * diagonal of the covariance of scaled scores. The length scale maximises the marginal likelihood between 1e-5 and 1e5: the
 * best of a grid, refined between its neighbours. */
#ifndef MOE_DRAFT_GAUSSIAN_H
#define MOE_DRAFT_GAUSSIAN_H

#include "common/base/err.h"

struct gaussian;

/* Opens a process without scores over points of `dimensions` coordinates. */
int gaussian_open(struct gaussian **out, int dimensions, double noise, struct err *err);
void gaussian_close(struct gaussian **gaussian);

/* Adds the score at a point [dimensions]; predictions use it after the next gaussian_fit. */
int gaussian_add(struct gaussian *gaussian, const double *point, double score, struct err *err);
int gaussian_points(const struct gaussian *gaussian);

/* Fits the length scale and the weights to all scores added so far. Must be called before a prediction. */
int gaussian_fit(struct gaussian *gaussian, struct err *err);
double gaussian_length(const struct gaussian *gaussian);
double gaussian_log_likelihood(const struct gaussian *gaussian);        /* log of the marginal likelihood at that length */

struct expectation { double mean, deviation; };

/* Predicts mean and deviation at a point. gradient: [2][dimensions] receives the gradients of mean and deviation; NULL: not
 * wanted. */
struct expectation gaussian_expect(struct gaussian *gaussian, const double *point, double *gradient);

#endif
