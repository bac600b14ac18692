/* How fast the host's kernels are, beside how fast this machine reads memory at the same moment.
 *
 * usage: bench_kernels [THREADS [ISA [PART]]]    2 threads, the best instruction set, all of experts, linear, attention and
 *        the names of formats, all if it names none
 *
 * Shapes of OLMoE-1B-7B: hidden 2048, inner 1024, 64 experts, 8 a token; independent routing anew in every call. `share` is
 * bytes of the distinct experts / time / speed of the best reader just before and just after (medians of pairs); `excess`
 * is time(M) / time(1) over bytes(M) / bytes(1), from shares. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "kernels/cpu/cpu.h"

enum { HIDDEN = 2048, INNER = 1024, EXPERTS = 64, SLOTS = 8, HEAD_DIM = 128 };
enum { ROWS = 512, REPEATS = 80 };       /* the most of both */

struct bench {
    const struct cpu_isa *isa;
    struct team *team;
    struct queue queue;
    unsigned char *pool;                /* what readers read and weights lie in */
    size_t pool_bytes;
    uint64_t seed;
    float *in, *out, *inner, *partial, *weight;
    int32_t *expert, *group;
    struct quantised *quantised;
};

static struct buffer buffer_of(const void *data, size_t bytes) { return (struct buffer){(uint64_t)(uintptr_t)data, bytes}; }

static void *pages(size_t bytes)
{
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        perror("bench_kernels: memory");
        exit(1);
    }
    madvise(data, bytes, MADV_HUGEPAGE);
    return data;
}

static uint32_t draw(struct bench *b)
{
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(b->seed >> 33);
}

/* --- the yardstick --- */

struct read_job {
    const struct bench *bench;
    const unsigned char *data;
    size_t part;
    int streams;
    uint64_t sink;
};

static void read_part(void *argument, int member, int members)
{
    struct read_job *job = argument;
    (void)members;
    uint64_t seen = job->bench->isa->read(job->data + (size_t)member * job->part, job->part, job->streams);
    if (seen == 0x123456789abcdefu)
        job->sink++;
}

/* Bytes a second: the best of 1, 2 and 4 streams a thread, over 64 MiB from a random place of the pool. */
static double read_speed(struct bench *b)
{
    size_t members = (size_t)team_size(b->team), part = ((size_t)64 << 20) / members / 16384 * 16384, bytes = part * members;
    double best = 0;
    for (int streams = 1; streams <= 4; streams *= 2) {
        size_t place = (size_t)draw(b) * 4096 % ((b->pool_bytes - bytes) / 4096 * 4096);
        struct read_job job = {b, b->pool + place / 4096 * 4096, part, streams, 0};
        double start = clock_seconds();
        team_run(b->team, read_part, &job);
        double speed = (double)bytes / (clock_seconds() - start);
        best = speed > best ? speed : best;
    }
    return best;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *value, int count)
{
    qsort(value, (size_t)count, sizeof *value, ascending);
    return value[count / 2];
}

/* --- experts --- */

static int route(struct bench *b, int rows)
{
    char seen[EXPERTS] = {0};
    int distinct = 0;
    for (int i = 0; i < rows * SLOTS; i++) {
        int again = 1;
        while (again) {
            b->expert[i] = (int32_t)(draw(b) % EXPERTS);
            again = 0;
            for (int j = i / SLOTS * SLOTS; j < i; j++)
                again |= b->expert[j] == b->expert[i];
        }
        b->weight[i] = 0.125f;
        distinct += !seen[b->expert[i]];
        seen[b->expert[i]] = 1;
    }
    return distinct;
}

