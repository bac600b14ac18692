/* Measures how fast experts are read from a model's file. */
#ifndef MOE_BENCH_DISK_H
#define MOE_BENCH_DISK_H

#include "common/base/err.h"
#include "common/bench/speeds.h"

enum { DISK_BURST = 32 << 20 };         /* bytes of the largest burst, and the least that a file must have */

/* Reads bursts of 1 to 32 MiB at random places past the page cache, like the missing experts of a layer: reads of a burst start
 * together, into large pages, and all have ended before the next burst. Fits latency and bandwidth to their median times. Takes
 * about `seconds`, but at least five bursts of each size. */
int disk_measure(const char *path, double seconds, struct transfer_speed *out, struct err *err);

#endif
