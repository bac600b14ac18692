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
    size_t bytes;                               /* that were read over and over; 0: not known */
};

/* Device, instruction set and threads; the measures are left alone. */
void roofline_describe(const struct device *device, struct roofline *out);

/* Reads `bytes` of memory with the device's threads for about `seconds`; the best of several readers. */
int roofline_measure(struct device *device, size_t bytes, double seconds, double *bytes_per_second, struct err *err);

/* With all threads, and with one. file: it is mapped as a model is, and read whole in place of `bytes` of memory; NULL: none.
 * A device without such a measure is an error. */
int roofline_make(const struct device_setup *setup, const char *file, size_t bytes, double seconds, struct roofline *out,
                  struct err *err);

int roofline_text(struct text *out, const struct roofline *roofline, struct err *err);
int roofline_json(struct text *out, const struct roofline *roofline, struct err *err);

#endif