/* Bytes `i` .. `i + 4` of the pool: steps of a unit (formats.h) with scales of a kind, and codes of any value. */
static uint32_t scaled_bits(struct bench *b, enum weight_format format, size_t i)
{
    static const struct { size_t step, from, to; uint32_t scale; } kinds[FORMAT_COUNT] = {
        [FORMAT_FP8] = {FP8_BLOCK_BYTES, 0, 128, 0x3c000000}, [FORMAT_Q8] = {Q8_BLOCK_BYTES, 1024, 1088, 0x20002000},
        [FORMAT_Q4] = {Q4_BLOCK_BYTES, 512, 576, 0x20002000}, [FORMAT_MXFP4] = {MXFP4_PAIR_BYTES, 0, 64, 0x76777877},
        [FORMAT_Q4_K] = {Q4_K_BLOCK_BYTES, 0, 128, 0x10001000}, [FORMAT_Q6_K] = {Q6_K_BLOCK_BYTES, 0, 64, 0x08000800}};
    size_t at = i % kinds[format].step;
    uint32_t bits = draw(b) << 1;
    if (at >= kinds[format].from && at < kinds[format].to)
        return kinds[format].scale;
    return format == FORMAT_FP8 ? bits & 0xfefefefeu : bits;        /* no NaN */
}

/* The pool's content: small numbers of either sign in every format. */
static void fill(struct bench *b, enum weight_format format)
{
    for (size_t i = 0; i < b->pool_bytes; i += 4) {
        uint32_t bits = format_scaled(format) ? scaled_bits(b, format, i) : draw(b);
        if (format == FORMAT_F32)
            bits = (bits & 0x807fffffu) | 0x3c000000u;
        else if (format == FORMAT_BF16)
            bits = (bits & 0x807f807fu) | 0x3c003c00u;
        else if (format == FORMAT_F16)
            bits = (bits & 0x83ff83ffu) | 0x20002000u;
        memcpy(b->pool + i, &bits, 4);
    }
}

static void bench_experts(struct bench *b, enum weight_format format)
{
    static const int rows[] = {1, 2, 4, 8, 16, 32, 64, 512};
    size_t bytes, layers;
    expert_bytes(format, HIDDEN, INNER, &bytes);
    layers = b->pool_bytes / bytes / EXPERTS;
    double share_of_one = 0;
    printf("experts %s, %zu layers\n", format_name(format), layers);
    printf("%5s %9s %9s %7s %7s %7s %8s\n", "rows", "distinct", "ms", "GB/s", "share", "excess", "GMAC/s");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        static double time[REPEATS], speed[REPEATS], share[REPEATS], distinct[REPEATS];
        int repeats = rows[k] < 16 ? REPEATS : rows[k] < 512 ? REPEATS / 4 : 5;
        double before = read_speed(b);
        for (int i = 0; i < repeats; i++) {
            uint64_t table[EXPERTS];
            size_t layer = (size_t)i % layers;
            for (size_t e = 0; e < EXPERTS; e++)
                table[e] = (uint64_t)(uintptr_t)(b->pool + (layer * EXPERTS + e) * bytes);
            int wanted = route(b, rows[k]);
            size_t places = (size_t)rows[k] * SLOTS;
            struct expert_ffn_args args = {
                .in = buffer_of(b->in, (size_t)rows[k] * HIDDEN * 4), .out = buffer_of(b->out, (size_t)rows[k] * HIDDEN * 4),
                .expert = buffer_of(b->expert, places * 4), .weight = buffer_of(b->weight, places * 4),
                .table = buffer_of(table, sizeof table), .inner = buffer_of(b->inner, places * INNER * 4),
                .partial = buffer_of(b->partial, places * HIDDEN * 4),
                .group = buffer_of(b->group, (EXPERTS + 1 + 2 * places) * 4),
                .quantised = buffer_of(b->quantised, places * INNER / BLOCK_INPUTS * sizeof(struct quantised)),
                .format = format, .down_format = format, .rows = rows[k], .slots = SLOTS, .experts = EXPERTS, .hidden = HIDDEN,
                .inner_width = INNER};
            double start = clock_seconds();
            b->isa->ops.expert_ffn(&b->queue, &args);
            time[i] = clock_seconds() - start;
            double after = read_speed(b);
            distinct[i] = wanted;
            speed[i] = (double)wanted * (double)bytes / time[i];
            share[i] = speed[i] / ((before + after) / 2);
            before = after;
        }
        double middle = median(time, repeats), part = median(share, repeats);
        if (k == 0)
            share_of_one = part;
        printf("%5d %9.1f %9.3f %7.1f %7.3f %7.3f %8.1f\n", rows[k], median(distinct, repeats), middle * 1e3,
               median(speed, repeats) * 1e-9, part, share_of_one / part,
               (double)rows[k] * SLOTS * 3 * HIDDEN * INNER / middle * 1e-9);
        fflush(stdout);
    }
}

