#include "common/predict/latency.h"

#include <math.h>

/* Of steps, levels and nodes, in observations; the prior's mean is 0. */
static const double prior[LATENCY_FEATURES] = {0.5, 1e-6, 4};
static const double memory_catch_up = 0.9;

void latency_init(struct latency *latency, double memory)
{
    *latency = (struct latency){.memory = memory};
}

/* The posterior's mean over the features that are in use, by Cholesky's decomposition. */
static void solve(const struct latency *latency, const bool *used, double *out)
{
    double lower[LATENCY_FEATURES][LATENCY_FEATURES] = {{0}}, half[LATENCY_FEATURES] = {0};
    for (int i = 0; i < LATENCY_FEATURES; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = i == j ? (used[i] ? latency->precision[i][i] + prior[i] : 1)
                                : used[i] && used[j] ? latency->precision[i][j] : 0;
            for (int k = 0; k < j; k++)
                sum -= lower[i][k] * lower[j][k];
            lower[i][j] = i == j ? sqrt(fmax(sum, 1e-12)) : sum / lower[j][j];
        }
        half[i] = used[i] ? latency->moment[i] : 0;
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

/* Nothing takes less than no time: a feature whose part comes out below 0 is left out. */
static void learn(struct latency *latency)
{
    bool used[LATENCY_FEATURES] = {true, true, true};
    for (int left = 0; left < LATENCY_FEATURES; left++) {
        int worst = -1;
        solve(latency, used, latency->mean);
        for (int i = 0; i < LATENCY_FEATURES; i++)
            if (latency->mean[i] < 0 && (worst < 0 || latency->mean[i] < latency->mean[worst]))
                worst = i;
        if (worst < 0)
            return;
        used[worst] = false;
    }
}

void latency_observe(struct latency *latency, const struct draft_share *share)
{
    const double x[LATENCY_FEATURES] = {share->steps, share->levels, share->proposed};
    const double seconds = share->seconds - share->caught_up_s;
    if (share->caught_up && share->caught_up_s >= 0 && isfinite(share->caught_up_s))
        latency->caught_up_s += (share->caught_up_s - latency->caught_up_s) *
                                (latency->caught_up_s > 0 ? 1 - memory_catch_up : 1);
    if (!share->steps || !share->levels || !(seconds >= 0 && isfinite(seconds)))
        return;
    latency->begun = true;
    for (int i = 0; i < LATENCY_FEATURES; i++) {
        for (int j = 0; j < LATENCY_FEATURES; j++)
            latency->precision[i][j] = latency->memory * latency->precision[i][j] + x[i] * x[j];
        latency->moment[i] = latency->memory * latency->moment[i] + x[i] * seconds;
    }
    learn(latency);
}

double latency_of(const struct latency *latency, int steps, int levels, int nodes)
{
    return latency->mean[0] * steps + latency->mean[1] * levels + latency->mean[2] * nodes;
}
