/* Cost of a forward that leaves parts out, compared with the whole forward of the same run: for each degree of self-drafting
 * a token passes the whole model and its part, PAIRS times alternately. A line shows the share of the bytes that the part
 * reads, its share of the time, and the median over pairs of the second divided by the first: 1 if time is proportional to
 * bytes. Then the same for verifications of four tokens that resume from an exit. Between two forwards the processor's
 * caches are filled with other data; otherwise the second one would find the first one's data there.
 *
 *     parts MODEL [PAIRS] [THREADS] */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/draft/skip_file.h"
#include "common/engine/engine.h"

enum { BEFORE = 64, ROWS = 4, PAIRS_MAX = 1000 };

static const size_t EVICT = (size_t)1 << 29;

struct bench {
    struct model *model;
    struct device *device;
    struct expert_source *experts;
    struct engine *engine;
    struct sequence *sequence;
    int pairs, threads;
    unsigned char *evict;               /* [EVICT] */
    unsigned sum;                       /* sum of what was read, so that the reads are not optimised away */
};

struct cost {
    double seconds;
    int64_t bytes;
};

static int bench_open(struct bench *bench, const char *path, struct err *err)
{
    int32_t token[BEFORE];
    struct forward forward;
    if (!(bench->evict = mem_alloc(EVICT, 1, err)) || model_open(&bench->model, path, err) ||
        device_open(&bench->device, &(struct device_setup){.name = "host", .threads = bench->threads}, err) ||
        (hparams_moe_layers(model_hparams(bench->model)) &&
         expert_source_open(&bench->experts, bench->model, bench->device, err)))
        return -1;
    const struct engine_setup setup = {.model = bench->model, .device = bench->device, .experts = bench->experts,
                                       .max_rows = BEFORE, .max_logit_rows = ROWS};
    if (engine_open(&bench->engine, &setup, err) || sequence_open(&bench->sequence, bench->engine, 2 * BEFORE, err))
        return -1;
    for (int i = 0; i < BEFORE; i++)
        token[i] = i * 97 % model_hparams(bench->model)->vocab;
    return engine_prompt(bench->engine, bench->sequence, token, BEFORE, NULL, NULL, NULL, &forward, err);
}

static void bench_close(struct bench *bench)
{
    sequence_close(&bench->sequence);
    engine_close(&bench->engine);
    expert_source_close(&bench->experts);
    device_close(&bench->device);
    model_close(&bench->model);
    mem_free(&bench->evict);
}

static int measure(struct bench *bench, int first, int rows, const struct forward_part *part, bool resume, struct cost *out,
                   struct err *err)
{
    int32_t token[ROWS];
    struct forward forward;
    for (int i = 0; i < rows; i++)
        token[i] = (first + i) * 131 % model_hparams(bench->model)->vocab;
    const struct batch batch = {.rows = rows, .token = token, .logit_rows = rows, .part = part, .resume = resume};
    for (size_t i = 0; i < EVICT; i += 64)
        bench->sum += bench->evict[i]++;
    double began = clock_seconds();
    if (engine_forward(bench->engine, bench->sequence, &batch, &forward, err))
        return -1;
    *out = (struct cost){clock_seconds() - began, forward.bytes};
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *value, int count)
{
    qsort(value, (size_t)count, sizeof *value, ascending);
    return (value[(count - 1) / 2] + value[count / 2]) / 2;
}

/* Compares `part` with the whole; `verifies`: over four rows, which passed the part before. */
static int compare(struct bench *bench, const char *name, const struct forward_part *part, bool verifies, struct err *err)
{
    static double bytes[PAIRS_MAX], seconds[PAIRS_MAX], both[PAIRS_MAX];
    const int rows = verifies ? ROWS : 1;
    for (int pair = -2; pair < bench->pairs; pair++) {              /* the first two warm up */
        struct cost whole, less;
        if (measure(bench, 7 * pair + 50, rows, NULL, false, &whole, err))
            return -1;
        sequence_rollback(bench->sequence);
        if (measure(bench, 7 * pair + 50, rows, part, false, &less, err) ||
            (verifies && measure(bench, 7 * pair + 50, rows, NULL, true, &less, err)))
            return -1;
        sequence_rollback(bench->sequence);
        if (pair < 0)
            continue;
        bytes[pair] = (double)less.bytes / (double)whole.bytes;
        seconds[pair] = less.seconds / whole.seconds;
        both[pair] = seconds[pair] / bytes[pair];
    }
    double of_bytes = median(bytes, bench->pairs), of_time = median(seconds, bench->pairs);
    printf("%-16s %-8s bytes %.3f  time %.3f  time over bytes %.3f\n", name, verifies ? "verified" : "drafted", of_bytes,
           of_time, median(both, bench->pairs));
    return 0;
}

static int compare_all(struct bench *bench, struct err *err)
{
    static const double ratios[] = {0.4, 0.6};
    const struct hparams *shape = model_hparams(bench->model);
    char name[40];
    for (int i = 0; i < 2; i++) {
        struct skip_set skip;
        struct err none = {0};
        if (skip_set_first(&skip, shape->layers, ratios[i], &none))
            continue;
        const struct forward_part part = {.skip_attention = skip.attention, .skip_ffn = skip.ffn};
        snprintf(name, sizeof name, "skip=%.1f", ratios[i]);
        if (compare(bench, name, &part, false, err))
            return -1;
    }
    for (int k = 1; k < shape->router.top_k; k *= 2) {
        const struct forward_part part = {.top_k = k};
        snprintf(name, sizeof name, "topk=%d", k);
        if (compare(bench, name, &part, false, err))
            return -1;
    }
    for (int n = 1; n < shape->layers; n += n < shape->layers / 2 ? shape->layers / 2 - n : shape->layers) {
        const struct forward_part part = {.layers = n};
        snprintf(name, sizeof name, "exit=%d", n);
        if (compare(bench, name, &part, false, err) || compare(bench, name, &part, true, err))
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {.pairs = argc > 2 ? atoi(argv[2]) : 30, .threads = argc > 3 ? atoi(argv[3]) : 0};
    struct err err = {0};
    if (argc < 2 || bench.pairs < 1 || bench.pairs > PAIRS_MAX) {
        fprintf(stderr, "usage: parts MODEL [PAIRS] [THREADS]\n");
        return 2;
    }
    int rc = bench_open(&bench, argv[1], &err) || compare_all(&bench, &err) ? 2 : 0;
    if (rc)
        fprintf(stderr, "parts: %s\n", err.text);
    bench_close(&bench);
    return rc;
}
