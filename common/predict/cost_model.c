#include "common/predict/cost_model.h"

#include <math.h>

static const double surprise_max = 0.4;

void cost_model_init(struct cost_model *model, double steepness, double uncertainty)
{
    *model = (struct cost_model){
        .state = {[COST_STEEPNESS] = log(steepness), [COST_ROWS] = log(COST_ROW)},
        .covariance = {[COST_STEEPNESS][COST_STEEPNESS] = uncertainty * uncertainty, [COST_ROWS][COST_ROWS] = 1},
        .noise = 0.02, .drift = {[COST_LEVEL] = 2e-4, [COST_STEEPNESS] = 1e-4},
        .max = fmax(0.25, uncertainty * uncertainty)};
}

/* Fills the products of the covariance and the derivatives of the logarithm of the seconds. */
static void project(const struct cost_model *model, const double slope[COST_STATES], double out[COST_STATES])
{
    for (int i = 0; i < COST_STATES; i++) {
        out[i] = 0;
        for (int j = 0; j < COST_STATES; j++)
            out[i] += model->covariance[i][j] * slope[j];
    }
}

/* The level follows from the first observation. It is as uncertain as what rows add, which is known least. */
static void begin(struct cost_model *model, double by_rows, double level)
{
    const double variance = model->covariance[COST_ROWS][COST_ROWS];
    model->begun = true;
    model->state[COST_LEVEL] = level;
    model->covariance[COST_LEVEL][COST_LEVEL] = model->noise + by_rows * by_rows * variance;
    model->covariance[COST_LEVEL][COST_ROWS] = model->covariance[COST_ROWS][COST_LEVEL] = -by_rows * variance;
}

void cost_model_observe(struct cost_model *model, double growth, double rows, double seconds)
{
    if (!(seconds > 0 && isfinite(seconds) && growth >= 0 && rows >= 0))
        return;
    const double by_rows = rows > 0 ? cost_model_row(model) * rows : 0, steepness = cost_model_steepness(model);
    const double whole = 1 + steepness * (growth + by_rows);
    const double slope[COST_STATES] = {1, steepness * (growth + by_rows) / whole, steepness * by_rows / whole};
    double cross[COST_STATES];
    if (!model->begun)
        begin(model, slope[COST_ROWS], log(seconds) - log(whole));
    for (int i = 0; i < COST_STATES; i++)
        model->covariance[i][i] += model->drift[i];
    double *steepness_variance = &model->covariance[COST_STEEPNESS][COST_STEEPNESS];
    *steepness_variance = fmin(*steepness_variance, model->max);
    double variance = model->noise, surprise = log(seconds) - model->state[COST_LEVEL] - log(whole);
    project(model, slope, cross);
    for (int i = 0; i < COST_STATES; i++)
        variance += slope[i] * cross[i];
    surprise = fmax(-surprise_max, fmin(surprise_max, surprise));         /* one slow iteration is not a slow machine */
    for (int i = 0; i < COST_STATES; i++) {
        model->state[i] += cross[i] / variance * surprise;
        for (int j = 0; j < COST_STATES; j++)
            model->covariance[i][j] -= cross[i] * cross[j] / variance;
    }
}

double cost_model_level(const struct cost_model *model) { return model->begun ? exp(model->state[COST_LEVEL]) : 0; }
double cost_model_steepness(const struct cost_model *model) { return exp(model->state[COST_STEEPNESS]); }
double cost_model_row(const struct cost_model *model) { return exp(model->state[COST_ROWS]); }
double cost_model_doubt(const struct cost_model *model)
{
    return sqrt(fmax(model->covariance[COST_STEEPNESS][COST_STEEPNESS], 0));
}

double cost_model_doubt_of(const struct cost_model *model, double growth, double rows)
{
    const double by_rows = cost_model_row(model) * rows;
    const double slope[COST_STATES] = {1, 1, by_rows > 0 ? by_rows / (growth + by_rows) : 0};
    double cross[COST_STATES], variance = 0;
    project(model, slope, cross);
    for (int i = 0; i < COST_STATES; i++)
        variance += slope[i] * cross[i];
    return sqrt(fmax(variance, 0));
}
