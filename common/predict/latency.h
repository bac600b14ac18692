/* What a drafter's steps take, by Bayesian linear regression (CAS-Spec, arXiv 2510.26843, predicts latencies so; which features
 * it takes is not in the text that is known of it). Here they are what a roofline has:
 *
 *     seconds = a steps + b levels + c nodes
 *
 * a call has a fixed price, each level of a tree reads the drafter's weights once, and each node is some work besides. The
 * prior is that only levels cost, with the weight of a few observations on the others; older observations count less, as
 * machines and texts drift. */
#ifndef MOE_PREDICT_LATENCY_H
#define MOE_PREDICT_LATENCY_H

#include <stdbool.h>

#include "common/draft/share.h"

enum { LATENCY_FEATURES = 3 };

struct latency {
    double memory;                      /* what an observation weighs when the next one comes */
    double precision[LATENCY_FEATURES][LATENCY_FEATURES];       /* without the prior */
    double moment[LATENCY_FEATURES];
    double mean[LATENCY_FEATURES];      /* of the posterior: a, b, c; none below 0 */
    double caught_up_s;                 /* what reading the text after a rest took, on average; 0: never seen */
    bool begun;
};

void latency_init(struct latency *latency, double memory);

/* One iteration of one drafter; without a step nothing is learned. */
void latency_observe(struct latency *latency, const struct draft_share *share);

/* Seconds; 0 before anything was seen. */
double latency_of(const struct latency *latency, int steps, int levels, int nodes);

#endif
