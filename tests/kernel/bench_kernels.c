/* Speed of the host's kernels, beside this machine's speed at the same moment of reading memory and of multiplying in
 * registers: Markdown tables for docs/benchmarks.md.
 *
 * usage: bench_kernels [THREADS [ISA|all [PART]]]
 *
 * Default: 2 threads, the best instruction set, all parts (experts, linear, attention, select, heads, names of formats).
 *
 * Shapes of OLMoE-1B-7B: hidden 2048, inner 1024, 64 experts, 8 per token; each call draws its routing anew. A column is a
 * number of rows. `share` is bytes of the distinct experts / time / speed of the best reader just before and just after
 * (medians of pairs); `excess` is time(M) / time(1) over bytes(M) / bytes(1), from shares; `of peak` is GFLOP/s over
 * the limit of registers alone (with q8 and q4: of integers). A cell takes about a second, and cells that would take more
 * than ten are skipped: three minutes per instruction set, and 2 GB of memory. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "kernels/cpu/cpu.h"

enum { HIDDEN = 2048, INNER = 1024, EXPERTS = 64, SLOTS = 8, HEAD_DIM = 128 };
enum { ROWS = 512, REPEATS = 80, FEWEST = 3, COLUMNS = 8, LINES = 5 };     /* calls in a cell; FEWEST if these are slow */
static const double CELL_SECONDS = 1, CALL_SECONDS = 3;