/* --- one dense matrix, as the attention projections are --- */

static void bench_linear(struct bench *b, enum weight_format format)
{
    static const int rows[] = {1, 8, 64, 512};
    size_t bytes;
    matrix_bytes(format, HIDDEN, HIDDEN, &bytes);
    printf("linear %s %d x %d\n", format_name(format), HIDDEN, HIDDEN);
    printf("%5s %9s %7s %7s %8s\n", "rows", "ms", "GB/s", "share", "GMAC/s");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        static double time[REPEATS], share[REPEATS];
        int repeats = rows[k] < 512 ? REPEATS : 20;
        double before = read_speed(b);
        for (int i = 0; i < repeats; i++) {
            size_t place = (size_t)draw(b) % (b->pool_bytes / bytes) * bytes;
            size_t used = (size_t)rows[k] * HIDDEN * 4;
            struct linear_args args = {
                .in = buffer_of(b->in, used), .weight = buffer_of(b->pool + place, bytes), .out = buffer_of(b->out, used),
                .quantised = buffer_of(b->quantised, (size_t)rows[k] * HIDDEN / BLOCK_INPUTS * sizeof(struct quantised)),
                .format = format, .rows = rows[k], .inputs = HIDDEN, .outputs = HIDDEN, .in_stride = HIDDEN,
                .out_stride = HIDDEN};
            double start = clock_seconds();
            b->isa->ops.linear(&b->queue, &args);
            time[i] = clock_seconds() - start;
            double after = read_speed(b);
            share[i] = (double)bytes / time[i] / ((before + after) / 2);
            before = after;
        }
        double middle = median(time, repeats);
        printf("%5d %9.3f %7.1f %7.3f %8.1f\n", rows[k], middle * 1e3, (double)bytes / middle * 1e-9, median(share, repeats),
               (double)rows[k] * HIDDEN * HIDDEN / middle * 1e-9);
        fflush(stdout);
    }
}

/* --- attention over long caches: each row's own position is the last of its path --- */

struct attention_shape {
    int heads, kv_heads, positions;
    enum cache_format format;
};

static void bench_attention_rows(struct bench *b, const struct attention_shape *s, int rows)
{
    const size_t cache = (size_t)s->kv_heads * (size_t)s->positions * HEAD_DIM * cache_size(s->format);
    const size_t used = (size_t)rows * (size_t)s->heads * HEAD_DIM * 4;
    static double time[REPEATS], share[REPEATS];
    static int32_t prefix[ROWS], start[ROWS + 1], path[ROWS];
    int repeats = rows < 64 ? 30 : 3;
    for (int r = 0; r < rows; r++) {
        prefix[r] = s->positions - rows;
        path[r] = s->positions - rows + r;
        start[r + 1] = r + 1;
    }
    double before = read_speed(b);
    for (int i = 0; i < repeats; i++) {
        size_t place = (size_t)i * 2 * cache % (b->pool_bytes - 2 * cache) / 4096 * 4096;
        struct attention_args args = {
            .q = buffer_of(b->in, used), .k = buffer_of(b->pool + place, cache),
            .v = buffer_of(b->pool + place + cache, cache), .prefix = buffer_of(prefix, sizeof prefix),
            .path_start = buffer_of(start, sizeof start), .path = buffer_of(path, sizeof path),
            .out = buffer_of(b->out, used), .scale = 0.1f, .format = s->format, .rows = rows, .heads = s->heads,
            .kv_heads = s->kv_heads, .head_dim = HEAD_DIM, .value_dim = HEAD_DIM, .capacity = s->positions,
            .stride = s->heads * HEAD_DIM};
        double begin = clock_seconds();
        b->isa->ops.attention(&b->queue, &args);
        time[i] = clock_seconds() - begin;
        double after = read_speed(b);
        share[i] = 2 * (double)cache / time[i] / ((before + after) / 2);
        before = after;
    }
    double middle = median(time, repeats);
    printf("%5d %9.3f %7.1f %7.3f %8.1f\n", rows, middle * 1e3, 2 * (double)cache / middle * 1e-9, median(share, repeats),
           (double)rows * s->heads * s->positions * HEAD_DIM * 2 / middle * 1e-9);
    fflush(stdout);
}

