#include "common/predict/estimator.h"

#include <math.h>
#include <string.h>

enum { FEATURES = ESTIMATOR_FEATURES, SPANS = ESTIMATOR_SPANS, MATCHES = ESTIMATOR_MATCHES, KNOTS = ESTIMATOR_KNOTS };

/* Information of the priors; a token of probability 1/2 adds a quarter of its squared feature. */
static const double prior[ESTIMATOR_KINDS][FEATURES] = {
    [ESTIMATOR_AHEAD] = {0.4, 10, 10, 10, 1, 1}, [ESTIMATOR_STATED] = {8, 0.5, 4, 4, 4, 2},
    [ESTIMATOR_SILENT] = {8, 1, 2, 2, 2, 1}};

static const double EPSILON = 1e-3;             /* probabilities are clipped to EPSILON .. 1 - EPSILON */
static const double information_min = 0.02;     /* minimum information added by an observation */
static const double loss_decay = 0.99;
static const double offset_prior = 4, error_prior = 20;         /* information and weight of corrections of 0 */

static double logit(double p)
{
    p = fmin(1 - EPSILON, fmax(EPSILON, p));
    return log(p / (1 - p));
}

static double logistic(double x) { return fmin(1 - EPSILON, fmax(EPSILON, 1 / (1 + exp(-x)))); }

static void fit_fade(struct estimator_fit *fit, enum estimator_kind kind, double weight)
{
    for (int i = 0; i < FEATURES; i++) {
        for (int j = 0; j < FEATURES; j++)
            fit->information[i][j] *= weight;
        fit->information[i][i] += (1 - weight) * prior[kind][i];
    }
}

static double fit_of(const struct estimator_fit *fit, const double *x)
{
    double sum = 0;
    for (int i = 0; i < FEATURES; i++)
        sum += fit->weight[i] * x[i];
    return sum;
}

/* Stores the covariance of the weights times x in `out`, by Cholesky's decomposition: the prior keeps the information
 * positive definite. */
static void fit_spread(const struct estimator_fit *fit, const double *x, double *out)
{
    double lower[FEATURES][FEATURES];
    for (int i = 0; i < FEATURES; i++)
        for (int j = 0; j <= i; j++) {
            double sum = fit->information[i][j];
            for (int k = 0; k < j; k++)
                sum -= lower[i][k] * lower[j][k];
            lower[i][j] = i == j ? sqrt(sum) : sum / lower[j][j];
        }
    for (int i = 0; i < FEATURES; i++) {
        out[i] = x[i];
        for (int k = 0; k < i; k++)
            out[i] -= lower[i][k] * out[k];
        out[i] /= lower[i][i];
    }
    for (int i = FEATURES - 1; i >= 0; i--) {
        for (int k = i + 1; k < FEATURES; k++)
            out[i] -= lower[k][i] * out[k];
        out[i] /= lower[i][i];
    }
}

/* Updates the weights by one observation: one step of Newton's method. */
static void fit_observe(struct estimator_fit *fit, enum estimator_kind kind, double decay, const double *x, bool kept)
{
    const double p = logistic(fit_of(fit, x)), information = fmax(information_min, p * (1 - p));
    double step[FEATURES];
    fit->loss = loss_decay * fit->loss - log(kept ? p : 1 - p);
    fit_fade(fit, kind, decay);
    for (int i = 0; i < FEATURES; i++)
        for (int j = 0; j < FEATURES; j++)
            fit->information[i][j] += information * x[i] * x[j];
    fit_spread(fit, x, step);
    for (int i = 0; i < FEATURES; i++)
        fit->weight[i] += step[i] * ((kept ? 1 : 0) - p);
}

/* Returns the knot below a probability, and in *share the weight of the next knot. */
static int knot_of(double p, double *share)
{
    const double at = p * (KNOTS - 1);
    const int knot = at < KNOTS - 2 ? (int)at : KNOTS - 2;
    *share = at - knot;
    return knot;
}

