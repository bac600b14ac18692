/* Predicts how long a drafter's steps take, by Bayesian linear regression (the summary of CAS-Spec, arXiv 2510.26843, says
 * that latencies are predicted in this way, but not from which features). The features here are those of a roofline:
 *
 *     seconds = a steps + b levels + c nodes
 *
 * A call has a fixed cost, each level of a tree reads the drafter's weights once, and each node costs some work. The prior
 * assumes that steps and nodes cost nothing, with the weight of a few observations. Older observations have lower weights,
 * because machines and texts drift. Outliers have lower weights, too (Huber's weights, recomputed for the most recent
 * observations each time): one slow call among seven must not determine a drafter's predicted cost. */
#ifndef MOE_PREDICT_LATENCY_H
#define MOE_PREDICT_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/draft/share.h"

enum { LATENCY_FEATURES = 3, LATENCY_WINDOW = 24 };

struct latency_sample {
    double x[LATENCY_FEATURES], seconds;
    double weight;                      /* 1, or less for an outlier */
};

/* Sums over observations, each with its weight; without the prior. */
struct latency_sums { double precision[LATENCY_FEATURES][LATENCY_FEATURES], moment[LATENCY_FEATURES]; };

struct latency {
    double memory;                      /* factor on the weight of earlier observations per new one */
    struct latency_sums older;          /* sums of observations older than the window */
    struct latency_sample window[LATENCY_WINDOW];               /* ring buffer of the most recent observations */
    int64_t count;
    int idle;                           /* iterations since the last observation */
    double mean[LATENCY_FEATURES];      /* mean of the posterior: a, b, c; none below 0 */
    double caught_up_s;                 /* mean time of reading the text after a pause; 0: not measured */
    bool begun;
};

void latency_init(struct latency *latency, double memory);

/* Observes one iteration of one drafter; without a step it only counts the iterations since the last observation. */
void latency_observe(struct latency *latency, const struct draft_share *share);

/* Returns predicted seconds; 0 before the first observation. */
double latency_of(const struct latency *latency, int steps, int levels, int nodes);

#endif
