/* Predicts the cost of an iteration: seconds of a forward over M tokens = level * (1 + steepness * growth(M)), growth(1) = 0.
 *
 * The growth is known beforehand, from a cost table or from the experts that M tokens are predicted to load; level and
 * steepness drift with the machine and the text, and are followed by an extended Kalman filter on their logarithms. So an
 * iteration of any M corrects the model of all, and a steepness that was not observed for long is known to be uncertain. */
#ifndef MOE_PREDICT_COST_MODEL_H
#define MOE_PREDICT_COST_MODEL_H

#include <stdbool.h>

struct cost_model {
    bool begun;                         /* an iteration was observed */
    double level, steepness;            /* logarithms */
    double ll, ls, ss;                  /* their covariance */
    double noise, drift_level, drift_steepness;     /* variances: of one observation; added with each iteration */
    double max;                         /* that ss may become */
};

/* uncertainty: standard deviation of the logarithm of the steepness (its first value: `steepness`). */
void cost_model_init(struct cost_model *model, double steepness, double uncertainty);

void cost_model_observe(struct cost_model *model, double growth, double seconds);

double cost_model_level(const struct cost_model *model); /* seconds of a forward over one token; 0: not observed */
double cost_model_steepness(const struct cost_model *model);
double cost_model_doubt(const struct cost_model *model);                      /* standard deviation of its logarithm */

#endif
