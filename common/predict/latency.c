#include "common/predict/latency.h"

#include <math.h>
#include <stdlib.h>

/* Weight of the prior for steps, levels and nodes, in observations; the mean of the prior is 0. */
static const double prior[LATENCY_FEATURES] = {0.5, 1e-6, 4};
static const double memory_catch_up = 0.9;
static const double huber = 1.345;      /* standard deviations beyond which an outlier's weight falls */

enum { FITS = 4 };

void latency_init(struct latency *latency, double memory)
{
    *latency = (struct latency){.memory = memory};
}

/* Computes the posterior's mean over the features that are in use, by Cholesky's decomposition. */
static void solve(const struct latency_sums *sums, const bool *used, double *out)
{
    double lower[LATENCY_FEATURES][LATENCY_FEATURES] = {{0}}, half[LATENCY_FEATURES] = {0};
    for (int i = 0; i < LATENCY_FEATURES; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = i == j ? (used[i] ? sums->precision[i][i] + prior[i] : 1)
                                : used[i] && used[j] ? sums->precision[i][j] : 0;
            for (int k = 0; k < j; k++)
                sum -= lower[i][k] * lower[j][k];
            lower[i][j] = i == j ? sqrt(fmax(sum, 1e-12)) : sum / lower[j][j];
        }
        half[i] = used[i] ? sums->moment[i] : 0;
        for (int k = 0; k < i; k++)
            half[i] -= lower[i][k] * half[k];
        half[i] /= lower[i][i];
    }
    for (int i = LATENCY_FEATURES - 1; i >= 0; i--) {
        out[i] = half[i];
        for (int k = i + 1; k < LATENCY_FEATURES; k++)
            out[i] -= lower[k][i] * out[k];
        out[i] /= lower[i][i];
    }
}

/* Computes the posterior's mean without negative times: a feature with a negative coefficient is removed. */
static void solve_positive(const struct latency_sums *sums, double *mean)
{
    bool used[LATENCY_FEATURES] = {true, true, true};
    for (int left = 0; left < LATENCY_FEATURES; left++) {
        int worst = -1;
        solve(sums, used, mean);
        for (int i = 0; i < LATENCY_FEATURES; i++)
            if (mean[i] < 0 && (worst < 0 || mean[i] < mean[worst]))
                worst = i;
        if (worst < 0)
            return;
        used[worst] = false;
    }
}

static void add(struct latency_sums *sums, const struct latency_sample *sample, double weight)
{
    for (int i = 0; i < LATENCY_FEATURES; i++) {
        for (int j = 0; j < LATENCY_FEATURES; j++)
            sums->precision[i][j] += weight * sample->x[i] * sample->x[j];
        sums->moment[i] += weight * sample->x[i] * sample->seconds;
    }
}

static void fade(struct latency_sums *sums, double weight)
{
    for (int i = 0; i < LATENCY_FEATURES; i++) {
        for (int j = 0; j < LATENCY_FEATURES; j++)
            sums->precision[i][j] *= weight;
        sums->moment[i] *= weight;
    }
}

static int samples(const struct latency *latency)
{
    return latency->count < LATENCY_WINDOW ? (int)latency->count : LATENCY_WINDOW;
}

static int ascending(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double *value, int count)
{
    qsort(value, (size_t)count, sizeof *value, ascending);
    return count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2;
}

static double residual(const struct latency_sample *sample, const double *mean)
{
    double seconds = 0;
    for (int i = 0; i < LATENCY_FEATURES; i++)
        seconds += mean[i] * sample->x[i];
    return fabs(sample->seconds - seconds) / sample->x[1];
}

/* Weighs the window's observations by their distance from `mean`; typical: seconds per level. */
static void weigh(struct latency *latency, const double *mean, double typical)
{
    double apart[LATENCY_WINDOW];
    const int count = samples(latency);
    for (int i = 0; i < count; i++)
        apart[i] = residual(&latency->window[i], mean);
    double limit = huber * fmax(median(apart, count) / 0.6745, 0.01 * typical);
    for (int i = 0; i < count; i++) {
        double far = residual(&latency->window[i], mean);
        latency->window[i].weight = far > limit ? limit / far : 1;
    }
}

static void learn(struct latency *latency)
{
    const int count = samples(latency);
    double level[LATENCY_WINDOW];
    for (int i = 0; i < count; i++)
        level[i] = latency->window[i].seconds / latency->window[i].x[1];
    const double typical = median(level, count);
    double mean[LATENCY_FEATURES] = {0, typical, 0};
    for (int fit = 0; fit < FITS; fit++) {
        struct latency_sums sums = latency->older;
        weigh(latency, mean, typical);
        for (int age = count - 1; age >= 0; age--) {
            const struct latency_sample *sample = &latency->window[(latency->count - 1 - age) % LATENCY_WINDOW];
            fade(&sums, latency->memory);
            add(&sums, sample, sample->weight);
        }
        solve_positive(&sums, mean);
    }
    for (int i = 0; i < LATENCY_FEATURES; i++)
        latency->mean[i] = mean[i];
}

void latency_observe(struct latency *latency, const struct draft_share *share)
{
    const double seconds = share->seconds - share->caught_up_s;
    if (share->caught_up && share->caught_up_s >= 0 && isfinite(share->caught_up_s))
        latency->caught_up_s += (share->caught_up_s - latency->caught_up_s) *
                                (latency->caught_up_s > 0 ? 1 - memory_catch_up : 1);
    latency->idle += latency->idle < INT32_MAX;
    if (!share->steps || !share->levels || !(seconds >= 0 && isfinite(seconds)))
        return;
    struct latency_sample *sample = &latency->window[latency->count % LATENCY_WINDOW];
    latency->begun = true;
    latency->idle = 0;
    if (latency->count >= LATENCY_WINDOW) {
        fade(&latency->older, latency->memory);
        add(&latency->older, sample, sample->weight);
    }
    *sample = (struct latency_sample){.x = {share->steps, share->levels, share->proposed}, .seconds = seconds, .weight = 1};
    latency->count++;
    learn(latency);
}

double latency_of(const struct latency *latency, int steps, int levels, int nodes)
{
    return latency->mean[0] * steps + latency->mean[1] * levels + latency->mean[2] * nodes;
}
