/* Measures the collective by which processes of one model exchange results (ranks.h): an all-gather in a ring. */
#ifndef MOE_BENCH_NETWORK_H
#define MOE_BENCH_NETWORK_H

#include "common/base/err.h"
#include "common/bench/speeds.h"
#include "common/ranks/ranks.h"

/* Returns the seconds of an all-gather of `bytes` bytes in total over a ring: each of ranks - 1 turns takes the latency and
 * sends bytes / ranks. */
double network_gather(const struct transfer_speed *network, int ranks, double bytes);

/* Measures all-gathers of several sizes for about `seconds` and fits latency and bandwidth of network_gather to their times, by
 * least squares of relative errors. Collective; needs at least two processes. */
int network_measure(struct transfer_speed *out, struct ranks *ranks, double seconds, struct err *err);

/* Fits latency and bandwidth to `count` measured times of all-gathers of `bytes`. Not collective. */
void network_fit(struct transfer_speed *out, int ranks, const double *bytes, const double *seconds, int count);

#endif