struct bench {
    const struct cpu_isa *isa;
    struct thread_pool *pool;
    struct queue queue;
    unsigned char *memory;              /* memory that readers read and that contains the weights */
    size_t memory_bytes;
    uint64_t seed;
    double peak[2];                     /* products per second of f32 and of integers; 0: unknown */
    float *in, *out, *inner, *partial, *weight;
    int32_t *expert, *group;
    void *operand;
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

/* ---- reference speeds ---- */

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

/* Bytes per second: the best of 1, 2 and 4 streams per thread, over 64 MiB from a random offset of the memory. */
static double read_speed(struct bench *b)
{
    size_t members = (size_t)thread_pool_size(b->pool), part = ((size_t)64 << 20) / members / 16384 * 16384,
        bytes = part * members;
    double best = 0;
    for (int streams = 1; streams <= 4; streams *= 2) {
        size_t offset = (size_t)draw(b) * 4096 % ((b->memory_bytes - bytes) / 4096 * 4096);
        struct read_job job = {b, b->memory + offset / 4096 * 4096, part, streams, 0};
        double start = clock_seconds();
        thread_pool_run(b->pool, read_part, &job);
        double speed = (double)bytes / (clock_seconds() - start);
        best = speed > best ? speed : best;
    }
    return best;
}

/* Products per second of the whole pool; the best of several rounds. */
struct multiply_job {
    const struct bench *bench;
    bool integers;
    double products;                    /* of the first member */
};

static void multiply_part(void *argument, int member, int members)
{
    struct multiply_job *job = argument;
    _Alignas(64) float sink[16] = {1, 0.5f, 3};
    (void)members;
    double products = job->bench->isa->multiply(job->integers, 200000, sink);
    if (member == 0)
        job->products = products;
}

static double multiply_speed(struct bench *b, bool integers)
{
    double best = 0;
    for (int turn = 0; turn < 20; turn++) {
        struct multiply_job job = {b, integers, 0};
        double start = clock_seconds();
        thread_pool_run(b->pool, multiply_part, &job);
        double speed = job.products * thread_pool_size(b->pool) / (clock_seconds() - start);
        best = speed > best ? speed : best;
    }
    return best;
}

/* ---- measurement of one cell, and tables of cells ---- */

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

struct cell {
    int count;
    double time[REPEATS], share[REPEATS], distinct[REPEATS], bytes[REPEATS];
    double begin, before;               /* start; speed of memory before the last measurement */
};

static void cell_begin(struct bench *b, struct cell *c)
{
    c->count = 0;
    c->begin = clock_seconds();
    c->before = read_speed(b);
}

static bool cell_goes_on(const struct cell *c)
{
    return c->count < REPEATS && (c->count < FEWEST || clock_seconds() - c->begin < CELL_SECONDS);
}

/* Returns whether calls of `rows` rows are fast enough to measure, given the cell's calls of `before` rows. */
static bool cell_allows(struct cell *c, int before, int rows)
{
    return median(c->time, c->count) * rows / before < CALL_SECONDS;
}

/* Records a call that took `seconds` for `bytes` of weights, of `distinct` experts. */
static void cell_add(struct bench *b, struct cell *c, double seconds, double bytes, int distinct)
{
    double after = read_speed(b);
    c->time[c->count] = seconds;
    c->bytes[c->count] = bytes / seconds;
    c->distinct[c->count] = distinct;
    c->share[c->count++] = bytes / seconds / ((c->before + after) / 2);
    c->before = after;
}

struct table {
    const char *name[LINES];
    char text[LINES][COLUMNS][16];
    int lines, columns;
};

static void table_put(struct table *t, int column, const char *name, const char *form, double value)
{
    int line = 0;
    while (line < t->lines && strcmp(t->name[line], name) != 0)
        line++;
    t->name[line] = name;
    t->lines = line < t->lines ? t->lines : line + 1;
    t->columns = column + 1;
    snprintf(t->text[line][column], sizeof t->text[line][column], form, value);
}

static void table_head(const char *what, const int *rows, int columns)
{
    printf("\n| %s | |", what);
    for (int i = 0; i < columns; i++)
        printf(" %d |", rows[i]);
    printf("\n|---|---|");
    for (int i = 0; i < columns; i++)
        printf("---|");
    printf("\n");
}

static void table_print(const struct table *t, const char *what)
{
    for (int line = 0; line < t->lines; line++) {
        printf("| %s | %s |", line ? "" : what, t->name[line]);
        for (int i = 0; i < t->columns; i++)
            printf(" %s |", t->text[line][i]);
        printf("\n");
    }
    fflush(stdout);
}

/* Prints the columns that all tables have; `products` are those of one call. Returns the share. */
static double cell_report(struct bench *b, struct cell *c, struct table *t, int column, double products, bool integers)
{
    double time = median(c->time, c->count), share = median(c->share, c->count), peak = b->peak[integers];
    table_put(t, column, "GB/s", "%.1f", median(c->bytes, c->count) * 1e-9);
    table_put(t, column, "share of reads", "%.3f", share);
    table_put(t, column, "GFLOP/s", "%.0f", 2 * products / time * 1e-9);
    if (peak > 0)
        table_put(t, column, "of peak", "%.2f", products / time / peak);
    return share;
}

/* --- experts --- */

static const int EXPERT_ROWS[COLUMNS] = {1, 2, 4, 8, 16, 32, 64, 512};

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

/* Fills bytes `i` .. `i + 4` of the memory: steps of a unit (formats.h) with scales of one kind, and any codes. */
static uint32_t scaled_bits(struct bench *b, enum weight_format format, size_t i)
{
    static const struct { size_t from, to; uint32_t scale; } kinds[FORMAT_COUNT] = {
        [FORMAT_FP8] = {0, 128, 0x3c000000}, [FORMAT_Q8] = {1024, 1088, 0x20002000}, [FORMAT_Q4] = {512, 576, 0x20002000},
        [FORMAT_MXFP4] = {0, 64, 0x76777877}, [FORMAT_Q4_K] = {0, 128, 0x10001000}, [FORMAT_Q6_K] = {0, 64, 0x08000800},
        [FORMAT_Q5_K] = {0, 128, 0x10001000}, [FORMAT_IQ4_XS] = {0, 64, 0x08000800}, [FORMAT_IQ4_NL] = {0, 64, 0x14001400},
        [FORMAT_Q3_K] = {0, 64, 0x10001000}, [FORMAT_Q2_K] = {0, 128, 0x18001800}, [FORMAT_NVFP4] = {0, 128, 0x10101010},
        [FORMAT_NVFP4_S] = {0, 256, 0x3c3c3c3c},
        [FORMAT_IQ3_S] = {0, 64, 0x0c000c00}, [FORMAT_IQ3_XXS] = {0, 64, 0x0c000c00}, [FORMAT_IQ2_S] = {0, 64, 0x0c000c00},
        [FORMAT_IQ2_XS] = {0, 64, 0x0c000c00}, [FORMAT_IQ2_XXS] = {0, 64, 0x0c000c00}};
    size_t at = i % format_step_bytes(format);
    uint32_t bits = draw(b) << 1;
    if (at >= kinds[format].from && at < kinds[format].to)
        return kinds[format].scale;
    return format == FORMAT_FP8 ? bits & 0xfefefefeu : bits;        /* no NaN */
}

/* Fills the memory with small numbers of either sign in every format. */
static void fill(struct bench *b, enum weight_format format)
{
    for (size_t i = 0; i < b->memory_bytes; i += 4) {
        uint32_t bits = format_scaled(format) ? scaled_bits(b, format, i) : draw(b);
        if (format == FORMAT_F32)
            bits = (bits & 0x807fffffu) | 0x3c000000u;
        else if (format == FORMAT_BF16)
            bits = (bits & 0x807f807fu) | 0x3c003c00u;
        else if (format == FORMAT_F16)
            bits = (bits & 0x83ff83ffu) | 0x20002000u;
        memcpy(b->memory + i, &bits, 4);
    }
}

static void bench_experts(struct bench *b, enum weight_format format)
{
    static struct cell cell;
    struct table t = {0};
    size_t bytes, layers;
    expert_bytes(format, HIDDEN, INNER, &bytes);
    layers = b->memory_bytes / bytes / EXPERTS;
    double share_of_one = 0;
    for (int k = 0; k < COLUMNS && (k == 0 || cell_allows(&cell, EXPERT_ROWS[k - 1], EXPERT_ROWS[k])); k++) {
        const int rows = EXPERT_ROWS[k];
        const size_t pairs = (size_t)rows * SLOTS;
        for (cell_begin(b, &cell); cell_goes_on(&cell);) {
            uint64_t table[EXPERTS];
            size_t layer = (size_t)cell.count % layers;
            for (size_t e = 0; e < EXPERTS; e++)
                table[e] = (uint64_t)(uintptr_t)(b->memory + (layer * EXPERTS + e) * bytes);
            int wanted = route(b, rows);
            struct expert_ffn_args args = {
                .in = buffer_of(b->in, (size_t)rows * HIDDEN * 4), .out = buffer_of(b->out, (size_t)rows * HIDDEN * 4),
                .expert = buffer_of(b->expert, pairs * 4), .weight = buffer_of(b->weight, pairs * 4),
                .table = buffer_of(table, sizeof table), .inner = buffer_of(b->inner, pairs * INNER * 4),
                .partial = buffer_of(b->partial, pairs * HIDDEN * 4),
                .group = buffer_of(b->group, expert_group_numbers(EXPERTS, pairs) * 4),
                .operand = buffer_of(b->operand, pairs * operand_bytes(FORMAT_BF16, HIDDEN)),
                .format = format, .down_format = format, .rows = rows, .slots = SLOTS, .experts = EXPERTS, .hidden = HIDDEN,
                .inner_width = INNER};
            double start = clock_seconds();
            b->isa->ops.expert_ffn(&b->queue, &args);
            cell_add(b, &cell, clock_seconds() - start, (double)wanted * (double)bytes, wanted);
        }
        double share = cell_report(b, &cell, &t, k, (double)pairs * 3 * HIDDEN * INNER, format_integers(format));
        if (k == 0)
            share_of_one = share;
        table_put(&t, k, "excess", "%.3f", share_of_one / share);
    }
    table_print(&t, format_name(format));
}

/* ---- one dense matrix, like the attention projections ---- */

enum { LINEAR_COLUMNS = 6 };
static const int LINEAR_ROWS[LINEAR_COLUMNS] = {1, 2, 4, 8, 64, 512};

static void bench_linear(struct bench *b, enum weight_format format)
{
    static struct cell cell;
    struct table t = {0};
    size_t bytes;
    matrix_bytes(format, HIDDEN, HIDDEN, &bytes);
    for (int k = 0; k < LINEAR_COLUMNS && (k == 0 || cell_allows(&cell, LINEAR_ROWS[k - 1], LINEAR_ROWS[k])); k++) {
        const int rows = LINEAR_ROWS[k];
        const size_t used = (size_t)rows * HIDDEN * 4;
        for (cell_begin(b, &cell); cell_goes_on(&cell);) {
            size_t offset = (size_t)draw(b) % (b->memory_bytes / bytes) * bytes;
            struct linear_args args = {
                .in = buffer_of(b->in, used), .weight = buffer_of(b->memory + offset, bytes), .out = buffer_of(b->out, used),
                .operand = buffer_of(b->operand, (size_t)rows * operand_bytes(FORMAT_BF16, HIDDEN)),
                .format = format, .rows = rows, .inputs = HIDDEN, .outputs = HIDDEN, .in_stride = HIDDEN,
                .out_stride = HIDDEN};
            double start = clock_seconds();
            b->isa->ops.linear(&b->queue, &args);
            cell_add(b, &cell, clock_seconds() - start, (double)bytes, 0);
        }
        cell_report(b, &cell, &t, k, (double)rows * HIDDEN * HIDDEN, format_integers(format));
    }
    table_print(&t, format_name(format));
}

/* ---- attention over long caches: each row's own position is the last of its path ---- */

struct attention_shape {
    int heads, kv_heads, positions;
    enum cache_format format;
};

static void attention_cell(struct bench *b, const struct attention_shape *s, int rows, struct cell *c)
{
    const size_t cache = (cache_rows_bytes(s->format, (size_t)s->kv_heads * (size_t)s->positions, HEAD_DIM) + 63) / 64 * 64;
    const size_t used = (size_t)rows * (size_t)s->heads * HEAD_DIM * 4;
    static int32_t prefix[ROWS], start[ROWS + 1], path[ROWS];
    for (int r = 0; r < rows; r++) {
        prefix[r] = s->positions - rows;
        path[r] = s->positions - rows + r;
        start[r + 1] = r + 1;
    }
    for (cell_begin(b, c); cell_goes_on(c);) {
        size_t offset = (size_t)c->count * 2 * cache % (b->memory_bytes - 2 * cache) / 4096 * 4096;
        struct attention_args args = {
            .q = buffer_of(b->in, used), .k = buffer_of(b->memory + offset, cache),
            .v = buffer_of(b->memory + offset + cache, cache), .prefix = buffer_of(prefix, sizeof prefix),
            .path_start = buffer_of(start, sizeof start), .path = buffer_of(path, sizeof path),
            .out = buffer_of(b->out, used), .scale = 0.1f, .format = s->format, .rows = rows, .heads = s->heads,
            .kv_heads = s->kv_heads, .head_dim = HEAD_DIM, .value_dim = HEAD_DIM, .capacity = s->positions,
            .stride = s->heads * HEAD_DIM};
        double begin = clock_seconds();
        b->isa->ops.attention(&b->queue, &args);
        cell_add(b, c, clock_seconds() - begin, 2 * (double)cache, 0);
    }
}

static void bench_attention(struct bench *b)
{
    static const struct attention_shape shapes[] = {
        {16, 16, 2048, CACHE_F32}, {16, 16, 4096, CACHE_F16}, {32, 4, 4096, CACHE_F32}, {32, 4, 32768, CACHE_F32},
        {32, 4, 32768, CACHE_F16}, {32, 4, 32768, CACHE_BF16}, {16, 16, 4096, CACHE_Q8}, {32, 4, 32768, CACHE_Q8}};
    static const int rows[] = {1, 8, 16, 64};
    static const char *const names[] = {"f32", "f16", "bf16", "q8"};
    static struct cell cell;
    table_head("attention, heads of 128", rows, sizeof rows / sizeof *rows);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct attention_shape *s = &shapes[i];
        struct table t = {0};
        char what[64];
        for (int k = 0; k < (int)(sizeof rows / sizeof *rows) && (double)rows[k] * s->heads * s->positions < 40e6; k++) {
            if (k && !cell_allows(&cell, rows[k - 1], rows[k]))
                break;
            attention_cell(b, s, rows[k], &cell);
            cell_report(b, &cell, &t, k, (double)rows[k] * s->heads * s->positions * HEAD_DIM * 2, false);
        }
        snprintf(what, sizeof what, "%d on %d, %d positions, %s", s->heads, s->kv_heads, s->positions, names[s->format]);
        table_print(&t, what);
    }
}