static int length_of(const struct estimator_signal *signal) { return (signal->match < MATCHES ? signal->match : MATCHES) - 1; }

static double with_offset(const struct estimator_correction *correction, const struct estimator_signal *signal, double p)
{
    return logistic(logit(p) + correction->offset[length_of(signal)]);
}

static double error_of(const struct estimator_correction *correction, double p)
{
    double share;
    const int knot = knot_of(p, &share);
    return (1 - share) * correction->error[knot] + share * correction->error[knot + 1];
}

/* Returns the probability p of the regressions with both corrections. */
static double corrected(const struct estimator_correction *correction, const struct estimator_signal *signal, double p)
{
    if (signal->match <= 0)
        return p;
    p = with_offset(correction, signal, p);
    return fmin(1 - EPSILON, fmax(EPSILON, p + error_of(correction, p)));
}

static void correction_fade(struct estimator_correction *correction, double weight)
{
    for (int i = 0; i < MATCHES; i++)
        correction->information[i] *= weight;
    for (int i = 0; i < KNOTS; i++)
        correction->seen[i] *= weight;
}

/* Learns from one outcome of a token that has the probability p by the regressions. */
static void correction_observe(struct estimator_correction *correction, double decay, const struct estimator_signal *signal,
                               double p, bool kept)
{
    double share;
    const int length = length_of(signal);
    const double by_length = with_offset(correction, signal, p), missed = (kept ? 1 : 0) - by_length;
    const double left = missed - error_of(correction, by_length);
    const int knot = knot_of(by_length, &share);
    correction_fade(correction, decay);
    correction->seen[knot] += 1 - share;
    correction->seen[knot + 1] += share;
    correction->error[knot] += (1 - share) * left / (correction->seen[knot] + error_prior);
    correction->error[knot + 1] += share * left / (correction->seen[knot + 1] + error_prior);
    correction->information[length] += fmax(information_min, by_length * (1 - by_length));
    correction->offset[length] += missed / (correction->information[length] + offset_prior);
}

static void set_ahead(double *x, int depth)
{
    const double features[FEATURES] = {1, depth >= 2, depth >= 3, depth >= 3 ? log2(depth / 3.0) : 0};
    memcpy(x, features, sizeof features);
}

/* Sets the features of a token for each span; returns whether its drafter states a probability. */
static enum estimator_kind set_features(const struct estimator *a, const struct estimator_signal *signal,
                                         double x[SPANS][FEATURES])
{
    const double before = fmin(signal->before, 3), match = log2(fmax(1, signal->match));
    const double margin = fmin(4, fmax(0, (double)signal->margin)) / 4;
    const double sure = isnan(signal->sure) ? 0 : logit(exp((double)signal->sure)) / 2;
    double ahead[FEATURES];
    set_ahead(ahead, signal->depth);
    for (int span = 0; span < SPANS; span++) {
        const double base = isnan(signal->stated) ? fit_of(&a->fit[ESTIMATOR_AHEAD][span], ahead)
                          : logit(exp((double)signal->stated));
        const double stated[FEATURES] = {base, 1, log2(signal->depth), fmax(0, base - 2), margin, before};
        const double silent[FEATURES] = {base, 1, match, signal->match > 0, sure, before};
        memcpy(x[span], isnan(signal->stated) ? silent : stated, sizeof stated);
    }
    return isnan(signal->stated) ? ESTIMATOR_SILENT : ESTIMATOR_STATED;
}

/* Returns the weight of the shorter span. */
static double weight_of_short(const struct estimator_fit *fit)
{
    return 1 / (1 + exp(fmin(50, fmax(-50, fit[1].loss - fit[0].loss + 1))));
}

static double mix(const struct estimator_fit *fit, const double x[SPANS][FEATURES])
{
    const double of_short = weight_of_short(fit);
    return (1 - of_short) * logistic(fit_of(&fit[0], x[0])) + of_short * logistic(fit_of(&fit[1], x[1]));
}

