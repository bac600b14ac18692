/* A machine's memory, and its speeds of reading, multiplying and sending: the part of its description that does not depend on a
 * model. Read from a JSON file, such as the line of `moe-bench machine --products --json`, or measured here.
 *
 *     {"cpu": "AMD EPYC 7763", "available": 60e9, "read_bandwidth": 38e9,
 *      "products": {"bf16": [[1, 36e9], [4, 30e9], [16, 9e9]],         bytes of weights/s by the rows that share them
 *                   "q8": 1.1e12},                                      or rows x bytes/s
 *      "operation_us": 3,                                              an operation of the engine beside its weights
 *      "disk": {"bytes_per_second": 2e9, "latency_us": 90},            from which experts are read
 *      "gpu": {"name": "RTX 4090", "bytes": 24e9, "bytes_per_second": 1008e9},     "products" are its products then
 *      "link": {"bytes_per_second": 25e9, "latency_us": 10},           from the host's memory to the GPU
 *      "network": {"bytes_per_second": 12e9, "latency_us": 5}}         between ranks
 *
 * "memory" stands in for "available", and "machine" for "cpu". Keys that describe only (caches, kernel, notes, ...) are
 * skipped. Errors: ERR_INPUT, one line with the file's name. */
#ifndef MOE_BENCH_SPEEDS_H
#define MOE_BENCH_SPEEDS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "kernels/formats.h"

enum { SPEEDS_POINTS = 16, SPEEDS_NAME = 128 };

/* Products of matrices in one format. */
struct product_speed {
    int points;                         /* 0: `rows_bytes` holds for any number of rows */
    struct { int rows; double bytes_per_second; } point[SPEEDS_POINTS];     /* weights; ascending by rows, from 1 on */
    double rows_bytes;                  /* rows times bytes of weights per second; 0: unknown, only reading limits the
                                         * product */
};

struct transfer_speed {
    double bytes_per_second;            /* 0: unknown */
    double latency_s;
};

struct speeds {
    char name[SPEEDS_NAME];
    double memory;                      /* bytes of the host's memory that are left */
    double read_bandwidth;              /* bandwidth of the memory from which weights are computed; at least the speed of any
                                         * product */
    struct product_speed product[FORMAT_COUNT];
    double operation_s;
    bool gpu;
    char gpu_name[SPEEDS_NAME];
    double gpu_memory;
    struct transfer_speed disk, link, network;
};

int speeds_read(struct speeds *out, const char *path, struct err *err);

/* Returns seconds per byte of weights of a product for `rows` rows that share the weights; at least those of reading. Between
 * two points it is linear in rows; after the last it continues the line through the last two, or is proportional to rows. */
double speeds_per_byte(const struct speeds *speeds, enum weight_format format, double rows);

/* Raises read_bandwidth to the speed of the fastest product: it reads memory, too. */
void speeds_raise(struct speeds *speeds);

/* Corrects measured speeds that rise with the number of rows, as more rows are never faster: such points get the speed of their
 * mean time (pool adjacent violators). The fastest of them would be too fast, as it is the one that was disturbed least. */
void speeds_pool(struct product_speed *product);

/* Fits latency and bandwidth to `count` measured times of transfers, by least squares of relative errors. */
void speeds_fit(struct transfer_speed *out, const double *bytes, const double *seconds, int count);

/* ---- measuring */

struct speeds_setup {
    int threads;                        /* 0: one per processor */
    const char *isa;                    /* NULL: the best */
    bool format[FORMAT_COUNT];          /* formats whose products are measured */
    double seconds;                     /* seconds of measuring for each format, and for reading */
    size_t bytes;                       /* bytes that are read; the experts of products have a quarter of these in total */
    int hidden, inner;                  /* widths of these experts; 0: common ones */
    const char *disk;                   /* file that is read past the page cache; NULL: none */
};

/* Measures the host; its name and memory are not filled in. Products use weights in large pages where
 * the system supports them, as a mapped model has them. */
int speeds_measure(struct speeds *out, const struct speeds_setup *setup, struct err *err);

/* Write the measured part: a table; or the keys of the file above into `object`. */
int speeds_text(struct text *out, const struct speeds *speeds, struct err *err);
int speeds_json(json_t *object, const struct speeds *speeds, struct err *err);

#endif
