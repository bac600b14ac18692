/* How long a drafter's steps take, by Bayesian linear regression (the summary of CAS-Spec, arXiv 2510.26843, says that
 * latencies are predicted so, and not by which features). The features here are those of a roofline:
 *
 *     seconds = a steps + b levels + c nodes
 *
 * a call has a fixed price, each level of a tree reads the drafter's weights once, and each node is some work besides. The
 * prior is that only levels cost, with the weight of a few observations on the others. Older observations count less, as
 * machines and texts drift. Outliers count less, too (Huber's weights, recomputed for the most recent observations each time):
 * one slow call among seven must not decide what a drafter costs. */
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

/* Over observations, each with its weight; without the prior. */
struct latency_sums { double precision[LATENCY_FEATURES][LATENCY_FEATURES], moment[LATENCY_FEATURES]; };

struct latency {
    double memory;                      /* weight of an observation when the next one comes */
    struct latency_sums older;          /* of observations before those of the window */
    struct latency_sample window[LATENCY_WINDOW];               /* a ring of the most recent ones */
    int64_t count;
    int idle;                           /* iterations since the last observation */
    double mean[LATENCY_FEATURES];      /* of the posterior: a, b, c; none below 0 */
    double caught_up_s;                 /* average time of reading the text after a rest; 0: never seen */
    bool begun;
};

void latency_init(struct latency *latency, double memory);

/* Observes one iteration of one drafter; without a step only the time since the last observation grows. */
void latency_observe(struct latency *latency, const struct draft_share *share);

/* Seconds; 0 before anything was seen. */
double latency_of(const struct latency *latency, int steps, int levels, int nodes);

#endif
