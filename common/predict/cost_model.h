/* Predicts the cost of an iteration: seconds of a forward = level * (1 + steepness * growth) * exp(bend). growth and bend are 0
 * for one token. Forwards that texts share have a model of their own (cost_line.h).
 *
 * The growth is known in advance, from a cost table or from the experts that M tokens are predicted to load; level and
 * steepness drift with the machine and the text, and are followed by an extended Kalman filter on their logarithms. So an
 * iteration of any M corrects the model of all, and a steepness that was not observed for long is known to be uncertain.
 *
 * The bend is what the growth does not predict, such as the number of tokens M from which multiplications take longer than
 * reads of weights. It is 0 unless cost_model_let_bend is called. Then it is a line of knots over the logarithm of M, part of
 * the same filter; before observations it is 0, with a standard deviation that grows with the square root of log2(M). Unless it
 * may fall, it is never negative. */
#ifndef MOE_PREDICT_COST_MODEL_H
#define MOE_PREDICT_COST_MODEL_H

#include <stdbool.h>

enum { COST_LEVEL, COST_STEEPNESS, COST_KNOT, COST_KNOTS = 17, COST_STATES = COST_KNOT + COST_KNOTS };

struct cost_model {
    bool begun;                         /* an iteration was observed */
    int states;                         /* number of states; without knots COST_KNOT */
    bool falls;                         /* the bend may fall, and be negative */
    double state[COST_STATES];          /* logarithms of level and steepness; the bend at each knot */
    double covariance[COST_STATES][COST_STATES];
    double noise, drift[COST_STATES];   /* variances: noise of one observation; drift added in each iteration */
    double max;                         /* upper limit of the variance of the steepness */
};

/* Initialises a model. uncertainty: standard deviation of the logarithm of the steepness, which begins as `steepness`. */
void cost_model_init(struct cost_model *model, double steepness, double uncertainty);

/* Enables the bend. deviation: standard deviation of the bend at M = 2. falls: the bend may fall, because the growth may be
 * wrong in both directions. Must be called before any observation. */
void cost_model_let_bend(struct cost_model *model, double deviation, bool falls);

/* Observes a forward over M tokens. A model that does not bend needs no M. */
void cost_model_observe(struct cost_model *model, double growth, int M, double seconds);

double cost_model_level(const struct cost_model *model); /* seconds of a forward over one token; 0: not observed */
double cost_model_steepness(const struct cost_model *model);
double cost_model_doubt(const struct cost_model *model);                      /* standard deviation of log(steepness) */

double cost_model_bend(const struct cost_model *model, int M);

#endif