void estimator_init(struct estimator *estimator, double guess, double decay)
{
    *estimator = (struct estimator){.decay = {decay, pow(decay, 16)}};
    for (int kind = 0; kind < ESTIMATOR_KINDS; kind++)
        for (int span = 0; span < SPANS; span++) {
            struct estimator_fit *fit = &estimator->fit[kind][span];
            fit->weight[0] = kind == ESTIMATOR_AHEAD ? logit(guess) : 1;
            for (int i = 0; i < FEATURES; i++)
                fit->information[i][i] = prior[kind][i];
        }
}

static void observe(struct estimator *estimator, enum estimator_kind kind, const double x[SPANS][FEATURES], bool kept)
{
    for (int span = 0; span < SPANS; span++)
        fit_observe(&estimator->fit[kind][span], kind, estimator->decay[span], x[span], kept);
}

void estimator_observe(struct estimator *estimator, const struct estimator_signal *signal, bool kept)
{
    double x[SPANS][FEATURES];
    const enum estimator_kind kind = set_features(estimator, signal, x);
    if (signal->match > 0)
        correction_observe(&estimator->correction[kind], pow(estimator->decay[0], 0.25), signal,
                           mix(estimator->fit[kind], (const double (*)[FEATURES])x), kept);
    observe(estimator, kind, (const double (*)[FEATURES])x, kept);
    estimator->seen = estimator->decay[0] * estimator->seen + 1;
    if (signal->before)
        return;
    for (int span = 0; span < SPANS; span++)
        set_ahead(x[span], signal->depth);
    observe(estimator, ESTIMATOR_AHEAD, (const double (*)[FEATURES])x, kept);
}

void estimator_fade(struct estimator *estimator, double weight)
{
    estimator->seen *= weight;
    for (int kind = 0; kind < ESTIMATOR_KINDS; kind++) {
        for (int span = 0; span < SPANS; span++)
            fit_fade(&estimator->fit[kind][span], kind, weight);
        correction_fade(&estimator->correction[kind], weight);
    }
}

static void fit_average(struct estimator_fit *out, struct estimator *const *from, int count, int kind, int span)
{
    struct estimator_fit mean = {.loss = 0};
    double sum[FEATURES] = {0};
    for (int n = 0; n < count; n++) {
        const struct estimator_fit *fit = &from[n]->fit[kind][span];
        mean.loss += fit->loss / count;
        for (int i = 0; i < FEATURES; i++)
            for (int j = 0; j < FEATURES; j++) {
                mean.information[i][j] += fit->information[i][j] / count;
                sum[i] += fit->information[i][j] * fit->weight[j] / count;
            }
    }
    fit_spread(&mean, sum, mean.weight);
    *out = mean;
}

/* Adds a part of the mean of `count` corrections: values[i] and their weights[i]. */
static void add_mean(double *value, double *weight, const double *values, const double *weights, int items, int count)
{
    for (int i = 0; i < items; i++) {
        const double sum = weight[i] + weights[i] / count;
        value[i] = sum > 0 ? (weight[i] * value[i] + weights[i] / count * values[i]) / sum : 0;
        weight[i] = sum;
    }
}

void estimator_average(struct estimator *out, struct estimator *const *from, int count)
{
    struct estimator mean = *from[0];
    mean.seen = 0;
    for (int n = 0; n < count; n++)
        mean.seen += from[n]->seen / count;
    for (int kind = 0; kind < ESTIMATOR_KINDS; kind++) {
        struct estimator_correction *to = &mean.correction[kind];
        *to = (struct estimator_correction){{0}, {0}, {0}, {0}};
        for (int n = 0; n < count; n++) {
            const struct estimator_correction *one = &from[n]->correction[kind];
            add_mean(to->offset, to->information, one->offset, one->information, MATCHES, count);
            add_mean(to->error, to->seen, one->error, one->seen, KNOTS, count);
        }
        for (int span = 0; span < SPANS; span++)
            fit_average(&mean.fit[kind][span], from, count, kind, span);
    }
    *out = mean;
}

