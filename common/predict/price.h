/* What an iteration will cost: seconds of a forward over M tokens = level * (1 + steepness * growth(M)), growth(1) = 0.
 *
 * The growth is known beforehand, from a cost table or from the experts that M tokens are predicted to load; level and
 * steepness drift with the machine and the text, and are followed by an extended Kalman filter on their logarithms. So an
 * iteration of any M corrects the price of all, and a steepness that was not observed for long is known to be uncertain. */
#ifndef MOE_PREDICT_PRICE_H
#define MOE_PREDICT_PRICE_H

#include <stdbool.h>

struct price {
    bool begun;                         /* an iteration was observed */
    double level, steepness;            /* logarithms */
    double ll, ls, ss;                  /* their covariance */
    double noise, drift_level, drift_steepness;     /* variances: of one observation; added with each iteration */
    double most;                        /* that ss may become */
};

/* uncertainty: standard deviation of the logarithm of the steepness (its first value: `steepness`). */
void price_init(struct price *price, double steepness, double uncertainty);

void price_observe(struct price *price, double growth, double seconds);

double price_level(const struct price *price);                      /* seconds of a forward over one token; 0: not observed */
double price_steepness(const struct price *price);
double price_doubt(const struct price *price);                      /* standard deviation of its logarithm */

#endif