/* ---- cost that an expert budget adds to a layer's routing: microseconds, the best of many calls ---- */

enum { SELECT_CALLS = 400, SELECT_EXPERTS = 128 };

struct selection {
    int rows, experts, top_k, budget;
    float score[ROWS * SELECT_EXPERTS], weight[ROWS * SLOTS];
    int32_t wanted[ROWS * SLOTS], expert[ROWS * SLOTS];
    uint8_t mask[SELECT_EXPERTS];
};

static void select_once(struct bench *b, struct selection *s, bool budget)
{
    const size_t scores = (size_t)s->rows * (size_t)s->experts * 4, slots = (size_t)s->rows * (size_t)s->top_k * 4;
    struct buffer mask = budget ? buffer_of(s->mask, (size_t)s->experts) : (struct buffer){0, 0};
    if (budget)
        b->isa->ops.route_shortlist(&b->queue, &(struct route_shortlist_args){
            .score = buffer_of(s->score, scores), .mask = mask, .rows = s->rows, .experts = s->experts, .budget = s->budget});
    b->isa->ops.route_select(&b->queue, &(struct route_select_args){
        .score = buffer_of(s->score, scores), .logits = buffer_of(s->score, scores), .mask = mask,
        .wanted = buffer_of(s->wanted, slots), .expert = buffer_of(s->expert, slots), .weight = buffer_of(s->weight, slots),
        .kind = ROUTER_SOFTMAX_TOPK, .mode = BUDGET_SUBSTITUTE, .scale = 1, .rows = s->rows, .experts = s->experts,
        .top_k = s->top_k, .groups = 1, .groups_kept = 1, .group_rank = 1});
}