static void bench_attention(struct bench *b)
{
    static const struct attention_shape shapes[] = {
        {16, 16, 2048, CACHE_F32}, {16, 16, 4096, CACHE_F16}, {32, 4, 4096, CACHE_F32}, {32, 4, 32768, CACHE_F32},
        {32, 4, 32768, CACHE_F16}, {32, 4, 32768, CACHE_BF16}};
    static const int rows[] = {1, 8, 16, 64};
    static const char *const names[] = {"f32", "f16", "bf16"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct attention_shape *s = &shapes[i];
        printf("attention, %d heads of %d on %d, %d positions, %s\n", s->heads, HEAD_DIM, s->kv_heads, s->positions,
               names[s->format]);
        printf("%5s %9s %7s %7s %8s\n", "rows", "ms", "GB/s", "share", "GMAC/s");
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
            if ((double)rows[k] * s->heads * s->positions < 40e6)
                bench_attention_rows(b, s, rows[k]);
    }
}

/* Whether a list of words has this one. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
            return true;
    return false;
}

int main(int argc, char **argv)
{
    struct bench b = {.isa = cpu_isas()[0], .pool_bytes = (size_t)1700 << 20, .seed = 1};
    struct err err = {0};
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    for (int i = 0; argc > 2 && cpu_isas()[i]; i++)
        if (!strcmp(cpu_isas()[i]->name, argv[2]))
            b.isa = cpu_isas()[i];
    if (team_new(&b.team, threads, &err)) {
        fprintf(stderr, "bench_kernels: %s\n", err.text);
        return 2;
    }
    b.queue.state = b.team;
    b.pool = pages(b.pool_bytes);
    b.in = pages((size_t)ROWS * HIDDEN * 4);
    b.out = pages((size_t)ROWS * HIDDEN * 4);
    b.inner = pages((size_t)ROWS * SLOTS * INNER * 4);
    b.partial = pages((size_t)ROWS * SLOTS * HIDDEN * 4);
    b.weight = pages((size_t)ROWS * SLOTS * 4);
    b.expert = pages((size_t)ROWS * SLOTS * 4);
    b.group = pages((EXPERTS + 1 + 2 * (size_t)ROWS * SLOTS) * 4);
    b.quantised = pages((size_t)ROWS * SLOTS * INNER / BLOCK_INPUTS * sizeof *b.quantised);
    for (size_t i = 0; i < (size_t)ROWS * HIDDEN; i++)
        b.in[i] = (float)draw(&b) * 0x1p-30f - 1;
    const char *part = argc > 3 ? argv[3] : "experts linear attention";
    static const enum weight_format formats[] = {FORMAT_BF16, FORMAT_Q8, FORMAT_Q4, FORMAT_F16, FORMAT_F32, FORMAT_FP8,
                                                 FORMAT_MXFP4, FORMAT_Q4_K, FORMAT_Q6_K};
    bool all = true, said = false;
    for (int f = 0; f < FORMAT_COUNT; f++)
        all &= !has_word(part, format_name((enum weight_format)f));
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!all && !has_word(part, format_name(formats[i])))
            continue;
        fill(&b, formats[i]);
        if (!said)
            printf("%s, %d threads, reads %.1f GB/s\n", b.isa->name, threads, read_speed(&b) * 1e-9);
        said = true;
        if (has_word(part, "experts"))
            bench_experts(&b, formats[i]);
        if (has_word(part, "linear"))
            bench_linear(&b, formats[i]);
    }
    if (has_word(part, "attention"))
        bench_attention(&b);
    team_free(&b.team);
    return 0;
}
