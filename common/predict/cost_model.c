#include "common/predict/cost_model.h"

#include <math.h>

static const double surprise_max = 0.4;
static const double knot_drift = 2e-5;

static const int knot_tokens[COST_KNOTS] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};
static const double knot_log2[COST_KNOTS] = {1, 1.5849625007211562, 2, 2.5849625007211562, 3, 3.5849625007211562, 4,
                                             4.584962500721156, 5, 5.584962500721156, 6,
                                             6.584962500721156, 7, 7.584962500721156, 8, 8.584962500721156, 9};

void cost_model_init(struct cost_model *model, double steepness, double uncertainty)
{
    *model = (struct cost_model){.states = COST_KNOT,
        .state = {[COST_STEEPNESS] = log(steepness)},
        .covariance = {[COST_STEEPNESS][COST_STEEPNESS] = uncertainty * uncertainty},
        .noise = 0.02, .drift = {[COST_LEVEL] = 2e-4, [COST_STEEPNESS] = 1e-4},
        .max = fmax(0.25, uncertainty * uncertainty)};
}

void cost_model_let_bend(struct cost_model *model, double deviation, bool falls)
{
    model->states = COST_STATES;
    model->falls = falls;
    for (int i = 0; i < COST_KNOTS; i++) {
        model->drift[COST_KNOT + i] = knot_drift;
        for (int j = 0; j < COST_KNOTS; j++)
            model->covariance[COST_KNOT + i][COST_KNOT + j] = deviation * deviation * knot_log2[i < j ? i : j];
    }
}

/* Finds the knots around M: the bend is `share` of the one at *knot, and the rest of the one before it, which is 0 for the
 * first knot. Beyond the last knot the bend stays the same. */
static double find_knot(int M, int *knot)
{
    for (*knot = 0; *knot < COST_KNOTS - 1 && knot_tokens[*knot] < M; )
        ++*knot;
    const double low = *knot ? knot_log2[*knot - 1] : 0, high = knot_log2[*knot];
    return fmin(1, (log2(M) - low) / (high - low));
}

/* Sets the derivatives of the logarithm of the seconds with respect to the knots. */
static void differentiate_knots(double slope[COST_STATES], int M)
{
    int knot;
    const double share = find_knot(M, &knot);
    slope[COST_KNOT + knot] = share;
    if (knot)
        slope[COST_KNOT + knot - 1] = 1 - share;
}

/* Makes the bend non-negative and non-decreasing: more tokens never make multiplications cheaper. */
static void straighten(struct cost_model *model)
{
    double before = 0;
    for (int i = COST_KNOT; i < model->states; i++)
        model->state[i] = before = fmax(before, model->state[i]);
}

/* Fills the products of the covariance and the derivatives of the logarithm of the seconds. */
static void project(const struct cost_model *model, const double slope[COST_STATES], double out[COST_STATES])
{
    for (int i = 0; i < model->states; i++) {
        out[i] = 0;
        for (int j = 0; j < model->states; j++)
            out[i] += model->covariance[i][j] * slope[j];
    }
}

void cost_model_observe(struct cost_model *model, double growth, int M, double seconds)
{
    if (!(seconds > 0 && isfinite(seconds) && growth >= 0))
        return;
    const double steepness = cost_model_steepness(model), whole = 1 + steepness * growth, bend = cost_model_bend(model, M);
    double slope[COST_STATES] = {1, steepness * growth / whole}, cross[COST_STATES];
    if (!model->begun) {
        model->begun = true;
        model->state[COST_LEVEL] = log(seconds) - log(whole);
        model->covariance[COST_LEVEL][COST_LEVEL] = model->noise;
    }
    for (int i = 0; i < model->states; i++)
        model->covariance[i][i] += model->drift[i];
    double *steepness_variance = &model->covariance[COST_STEEPNESS][COST_STEEPNESS];
    *steepness_variance = fmin(*steepness_variance, model->max);
    double variance = model->noise, surprise = log(seconds) - model->state[COST_LEVEL] - log(whole) - bend;
    const bool bends = model->states > COST_KNOT;
    if (bends && (model->falls || surprise > 0 || bend > 0))
        differentiate_knots(slope, M);
    project(model, slope, cross);
    for (int i = 0; i < model->states; i++)
        variance += slope[i] * cross[i];
    const double limit = bends ? fmax(surprise_max, sqrt(variance)) : surprise_max;
    surprise = fmax(-limit, fmin(limit, surprise));             /* a single slow iteration does not mean that the machine is
                                                                 * slow */
    for (int i = 0; i < model->states; i++) {
        model->state[i] += cross[i] / variance * surprise;
        for (int j = 0; j < model->states; j++)
            model->covariance[i][j] -= cross[i] * cross[j] / variance;
    }
    if (!model->falls)
        straighten(model);
}

double cost_model_level(const struct cost_model *model) { return model->begun ? exp(model->state[COST_LEVEL]) : 0; }
double cost_model_steepness(const struct cost_model *model) { return exp(model->state[COST_STEEPNESS]); }
double cost_model_doubt(const struct cost_model *model)
{
    return sqrt(fmax(model->covariance[COST_STEEPNESS][COST_STEEPNESS], 0));
}

double cost_model_bend(const struct cost_model *model, int M)
{
    int knot;
    if (model->states == COST_KNOT)
        return 0;
    const double share = find_knot(M, &knot);
    return share * model->state[COST_KNOT + knot] + (knot ? (1 - share) * model->state[COST_KNOT + knot - 1] : 0);
}