static bool correction_is_sound(const struct estimator_correction *correction)
{
    bool sound = true;
    for (int i = 0; i < MATCHES; i++)
        sound &= isfinite(correction->offset[i]) && isfinite(correction->information[i]) && correction->information[i] >= 0;
    for (int i = 0; i < KNOTS; i++)
        sound &= isfinite(correction->error[i]) && isfinite(correction->seen[i]) && correction->seen[i] >= 0;
    return sound;
}

bool estimator_is_sound(const struct estimator *estimator)
{
    bool sound = isfinite(estimator->seen) && estimator->seen >= 0;
    for (int kind = 0; kind < ESTIMATOR_KINDS; kind++) {
        sound &= correction_is_sound(&estimator->correction[kind]);
        for (int span = 0; span < SPANS; span++) {
            const struct estimator_fit *fit = &estimator->fit[kind][span];
            double spread[FEATURES];
            sound &= isfinite(fit->loss);
            for (int i = 0; i < FEATURES; i++)
                for (int j = 0; j < FEATURES; j++)
                    sound &= isfinite(fit->weight[i]) && fit->information[i][i] >= prior[kind][i] / 2 &&
                             fabs(fit->information[i][j] - fit->information[j][i]) <= 1e-6 * fit->information[i][i];
            fit_spread(fit, fit->weight, spread);               /* NaN if the decomposition does not exist */
            for (int i = 0; i < FEATURES; i++)
                sound &= isfinite(spread[i]);
        }
    }
    return sound;
}

void estimator_signals(struct estimator_signal *signal, const struct draft_tree *tree, int from)
{
    for (int node = from; node < tree->nodes; node++) {
        const int parent = tree->parent[node];
        int sibling = node - 1;
        float sure = NAN;
        while (sibling > parent && tree->parent[sibling] != parent)
            sibling--;
        if (parent >= 0)
            sure = isnan(signal[parent].stated) ? signal[parent].sure : signal[parent].stated;
        signal[node] = (struct estimator_signal){.stated = tree->log_probability[node], .sure = sure,
                                                  .depth = tree->depth[node], .match = tree->match[node]};
        if (sibling <= parent)
            continue;
        signal[node].before = signal[sibling].before + 1;
        if (!isnan(signal[node].stated) && !isnan(signal[sibling].stated))
            signal[sibling].margin = signal[sibling].stated - signal[node].stated;
    }
}

double estimator_of(const struct estimator *estimator, const struct estimator_signal *signal)
{
    double x[SPANS][FEATURES];
    const enum estimator_kind kind = set_features(estimator, signal, x);
    return corrected(&estimator->correction[kind], signal, mix(estimator->fit[kind], (const double (*)[FEATURES])x));
}

double estimator_ahead(const struct estimator *estimator, int depth)
{
    double x[SPANS][FEATURES];
    for (int span = 0; span < SPANS; span++)
        set_ahead(x[span], depth);
    return mix(estimator->fit[ESTIMATOR_AHEAD], (const double (*)[FEATURES])x);
}

double estimator_doubt(const struct estimator *estimator)
{
    const struct estimator_fit *fit = estimator->fit[ESTIMATOR_AHEAD];
    const double of_short = weight_of_short(fit), p = fmin(0.95, fmax(0.05, estimator_ahead(estimator, 1)));
    double x[FEATURES], spread[FEATURES], variance = 0;
    set_ahead(x, 1);
    for (int span = 0; span < SPANS; span++) {
        fit_spread(&fit[span], x, spread);
        for (int i = 0; i < FEATURES; i++)
            variance += (span ? of_short : 1 - of_short) * x[i] * spread[i];
    }
    return p * (1 - p) * sqrt(variance);
}
