/* The yardstick of every report: how fast this machine's memory can be read. */
#ifndef MOE_BENCH_ROOFLINE_H
#define MOE_BENCH_ROOFLINE_H

#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/tensor/device.h"

#define ROOFLINE_BYTES ((size_t)512 << 20)      /* read over and over; larger than the caches of most machines */

struct roofline {
    char device[64], isa[64];                   /* "host", "avx512" */
    int threads;
    double bytes_per_second;                    /* with all threads; NaN: the device has no such measure */
    double one_thread;                          /* with one; NaN: not measured */
};

/* Device, instruction set and threads; the measures are left alone. */
void roofline_describe(const struct device *device, struct roofline *out);

/* Reads `bytes` of memory with the device's threads for about `seconds`; the best of several readers. */
int roofline_measure(struct device *device, size_t bytes, double seconds, double *bytes_per_second, struct err *err);

/* With all threads, and with one. A device without such a measure is an error. */
int roofline_make(const struct device_setup *setup, size_t bytes, double seconds, struct roofline *out, struct err *err);

int roofline_text(struct text *out, const struct roofline *roofline, size_t bytes, struct err *err);
int roofline_json(struct text *out, const struct roofline *roofline, size_t bytes, struct err *err);

#endif
