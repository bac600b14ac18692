#include "common/predict/acceptance.h"

#include <math.h>
#include <string.h>

enum { FEATURES = ACCEPTANCE_FEATURES, SPANS = ACCEPTANCE_SPANS };

/* Information of the priors; a token of probability 1/2 adds a quarter of its squared feature. */
static const double prior[ACCEPTANCE_KINDS][FEATURES] = {
    [ACCEPTANCE_AHEAD] = {0.4, 10, 10, 10, 1, 1}, [ACCEPTANCE_STATED] = {8, 0.5, 4, 4, 4, 2},
    [ACCEPTANCE_SILENT] = {8, 1, 2, 2, 2, 1}};

static const double least = 1e-3;               /* no probability is nearer to 0 or 1 than this: */
static const double information_min = 0.02;     /* and none adds less information */
static const double loss_decay = 0.97;

static double logit(double p)
{
    p = fmin(1 - least, fmax(least, p));
    return log(p / (1 - p));
}

static double logistic(double x) { return fmin(1 - least, fmax(least, 1 / (1 + exp(-x)))); }

static void fit_fade(struct acceptance_fit *fit, enum acceptance_kind kind, double weight)
{
    for (int i = 0; i < FEATURES; i++) {
        for (int j = 0; j < FEATURES; j++)
            fit->information[i][j] *= weight;
        fit->information[i][i] += (1 - weight) * prior[kind][i];
    }
}

static double fit_of(const struct acceptance_fit *fit, const double *x)
{
    double sum = 0;
    for (int i = 0; i < FEATURES; i++)
        sum += fit->weight[i] * x[i];
    return sum;
}

/* Writes the covariance of the weights times x, by Cholesky's decomposition: the prior keeps the information positive
 * definite. */
static void fit_spread(const struct acceptance_fit *fit, const double *x, double *out)
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

/* One step of Newton's method. */
static void fit_observe(struct acceptance_fit *fit, enum acceptance_kind kind, double decay, const double *x, bool kept)
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

static void set_ahead(double *x, int depth)
{
    const double features[FEATURES] = {1, depth >= 2, depth >= 3, depth >= 3 ? log2(depth / 3.0) : 0};
    memcpy(x, features, sizeof features);
}

/* Sets the features of a token for each span; returns whether its drafter states a probability. */
static enum acceptance_kind set_features(const struct acceptance *a, const struct acceptance_signal *signal,
                                         double x[SPANS][FEATURES])
{
    const double before = fmin(signal->before, 3), match = log2(fmax(1, signal->match));
    const double margin = fmin(4, fmax(0, (double)signal->margin)) / 4;
    const double sure = isnan(signal->sure) ? 0 : logit(exp((double)signal->sure)) / 2;
    double ahead[FEATURES];
    set_ahead(ahead, signal->depth);
    for (int span = 0; span < SPANS; span++) {
        const double base = isnan(signal->stated) ? fit_of(&a->fit[ACCEPTANCE_AHEAD][span], ahead)
                          : logit(exp((double)signal->stated));
        const double stated[FEATURES] = {base, 1, log2(signal->depth), fmax(0, base - 2), margin, before};
        const double silent[FEATURES] = {base, 1, match, signal->match > 0, sure, before};
        memcpy(x[span], isnan(signal->stated) ? silent : stated, sizeof stated);
    }
    return isnan(signal->stated) ? ACCEPTANCE_SILENT : ACCEPTANCE_STATED;
}

/* The weight of the shorter span. */
static double weight_of_short(const struct acceptance_fit *fit)
{
    return 1 / (1 + exp(fmin(50, fmax(-50, fit[1].loss - fit[0].loss + 1))));
}

static double mix(const struct acceptance_fit *fit, const double x[SPANS][FEATURES])
{
    const double of_short = weight_of_short(fit);
    return (1 - of_short) * logistic(fit_of(&fit[0], x[0])) + of_short * logistic(fit_of(&fit[1], x[1]));
}

