#include "common/bench/speeds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/bench/roofline.h"
#include "common/report/stats.h"
#include "common/store/reads.h"

/* Products: a matrix [outputs][INPUTS] larger than the caches of most machines. */
enum { INPUTS = 2048, ROWS_MAX = 32 };
static const int row_counts[] = {1, 2, 3, 4, 6, 8, 12, 16, ROWS_MAX};

struct bench {
    struct device *device;
    struct buffer in, out, operand;
    void *weights;                      /* [bytes] */
    size_t bytes;
    int outputs_max;                    /* of the formats that are measured */
};

static int outputs_of(enum weight_format format, size_t bytes)
{
    size_t units = bytes / unit_bytes(format, INPUTS), max = (1 << 24) / UNIT_OUTPUTS;
    return (int)(units < 1 ? 1 : units < max ? units : max) * UNIT_OUTPUTS;
}

static int bench_open(struct bench *b, const struct speeds_setup *setup, struct err *err)
{
    const struct device_setup host = {.name = "host", .threads = setup->threads, .isa = setup->isa};
    size_t operand = 0;
    b->bytes = setup->bytes / 4 > (1 << 20) ? setup->bytes / 4 : 1 << 20;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        size_t bytes = operand_bytes((enum weight_format)f, INPUTS);
        operand = setup->format[f] && bytes > operand ? bytes : operand;
        const int outputs = outputs_of((enum weight_format)f, b->bytes);
        b->outputs_max = setup->format[f] && outputs > b->outputs_max ? outputs : b->outputs_max;
    }
    if (device_open(&b->device, &host, err))
        return -1;
    if (device_alloc(b->device, (size_t)ROWS_MAX * INPUTS * sizeof(float), &b->in, err) ||
        device_alloc(b->device, (size_t)ROWS_MAX * (size_t)(b->outputs_max + UNIT_OUTPUTS) * sizeof(float), &b->out, err) ||
        device_alloc(b->device, ROWS_MAX * operand + 64, &b->operand, err))
        return -1;
    for (size_t i = 0; i < (size_t)ROWS_MAX * INPUTS; i++)
        ((float *)(uintptr_t)b->in.address)[i] = 1;
    b->weights = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->weights == MAP_FAILED) {
        b->weights = NULL;
        return err_memory(err);
    }
    madvise(b->weights, b->bytes, MADV_NOHUGEPAGE);
    memset(b->weights, 0, b->bytes);     /* writes: pages that were only read would all be one page */
    return 0;
}

static void bench_close(struct bench *b)
{
    if (!b->device)
        return;
    device_free(b->device, &b->in);
    device_free(b->device, &b->out);
    device_free(b->device, &b->operand);
    if (b->weights)
        munmap(b->weights, b->bytes);
    device_close(&b->device);
}

static int time_product(struct bench *b, enum weight_format format, int rows, int outputs, double *seconds, struct err *err)
{
    struct queue *queue = device_queue(b->device);
    const struct linear_args args = {
        .in = b->in, .weight = device_map(b->device, b->weights, b->bytes), .out = b->out, .operand = b->operand,
        .format = format, .rows = rows, .inputs = INPUTS, .outputs = outputs};
    double begin = clock_seconds();
    device_ops(b->device)->linear(queue, &args);
    if (queue_wait(b->device, err))
        return -1;
    *seconds = clock_seconds() - begin;
    return 0;
}

/* Row counts are interleaved; the median of each counts, as of a text's tokens. */
static int measure_format(struct bench *b, enum weight_format format, double limit, struct product_speed *out, struct err *err)
{
    enum { COUNTS = sizeof row_counts / sizeof *row_counts, TRIALS_MIN = 5, TRIALS_MAX = 64 };
    const int outputs = outputs_of(format, b->bytes);
    const double bytes = (double)unit_bytes(format, INPUTS) * (outputs / UNIT_OUTPUTS), end = clock_seconds() + limit;
    double seconds[COUNTS][TRIALS_MAX];
    int trials = 0;
    for (; trials < TRIALS_MIN || (trials < TRIALS_MAX && clock_seconds() < end); trials++)
        for (int i = 0; i < COUNTS; i++)
            if (time_product(b, format, row_counts[i], outputs, &seconds[i][trials], err))
                return -1;
    for (int i = 0; i < COUNTS; i++) {
        out->point[i].rows = row_counts[i];
        out->point[i].bytes_per_second = bytes / stats_quantile(seconds[i], (size_t)trials, 0.5);
    }
    for (int i = COUNTS - 2; i >= 0; i--)       /* fewer rows are never slower: such a measurement was disturbed */
        out->point[i].bytes_per_second = fmax(out->point[i].bytes_per_second, out->point[i + 1].bytes_per_second);
    out->points = COUNTS;
    return 0;
}

