/* Measures the read bandwidth of this machine's memory, with which every report compares. */
#ifndef MOE_BENCH_ROOFLINE_H
#define MOE_BENCH_ROOFLINE_H

#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/tensor/device.h"

#define ROOFLINE_BYTES ((size_t)512 << 20)      /* read repeatedly; larger than the caches of most machines */

struct roofline {
    char device[64], isa[64];                   /* "host", "avx512" */
    int threads;
    double bytes_per_second;                    /* bandwidth with all threads; NaN: the device cannot measure it */
    double one_thread;                          /* bandwidth with one thread; NaN: not measured */
    size_t bytes;                               /* size of the memory read; 0: unknown */
};

/* Fills in device, instruction set and threads; leaves the measurements unchanged. */
void roofline_describe(const struct device *device, struct roofline *out);

/* Measures the read bandwidth of `bytes` of memory with all threads of the device, for about `seconds`; the best of several
 * ways of reading. */
int roofline_measure(struct device *device, size_t bytes, double seconds, double *bytes_per_second, struct err *err);

/* Measures with all threads and with one. file: a file that is mapped as a model is and read completely, in place of `bytes`
 * of memory; NULL: none. A device that cannot measure is an error. */
int roofline_make(const struct device_setup *setup, const char *file, size_t bytes, double seconds, struct roofline *out,
                  struct err *err);

/* Append the measurements as text, or as one JSON object. */
int roofline_text(struct text *out, const struct roofline *roofline, struct err *err);
int roofline_json(struct text *out, const struct roofline *roofline, struct err *err);

#endif