void acceptance_init(struct acceptance *acceptance, double guess, double decay)
{
    *acceptance = (struct acceptance){.decay = {decay, pow(decay, 16)}};
    for (int kind = 0; kind < ACCEPTANCE_KINDS; kind++)
        for (int span = 0; span < SPANS; span++) {
            struct acceptance_fit *fit = &acceptance->fit[kind][span];
            fit->weight[0] = kind == ACCEPTANCE_AHEAD ? logit(guess) : 1;
            for (int i = 0; i < FEATURES; i++)
                fit->information[i][i] = prior[kind][i];
        }
}

static void observe(struct acceptance *acceptance, enum acceptance_kind kind, const double x[SPANS][FEATURES], bool kept)
{
    for (int span = 0; span < SPANS; span++)
        fit_observe(&acceptance->fit[kind][span], kind, acceptance->decay[span], x[span], kept);
}

void acceptance_observe(struct acceptance *acceptance, const struct acceptance_signal *signal, bool kept)
{
    double x[SPANS][FEATURES];
    const enum acceptance_kind kind = set_features(acceptance, signal, x);
    observe(acceptance, kind, (const double (*)[FEATURES])x, kept);
    acceptance->seen = acceptance->decay[0] * acceptance->seen + 1;
    if (signal->before)
        return;
    for (int span = 0; span < SPANS; span++)
        set_ahead(x[span], signal->depth);
    observe(acceptance, ACCEPTANCE_AHEAD, (const double (*)[FEATURES])x, kept);
}

void acceptance_fade(struct acceptance *acceptance, double weight)
{
    acceptance->seen *= weight;
    for (int kind = 0; kind < ACCEPTANCE_KINDS; kind++)
        for (int span = 0; span < SPANS; span++)
            fit_fade(&acceptance->fit[kind][span], kind, weight);
}

void acceptance_signals(struct acceptance_signal *signal, const struct draft_tree *tree, int from)
{
    for (int node = from; node < tree->nodes; node++) {
        const int parent = tree->parent[node];
        int sibling = node - 1;
        float sure = NAN;
        while (sibling > parent && tree->parent[sibling] != parent)
            sibling--;
        if (parent >= 0)
            sure = isnan(signal[parent].stated) ? signal[parent].sure : signal[parent].stated;
        signal[node] = (struct acceptance_signal){.stated = tree->log_probability[node], .sure = sure,
                                                  .depth = tree->depth[node], .match = tree->match[node]};
        if (sibling <= parent)
            continue;
        signal[node].before = signal[sibling].before + 1;
        if (!isnan(signal[node].stated) && !isnan(signal[sibling].stated))
            signal[sibling].margin = signal[sibling].stated - signal[node].stated;
    }
}

double acceptance_of(const struct acceptance *acceptance, const struct acceptance_signal *signal)
{
    double x[SPANS][FEATURES];
    const enum acceptance_kind kind = set_features(acceptance, signal, x);
    return mix(acceptance->fit[kind], (const double (*)[FEATURES])x);
}

double acceptance_ahead(const struct acceptance *acceptance, int depth)
{
    double x[SPANS][FEATURES];
    for (int span = 0; span < SPANS; span++)
        set_ahead(x[span], depth);
    return mix(acceptance->fit[ACCEPTANCE_AHEAD], (const double (*)[FEATURES])x);
}

double acceptance_doubt(const struct acceptance *acceptance)
{
    const struct acceptance_fit *fit = acceptance->fit[ACCEPTANCE_AHEAD];
    const double of_short = weight_of_short(fit), p = fmin(0.95, fmax(0.05, acceptance_ahead(acceptance, 1)));
    double x[FEATURES], spread[FEATURES], variance = 0;
    set_ahead(x, 1);
    for (int span = 0; span < SPANS; span++) {
        fit_spread(&fit[span], x, spread);
        for (int i = 0; i < FEATURES; i++)
            variance += (span ? of_short : 1 - of_short) * x[i] * spread[i];
    }
    return p * (1 - p) * sqrt(variance);
}