static double select_best(struct bench *b, struct selection *s, bool budget)
{
    double best = 1e9;
    for (int call = 0; call < SELECT_CALLS; call++) {
        double start = clock_seconds();
        select_once(b, s, budget);
        double seconds = clock_seconds() - start;
        best = seconds < best ? seconds : best;
    }
    return 1e6 * best;
}

static void bench_select(struct bench *b)
{
    static const struct { int experts, top_k; } shapes[] = {{32, 4}, {64, 8}, {128, 8}};
    static const int rows[] = {1, 16, 32, 64};
    static struct selection s;
    printf("\n| choosing experts, us a layer | nodes | without a budget | with half of them | added |\n"
           "|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            s.rows = rows[k];
            s.experts = shapes[i].experts;
            s.top_k = shapes[i].top_k;
            s.budget = s.experts / 2;
            for (int e = 0; e < s.rows * s.experts; e++)
                s.score[e] = (float)draw(b) * 0x1p-31f;
            double plain = select_best(b, &s, false), budget = select_best(b, &s, true);
            printf("| %d of %d | %d | %.1f | %.1f | %.1f |\n", s.top_k, s.experts, s.rows, plain, budget, budget - plain);
        }
}

/* ---- operations of draft heads besides matrices: microseconds, the best of many calls, and speed in bytes read ---- */

