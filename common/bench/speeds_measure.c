#include "common/bench/speeds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/large_pages.h"
#include "common/base/mem.h"
#include "common/bench/disk.h"
#include "common/bench/roofline.h"
#include "common/model/hparams.h"
#include "common/report/stats.h"

/* The products of experts are measured, which read the greater part of a model's weights: each of up to ROWS_MAX rows uses all
 * experts, whose weights together are larger than the processor's caches, so every expert has this number of rows. */
enum { ROWS_MAX = 32, HIDDEN = 2048, HIDDEN_SMALL = 512, SMALL = 16 << 20, BENCH_EXPERTS = EXPERTS_MAX };
enum { OUTPUTS = 64, INPUTS = 1536 };   /* matrix of a measured operation: 384 KiB in f32 */
static const int row_counts[] = {1, 2, 3, 4, 6, 8, 12, 16, ROWS_MAX};

struct bench {
    struct device *device;
    void *weights;                      /* [bytes] */
    size_t bytes;
    int hidden, inner;
    struct buffer in, out, expert, table, between, partial, group, operand;     /* expert_ffn.h; `between` is its `inner` */
};

static int experts_of(const struct bench *b, enum weight_format format, size_t *each)
{
    *each = 0;
    expert_bytes(format, b->hidden, b->inner, each);
    const size_t count = b->bytes / *each;
    return count < 1 ? 1 : count < BENCH_EXPERTS ? (int)count : BENCH_EXPERTS;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Raises `bytes` to one expert of any format at least, and allocates the buffers for the largest number of experts. */
static int open_buffers(struct bench *b, const struct speeds_setup *setup, struct err *err)
{
    size_t operand = 0, each, max = 1;
    for (int f = 0; f < FORMAT_COUNT; f++)
        if (setup->format[f]) {
            experts_of(b, (enum weight_format)f, &each);
            b->bytes = larger(b->bytes, each);
        }
    for (int f = 0; f < FORMAT_COUNT; f++)
        if (setup->format[f]) {
            const enum weight_format format = (enum weight_format)f;
            operand = larger(operand, larger(operand_bytes(format, b->hidden), operand_bytes(format, b->inner)));
            max = larger(max, (size_t)experts_of(b, format, &each));
        }
    const size_t pairs = max * ROWS_MAX, hidden = (size_t)b->hidden, inner = (size_t)b->inner;
    return device_alloc(b->device, (ROWS_MAX * hidden + INPUTS) * sizeof(float), &b->in, err) ||
           device_alloc(b->device, (ROWS_MAX * hidden + OUTPUTS) * sizeof(float), &b->out, err) ||
           device_alloc(b->device, pairs * sizeof(int32_t), &b->expert, err) ||
           device_alloc(b->device, max * sizeof(uint64_t), &b->table, err) ||
           device_alloc(b->device, pairs * inner * sizeof(float), &b->between, err) ||
           device_alloc(b->device, pairs * hidden * sizeof(float), &b->partial, err) ||
           device_alloc(b->device, expert_group_numbers(max, pairs) * sizeof(int32_t), &b->group, err) ||
           device_alloc(b->device, pairs * (operand + 64), &b->operand, err) ? -1 : 0;
}

static int bench_open(struct bench *b, const struct speeds_setup *setup, struct err *err)
{
    const struct device_setup host = {.name = "host", .threads = setup->threads, .isa = setup->isa};
    b->bytes = setup->bytes / 4 > 1 << 20 ? setup->bytes / 4 : 1 << 20;
    b->hidden = setup->hidden ? setup->hidden : b->bytes < SMALL ? HIDDEN_SMALL : HIDDEN;
    b->inner = setup->inner ? setup->inner : b->hidden / 2;
    if (device_open(&b->device, &host, err) || open_buffers(b, setup, err))
        return -1;
    for (int i = 0; i < ROWS_MAX * b->hidden + INPUTS; i++)
        ((float *)(uintptr_t)b->in.address)[i] = 1;
    if (!(b->weights = large_pages_alloc(b->bytes)))    /* large pages, as in a mapped model */
        return err_memory(err);
    memset(b->weights, 0, b->bytes);    /* writes: pages that were only read would all be one page */
    return 0;
}

static void bench_close(struct bench *b)
{
    struct buffer *const buffers[] = {&b->in, &b->out, &b->expert, &b->table, &b->between, &b->partial, &b->group, &b->operand};
    if (!b->device)
        return;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        device_free(b->device, buffers[i]);
    large_pages_free(&b->weights, b->bytes);
    device_close(&b->device);
}

static int time_experts(struct bench *b, enum weight_format format, int rows, int experts, size_t each, double *seconds,
                        struct err *err)
{
    const struct expert_ffn_args args = {
        .in = b->in, .out = b->out, .expert = b->expert, .table = b->table, .inner = b->between, .partial = b->partial,
        .group = b->group, .operand = b->operand, .format = format, .down_format = format, .rows = rows, .slots = experts,
        .experts = experts, .hidden = b->hidden, .inner_width = b->inner};
    const struct buffer all = device_map(b->device, b->weights, b->bytes);
    for (int e = 0; e < experts; e++)
        ((uint64_t *)(uintptr_t)b->table.address)[e] = buffer_part(all, (size_t)e * each, each).address;
    for (int i = 0; i < rows * experts; i++)
        ((int32_t *)(uintptr_t)b->expert.address)[i] = i % experts;
    double begin = clock_seconds();
    device_ops(b->device)->expert_ffn(device_queue(b->device), &args);
    if (queue_wait(b->device, err))
        return -1;
    *seconds = clock_seconds() - begin;
    return 0;
}

/* Measures the products of one format. Row counts are interleaved; for each the median time is used, like the times of a
 * text's tokens. */
static int measure_format(struct bench *b, enum weight_format format, double limit, struct product_speed *out, struct err *err)
{
    enum { COUNTS = sizeof row_counts / sizeof *row_counts, TRIALS_MIN = 5, TRIALS_MAX = 64 };
    size_t each;
    const int experts = experts_of(b, format, &each);
    const double bytes = (double)each * experts, end = clock_seconds() + limit;
    double seconds[COUNTS][TRIALS_MAX];
    int trials = 0;
    for (; trials < TRIALS_MIN || (trials < TRIALS_MAX && clock_seconds() < end); trials++)
        for (int i = 0; i < COUNTS; i++)
            if (time_experts(b, format, row_counts[i], experts, each, &seconds[i][trials], err))
                return -1;
    for (int i = 0; i < COUNTS; i++) {
        out->point[i].rows = row_counts[i];
        out->point[i].bytes_per_second = bytes / stats_quantile(seconds[i], (size_t)trials, 0.5);
    }
    out->points = COUNTS;
    speeds_pool(out);
    return 0;
}

/* Measures the time of an operation without weights: a product with a matrix that stays in the caches, and is just large enough
 * for all threads to share it. */
static int measure_operation(struct bench *b, double *out, struct err *err)
{
    enum { TRIALS = 2000 };
    double seconds[TRIALS];
    const struct linear_args args = {
        .in = b->in, .weight = device_map(b->device, b->weights, b->bytes), .out = b->out, .operand = b->operand,
        .format = FORMAT_F32, .rows = 1, .inputs = INPUTS, .outputs = OUTPUTS};
    for (int i = 0; i < TRIALS; i++) {
        double begin = clock_seconds();
        device_ops(b->device)->linear(device_queue(b->device), &args);
        if (queue_wait(b->device, err))
            return -1;
        seconds[i] = clock_seconds() - begin;
    }
    *out = stats_quantile(seconds, TRIALS, 0.5);
    return 0;
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
        rc = disk_measure(setup->disk, setup->seconds, &made.disk, err);
    speeds_raise(&made);
    if (!rc)
        *out = made;
    return rc;
}