/* Measures what an operation takes beside its weights: a product with a matrix of one unit, which stays in the caches. */
static int measure_operation(struct bench *b, double *out, struct err *err)
{
    enum { TRIALS = 2000 };
    double seconds[TRIALS];
    for (int i = 0; i < TRIALS; i++)
        if (time_product(b, FORMAT_F32, 1, UNIT_OUTPUTS, &seconds[i], err))
            return -1;
    *out = stats_quantile(seconds, TRIALS, 0.5);
    return 0;
}

/* ---- disk */

enum { PIECE = 4 << 20, DEPTH = 8, SINGLES = 16 };

/* Reads pieces of the file with DEPTH reads in flight until the time is over or all is read. */
static int read_pieces(struct reads *reads, char *memory, uint64_t pieces, double limit, double *speed, struct err *err)
{
    const double begin = clock_seconds();
    uint64_t started = 0, ended = 0;
    int tag;
    for (; started < pieces && started < DEPTH; started++)
        if (reads_start(reads, (int)started, memory + started * PIECE, started * PIECE, PIECE, err))
            return -1;
    for (; ended < started; ended++) {
        if (reads_next(reads, true, &tag, err) < 0)
            return -1;
        if (started < pieces && clock_seconds() < begin + limit) {
            if (reads_start(reads, tag, memory + (size_t)tag * PIECE, started * PIECE, PIECE, err))
                return -1;
            started++;
        }
    }
    *speed = (double)ended * PIECE / (clock_seconds() - begin);
    return 0;
}

/* Latency: of single blocks, spread over the file. */
static int read_singles(const struct direct_file *file, char *memory, double *latency, struct err *err)
{
    const uint64_t step = file->bytes / SINGLES / DIRECT_STEP * DIRECT_STEP;
    const double begin = clock_seconds();
    for (uint64_t i = 0; i < SINGLES; i++)
        if (direct_read(file, memory, i * step, DIRECT_STEP, err))
            return -1;
    *latency = (clock_seconds() - begin) / SINGLES;
    return 0;
}

static int measure_disk(const char *path, double limit, struct transfer_speed *out, struct err *err)
{
    struct direct_file file = {0};
    struct reads *reads = NULL;
    char *memory = NULL;
    int rc = -1;
    if (direct_open(&file, path, err))
        return -1;
    if (file.bytes < (uint64_t)DEPTH * PIECE) {
        err_set(err, ERR_INPUT, "%s: has %llu bytes; reading is measured with a file of %d MiB or more, such as a model", path,
                (unsigned long long)file.bytes, DEPTH * PIECE >> 20);
        goto done;
    }
    memory = mmap(NULL, (size_t)DEPTH * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        memory = NULL;
        err_memory(err);
        goto done;
    }
    memset(memory, 1, (size_t)DEPTH * PIECE);
    if (reads_open(&reads, &file, DEPTH, false, err) || read_singles(&file, memory, &out->latency_s, err) ||
        read_pieces(reads, memory, file.bytes / PIECE, limit, &out->bytes_per_second, err))
        goto done;
    rc = 0;
done:
    reads_close(&reads);
    if (memory)
        munmap(memory, (size_t)DEPTH * PIECE);
    direct_close(&file);
    return rc;
}

int speeds_measure(struct speeds *out, const struct speeds_setup *setup, struct err *err)
{
    struct speeds made = {.memory = 0};
    struct bench bench = {.device = NULL};
    int rc = bench_open(&bench, setup, err) ||
             roofline_measure(bench.device, setup->bytes, setup->seconds, &made.read_bandwidth, err) ||
             measure_operation(&bench, &made.operation_s, err) ? -1 : 0;
    for (int f = 0; !rc && f < FORMAT_COUNT; f++)
        if (setup->format[f])
            rc = measure_format(&bench, (enum weight_format)f, setup->seconds, &made.product[f], err);
    bench_close(&bench);
    if (!rc && setup->disk)
        rc = measure_disk(setup->disk, setup->seconds, &made.disk, err);
    if (!rc)
        *out = made;
    return rc;
}