enum { HEAD_CALLS = 200 };

struct head_call {
    const char *name;
    int rows, width, k;
    void (*put)(struct bench *b, const struct head_call *call);
    int reads;                          /* floats per unit of the rows' width */
};

static void put_top(struct bench *b, const struct head_call *c)
{
    const size_t floats = (size_t)c->rows * (size_t)c->width, best = (size_t)c->rows * (size_t)c->k;
    b->isa->ops.top(&b->queue, &(struct top_args){
        .logits = buffer_of(b->in, floats * 4), .token = buffer_of(b->expert, best * 4), .logp = buffer_of(b->weight, best * 4),
        .scratch = buffer_of(b->inner, top_scratch_bytes(c->rows, c->width, c->k)), .rows = c->rows, .vocab = c->width,
        .k = c->k});
}

static void put_gelu(struct bench *b, const struct head_call *c)
{
    struct buffer in = buffer_of(b->in, (size_t)c->rows * (size_t)c->width * 4), out = buffer_of(b->out, in.bytes);
    b->isa->ops.activate(&b->queue, &(struct activate_args){
        .in = in, .out = out, .activation = ACTIVATION_GELU, .rows = c->rows, .width = c->width});
}

static void put_silu(struct bench *b, const struct head_call *c)
{
    struct buffer in = buffer_of(b->in, (size_t)c->rows * (size_t)c->width * 4), out = buffer_of(b->out, in.bytes);
    b->isa->ops.activate(&b->queue, &(struct activate_args){
        .in = in, .add = in, .out = out, .activation = ACTIVATION_SILU, .rows = c->rows, .width = c->width});
}

static void put_blend(struct bench *b, const struct head_call *c)
{
    struct buffer in = buffer_of(b->in, (size_t)c->rows * (size_t)c->width * 4), out = buffer_of(b->out, in.bytes);
    b->isa->ops.blend(&b->queue, &(struct blend_args){
        .in = in, .part = buffer_of(b->partial, 2 * in.bytes), .weight = buffer_of(b->weight, (size_t)c->rows * 2 * 4),
        .out = out, .rows = c->rows, .slots = 2, .width = c->width});
}

static void bench_heads(struct bench *b)
{
    static const struct head_call calls[] = {
        {"the 10 likeliest", 1, 32000, 10, put_top, 1}, {"the 10 likeliest", 10, 32000, 10, put_top, 1},
        {"the 10 likeliest", 1, 150000, 10, put_top, 1}, {"the 64 likeliest", 1, 150000, 64, put_top, 1},
        {"the 10 likeliest", 6, 150000, 10, put_top, 1}, {"SiLU, added", 60, HIDDEN, 0, put_silu, 2},
        {"GELU", 60, HIDDEN, 0, put_gelu, 1}, {"two experts, weighed", 60, HIDDEN, 0, put_blend, 3}};
    printf("\n| for heads | rows | of | us a call | GB/s read |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const struct head_call *c = &calls[i];
        double best = 1e9;
        for (int call = 0; call < HEAD_CALLS; call++) {
            double start = clock_seconds();
            c->put(b, c);
            double seconds = clock_seconds() - start;
            best = seconds < best ? seconds : best;
        }
        printf("| %s | %d | %d | %.1f | %.1f |\n", c->name, c->rows, c->width, 1e6 * best,
               4e-9 * c->reads * (double)c->rows * (double)c->width / best);
    }
}

/* Returns whether a list of words contains this one. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
            return true;
    return false;
}

/* Prints one table with all requested formats. */
static void bench_formats(struct bench *b, const char *part, void (*bench)(struct bench *b, enum weight_format format))
{
    bool all = true;
    for (int f = 0; f < FORMAT_COUNT; f++)
        all &= !has_word(part, format_name((enum weight_format)f));
    for (int f = 0; f < FORMAT_COUNT; f++)
        if (all || has_word(part, format_name((enum weight_format)f))) {
            fill(b, (enum weight_format)f);
            bench(b, (enum weight_format)f);
        }
}

static void bench_isa(struct bench *b, const char *part)
{
    fill(b, FORMAT_F32);
    b->peak[false] = multiply_speed(b, false);
    b->peak[true] = multiply_speed(b, true);
    printf("\n%s, %d threads: memory reads %.1f GB/s, registers multiply %.3g GFLOP/s of f32", b->isa->name,
           thread_pool_size(b->pool), read_speed(b) * 1e-9, 2e-9 * b->peak[false]);
    if (b->peak[true] > 0)
        printf(", %.3g of integers", 2e-9 * b->peak[true]);
    printf("\n");
    if (has_word(part, "experts")) {
        table_head("experts", EXPERT_ROWS, COLUMNS);
        bench_formats(b, part, bench_experts);
    }
    if (has_word(part, "linear")) {
        table_head("2048 x 2048", LINEAR_ROWS, LINEAR_COLUMNS);
        bench_formats(b, part, bench_linear);
    }
    if (has_word(part, "attention"))
        bench_attention(b);
    if (has_word(part, "select"))
        bench_select(b);
    if (has_word(part, "heads"))
        bench_heads(b);
}

int main(int argc, char **argv)
{
    struct bench b = {.memory_bytes = (size_t)1700 << 20, .seed = 1};
    struct err err = {0};
    const char *wanted = argc > 2 ? argv[2] : cpu_isas()[0]->name;
    if (thread_pool_new(&b.pool, argc > 1 ? atoi(argv[1]) : 2, &err)) {
        fprintf(stderr, "bench_kernels: %s\n", err.text);
        return 2;
    }
    b.queue.state = b.pool;
    b.queue.integer_activations = true;
    b.memory = pages(b.memory_bytes);
    b.in = pages((size_t)ROWS * HIDDEN * 4);
    b.out = pages((size_t)ROWS * HIDDEN * 4);
    b.inner = pages((size_t)ROWS * SLOTS * INNER * 4);
    b.partial = pages((size_t)ROWS * SLOTS * HIDDEN * 4);
    b.weight = pages((size_t)ROWS * SLOTS * 4);
    b.expert = pages((size_t)ROWS * SLOTS * 4);
    b.group = pages(expert_group_numbers(EXPERTS, (size_t)ROWS * SLOTS) * 4);
    b.operand = pages((size_t)ROWS * SLOTS * operand_bytes(FORMAT_BF16, HIDDEN));       /* the largest */
    for (size_t i = 0; i < (size_t)ROWS * HIDDEN; i++)
        b.in[i] = (float)draw(&b) * 0x1p-30f - 1;
    bool found = false;
    for (int i = 0; cpu_isas()[i]; i++)
        if (!strcmp(cpu_isas()[i]->name, wanted) || !strcmp(wanted, "all")) {
            b.isa = cpu_isas()[i];
            bench_isa(&b, argc > 3 ? argv[3] : "experts linear attention select heads");
            found = true;
        }
    if (!found)
        fprintf(stderr, "bench_kernels: %s: no instruction set of this machine\n", wanted);
    thread_pool_free(&b.pool);
    return found ? 0 : 2;
}
