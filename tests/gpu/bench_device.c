/* How fast a device is: its kernels, whole forwards, and what other streams say of decoding. tests/gpu/bench runs it part by
 * part.
 *
 * usage: bench_device kernels DEVICE OUT.moes tiny|full FORMAT     operations alone, with the shapes below
 *        bench_device forwards DEVICE OUT.moes SECONDS MODEL.moe   forwards of 1 .. 64 tokens, logits of the last
 *        bench_device decode DEVICE OUT.moes TOKENS MODEL.moe      token after token: by the device's loop, by the host's
 *        bench_device prompt DEVICE OUT.moes TOKENS MODEL.moe      a prompt by tiles, and in slabs of given `rows`
 *        bench_device deep LAYERS STREAM.moes STREAM.moes          from forwards, or decoding, of one model with few and with
 *                                                                  more layers: what it is with LAYERS
 *        bench_device join OUT.moes STREAM.moes...                 one stream of all their records
 *
 * Writes a bench stream with `timing` records, and Markdown to standard output. A kernel is called many times in a row on
 * weights from all over a pool that no cache holds: what a call reads comes again only after COLD_BYTES of others at least. The
 * device's own clock times them as one graph (device_time), so that a call's share has in it what lies between two kernels
 * there, and nothing of the rate at which a host launches. Forwards, prompts and decoding are timed by the host's clock, with
 * all that the host does for them.
 *
 * `share` is bytes / time over the speed of a copy within the device (read and written bytes), measured just before, and
 * `nominal` over what the vendor says of the memory, where the device's name is known; `excess` is time(M) / time(1) over
 * bytes(M) / bytes(1). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/bench/sweep.h"
#include "common/engine/loop.h"
#include "common/stream/bench.h"
#include "common/stream/reader.h"
#include "common/stream/writer.h"

enum { ROUNDS = 7, POSITIONS = 4096, HEAD_DIM = 128, EXPERTS_MOST = 128, TABLES_MOST = 64, CALLS_MOST = 256, PREFIX = 64 };
static const int ROWS[] = {1, 2, 4, 8, 16, 32, 64};
enum { COLUMNS = sizeof ROWS / sizeof *ROWS, ROWS_MOST = 64 };
static const double CELL_SECONDS = 0.01;
/* Four times the second-level cache of the largest GPU so far (a B200's 126 MB). */
static const size_t COLD_BYTES = (size_t)512 << 20;

struct shape {
    const char *name;
    int hidden, inner, experts, slots, heads, kv_heads, vocab;
};

static const struct shape SHAPES[] = {
    {"olmoe-1b-7b", 2048, 1024, 64, 8, 16, 16, 50304},
    {"qwen3-30b-a3b", 2048, 768, 128, 8, 32, 4, 151936},
    {"mixtral-8x7b", 4096, 14336, 8, 2, 32, 8, 32000},
};
static const struct shape TINY[] = {{"tiny", 128, 64, 8, 2, 2, 1, 512}};

/* Bytes per second of the memory, by vendors' data sheets. */
static const struct { const char *name; double speed; } NOMINAL[] = {
    {"H200", 4.8e12}, {"H100", 3.35e12}, {"A100", 2.04e12}, {"B200", 8e12},
};

struct bench {
    struct device *device;
    struct writer *writer;
    enum weight_format format;
    bool tiny;
    double copy, nominal;                       /* 0: unknown */
    uint64_t seed;
    struct buffer pool, in, out, qkv, inner, partial, group, operand, weight, expert, table, prefix, path_start, path;
    struct err err;
};

static void must(struct bench *b, int rc)
{
    if (rc) {
        fprintf(stderr, "bench_device: %s\n", b->err.text);
        writer_abort(&b->writer, &b->err);
        exit(2);
    }
}

static uint32_t draw(struct bench *b)
{
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(b->seed >> 33);
}

static struct buffer take(struct bench *b, size_t bytes)
{
    struct buffer buffer = {0, 0};
    must(b, device_alloc(b->device, bytes, &buffer, &b->err));
    return buffer;
}

static struct buffer part(struct buffer whole, size_t bytes) { return buffer_part(whole, 0, bytes); }

/* Bytes below 0x40: finite numbers of moderate size in every format. */
static void fill(struct bench *b, struct buffer buffer)
{
    enum { PIECE = 1 << 22 };
    unsigned char *piece = malloc(PIECE);
    for (size_t i = 0; piece && i < PIECE; i++)
        piece[i] = (unsigned char)(draw(b) & 0x3f);
    for (uint64_t at = 0; piece && at < buffer.bytes; at += PIECE) {
        uint64_t bytes = buffer.bytes - at < PIECE ? buffer.bytes - at : PIECE;
        queue_upload(b->device, buffer_part(buffer, at, bytes), piece, bytes);
    }
    must(b, queue_wait(b->device, &b->err));
    free(piece);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* --- one cell --- */

struct cell {
    void (*call)(struct bench *b, const struct cell *cell, uint64_t turn);
    const struct shape *shape;
    const char *what, *format;
    int rows, inputs, outputs;
    enum cache_format cache;
    size_t bytes;                               /* of weights, or of keys and values, that a call reads */
    size_t span;                                /* of the pool, from one call to the next */
    int tables;                                 /* tables of experts: each call uses the next one */
};

/* Returns the position in the pool of a call's weights. */
static uint64_t offset_of(const struct bench *b, const struct cell *cell, uint64_t turn)
{
    return turn % (b->pool.bytes / cell->span) * cell->span / 256 * 256;
}

/* Calls in a row. */
struct burst {
    struct bench *b;
    const struct cell *cell;
    uint64_t turn;                              /* of the first */
    int calls;
};

static void put_calls(void *of)
{
    const struct burst *burst = of;
    for (int i = 0; i < burst->calls; i++)
        burst->cell->call(burst->b, burst->cell, burst->turn + (uint64_t)i);
}

/* Returns the seconds of a call: the median of rounds with as many calls as fill CELL_SECONDS. The very first call loads its
 * kernels. */
static double time_cell(struct bench *b, const struct cell *cell, int64_t *calls)
{
    double seconds[ROUNDS], limit = b->tiny ? 0 : CELL_SECONDS;
    struct burst burst = {b, cell, 0, 1};
    int round = 0;
    put_calls(&burst);
    must(b, queue_wait(b->device, &b->err));
    burst.turn++;
    for (*calls = 0; round < (b->tiny ? 2 : ROUNDS);) {
        double took;
        must(b, device_time(b->device, put_calls, &burst, &took, &b->err));
        burst.turn += (uint64_t)burst.calls;
        if (took < limit && burst.calls < CALLS_MOST) {
            burst.calls *= 2;
            continue;
        }
        seconds[round++] = took / burst.calls;
        *calls += burst.calls;
    }
    qsort(seconds, (size_t)round, sizeof *seconds, compare);
    return seconds[round / 2];
}

static void say_head(const struct bench *b, const char *what, const char *note)
{
    printf("\n%s%s\n\n| |", what, note);
    for (int i = 0; i < COLUMNS; i++)
        printf(" %d |", ROWS[i]);
    printf("\n|---|");
    for (int i = 0; i < COLUMNS; i++)
        printf("---|");
    printf("\n");
    (void)b;
}

/* A row of a table: microseconds, shares and excess for each number of rows; NaN: not measured. */
static void say_rows(const struct bench *b, const char *name, const double *seconds, const double *bytes)
{
    const char *const what[] = {"us", "share", "nominal", "excess"};
    for (int line = 0; line < 4; line++) {
        if ((line == 2 && !b->nominal) || (line == 1 && !(b->copy > 0)) || (line && !(bytes[0] > 0)))
            continue;
        printf("| %s, %s |", name, what[line]);
        for (int i = 0; i < COLUMNS; i++) {
            double speed = bytes[i] / seconds[i];
            double value = line == 0 ? seconds[i] * 1e6 : line == 1 ? speed / b->copy : line == 2 ? speed / b->nominal
                           : seconds[i] / seconds[0] / (bytes[i] / bytes[0]);
            if (isnan(value))
                printf(" |");
            else
                printf(line ? " %.3f |" : " %.1f |", value);
        }
        printf("\n");
    }
    fflush(stdout);
}

static void record(struct bench *b, const struct bench_timing *timing)
{
    must(b, writer_record(b->writer, &bench_timing_kind, timing, &b->err) || writer_flush(b->writer, &b->err));
}

/* --- operations --- */

static void call_linear(struct bench *b, const struct cell *c, uint64_t turn)
{
    size_t rows = (size_t)c->rows;
    device_ops(b->device)->linear(device_queue(b->device), &(struct linear_args){
        .in = part(b->in, rows * (size_t)c->inputs * 4), .weight = buffer_part(b->pool, offset_of(b, c, turn), c->bytes),
        .out = part(b->out, rows * (size_t)c->outputs * 4), .operand = b->operand, .format = b->format, .rows = c->rows,
        .inputs = c->inputs, .outputs = c->outputs, .in_stride = c->inputs, .out_stride = c->outputs});
}

static void call_experts(struct bench *b, const struct cell *c, uint64_t turn)
{
    const struct shape *s = c->shape;
    size_t rows = (size_t)c->rows, pairs = rows * (size_t)s->slots, table = (size_t)s->experts * sizeof(uint64_t);
    device_ops(b->device)->expert_ffn(device_queue(b->device), &(struct expert_ffn_args){
        .in = part(b->in, rows * (size_t)s->hidden * 4), .out = part(b->out, rows * (size_t)s->hidden * 4),
        .expert = part(b->expert, pairs * 4), .weight = part(b->weight, pairs * 4),
        .table = buffer_part(b->table, turn % (uint64_t)c->tables * table, table), .inner = b->inner, .partial = b->partial,
        .group = b->group, .operand = b->operand, .format = b->format, .down_format = b->format, .rows = c->rows,
        .slots = s->slots, .experts = s->experts, .hidden = s->hidden, .inner_width = s->inner});
}

static void call_attention(struct bench *b, const struct cell *c, uint64_t turn)
{
    const struct shape *s = c->shape;
    size_t rows = (size_t)c->rows, half = c->bytes / 2;
    uint64_t offset = offset_of(b, c, turn);
    int positions = b->tiny ? 100 : POSITIONS;
    device_ops(b->device)->attention(device_queue(b->device), &(struct attention_args){
        .q = part(b->in, rows * (size_t)s->heads * HEAD_DIM * 4), .k = buffer_part(b->pool, offset, half),
        .v = buffer_part(b->pool, offset + half, half), .prefix = part(b->prefix, rows * 4),
        .path_start = part(b->path_start, (rows + 1) * 4), .path = part(b->path, rows * 4),
        .out = part(b->out, rows * (size_t)s->heads * HEAD_DIM * 4), .scale = 0.1f, .format = c->cache, .rows = c->rows,
        .heads = s->heads, .kv_heads = s->kv_heads, .head_dim = HEAD_DIM, .value_dim = HEAD_DIM, .capacity = positions,
        .stride = s->heads * HEAD_DIM});
}

static void call_norm(struct bench *b, const struct cell *c, uint64_t turn)
{
    int hidden = c->shape->hidden;
    size_t bytes = (size_t)c->rows * (size_t)hidden * 4;
    (void)turn;
    device_ops(b->device)->norm(device_queue(b->device), &(struct norm_args){
        .in = part(b->in, bytes), .weight = part(b->pool, (size_t)hidden * 4), .out = part(b->out, bytes), .epsilon = 1e-5f,
        .rows = c->rows, .parts = 1, .width = hidden, .in_stride = hidden, .out_stride = hidden});
}

static void call_select(struct bench *b, const struct cell *c, uint64_t turn)
{
    const struct shape *s = c->shape;
    size_t rows = (size_t)c->rows, pairs = rows * (size_t)s->slots;
    (void)turn;
    device_ops(b->device)->route_select(device_queue(b->device), &(struct route_select_args){
        .score = part(b->in, rows * (size_t)s->experts * 4), .wanted = part(b->partial, pairs * 4),
        .expert = part(b->inner, pairs * 4), .weight = part(b->out, pairs * 4), .scale = 1, .rows = c->rows,
        .experts = s->experts, .top_k = s->slots});
}

/* Draws independent routing of `rows` rows. Returns the number of distinct experts; named[e]: how many of them precede e,
 * -1: not used. */
static int draw_routes(struct bench *b, const struct shape *s, int rows, int *named)
{
    int32_t expert[ROWS_MOST * 8];
    int distinct = 0;
    for (int e = 0; e < s->experts; e++)
        named[e] = -1;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < s->slots; i++) {
            int32_t *own = expert + r * s->slots;
            for (bool again = true; again;) {
                own[i] = (int32_t)(draw(b) % (uint32_t)s->experts);
                again = false;
                for (int j = 0; j < i; j++)
                    again |= own[j] == own[i];
            }
            if (named[own[i]] < 0)
                named[own[i]] = distinct++;
        }
    queue_upload(b->device, b->expert, expert, (size_t)(rows * s->slots) * sizeof *expert);
    return distinct;
}

/* Draws routes, and tables that place their experts in slots all over the pool, each slot once while there are enough: as
 * many tables as extend over COLD_BYTES. Returns the bytes of one table's distinct slots. */
static size_t draw_tables(struct bench *b, struct cell *cell)
{
    int named[EXPERTS_MOST];
    const size_t experts = (size_t)cell->shape->experts, slots = b->pool.bytes / cell->bytes;
    size_t distinct = (size_t)draw_routes(b, cell->shape, cell->rows, named);
    distinct = distinct < slots ? distinct : slots;
    size_t tables = (COLD_BYTES + distinct * cell->bytes - 1) / (distinct * cell->bytes);
    tables = tables < slots / distinct ? tables : slots / distinct;
    tables = tables < TABLES_MOST ? tables : TABLES_MOST;
    uint64_t *table = mem_alloc(tables * experts, sizeof *table, &b->err);
    uint64_t *slot = mem_alloc(slots, sizeof *slot, &b->err);
    must(b, table && slot ? 0 : -1);
    for (size_t i = 0; i < slots; i++) {
        size_t from = draw(b) % (i + 1);
        slot[i] = slot[from];
        slot[from] = b->pool.address + i * cell->bytes / 256 * 256;
    }
    for (size_t i = 0; i < tables * experts; i++) {
        int own = named[i % experts];
        table[i] = slot[own < 0 ? 0 : i / experts * distinct + (size_t)own % distinct];
    }
    queue_upload(b->device, b->table, table, tables * experts * sizeof *table);
    must(b, queue_wait(b->device, &b->err));
    mem_free(&table);
    mem_free(&slot);
    cell->tables = (int)tables;
    return distinct * cell->bytes;
}

/* Prints a row of a table: the cell for each number of rows. */
static void line(struct bench *b, struct cell cell, const char *name)
{
    double seconds[COLUMNS], bytes[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        int64_t calls;
        cell.rows = ROWS[i];
        bytes[i] = (double)(cell.call == call_experts ? draw_tables(b, &cell) : cell.bytes);
        seconds[i] = time_cell(b, &cell, &calls);
        record(b, &(struct bench_timing){.what = cell.what, .shape = cell.shape->name, .format = cell.format, .rows = ROWS[i],
                                         .calls = calls, .seconds = seconds[i], .bytes = bytes[i],
                                         .copy = b->copy > 0 ? b->copy : NAN, .layers = -1});
    }
    say_rows(b, name, seconds, bytes);
}

static void line_linear(struct bench *b, const struct shape *s, const char *name, int outputs, int inputs)
{
    size_t bytes;
    char label[64];
    if (!matrix_bytes(b->format, outputs, inputs, &bytes))
        return;
    snprintf(label, sizeof label, "%s %d x %d", name, outputs, inputs);
    line(b, (struct cell){.call = call_linear, .shape = s, .what = name, .format = format_name(b->format), .inputs = inputs,
                          .outputs = outputs, .bytes = bytes, .span = bytes}, label);
}

static void bench_shape(struct bench *b, const struct shape *s)
{
    char title[128];
    size_t bytes = 0;
    snprintf(title, sizeof title, "%s, %s: ", s->name, format_name(b->format));
    say_head(b, title, "rows of a call");
    line_linear(b, s, "linear qkv", (s->heads + 2 * s->kv_heads) * HEAD_DIM, s->hidden);
    line_linear(b, s, "linear out", s->hidden, s->heads * HEAD_DIM);
    line_linear(b, s, "linear router", s->experts, s->hidden);
    line_linear(b, s, "linear head", s->vocab, s->hidden);
    if (expert_bytes(b->format, s->hidden, s->inner, &bytes))
        line(b, (struct cell){.call = call_experts, .shape = s, .what = "expert_ffn", .format = format_name(b->format),
                              .bytes = bytes, .span = bytes}, "expert_ffn");
    if (b->format != FORMAT_BF16)
        return;
    bytes = 2 * (size_t)s->kv_heads * (b->tiny ? 100 : POSITIONS) * HEAD_DIM;
    line(b, (struct cell){.call = call_attention, .shape = s, .what = "attention", .format = "f32", .cache = CACHE_F32,
                          .bytes = bytes * 4, .span = bytes * 4}, "attention of 4096, f32");
    line(b, (struct cell){.call = call_attention, .shape = s, .what = "attention", .format = "bf16", .cache = CACHE_BF16,
                          .bytes = bytes * 2, .span = bytes * 2}, "attention of 4096, bf16");
    line(b, (struct cell){.call = call_norm, .shape = s, .what = "norm", .format = "f32", .span = 256}, "norm");
    line(b, (struct cell){.call = call_select, .shape = s, .what = "route_select", .format = "f32", .span = 256},
         "route_select");
}

static void take_memory(struct bench *b)
{
    int32_t prefix[ROWS_MOST], start[ROWS_MOST + 1] = {0}, path[ROWS_MOST];
    size_t rows = ROWS_MOST, wide = b->tiny ? 1024 : 160000, slots = 8 * 4096;
    int positions = b->tiny ? 100 : POSITIONS;
    for (int r = 0; r < ROWS_MOST; r++) {
        prefix[r] = positions - ROWS_MOST;
        path[r] = prefix[r] + r;
        start[r + 1] = r + 1;
    }
    b->pool = take(b, (size_t)(b->tiny ? 4 : 4096) << 20);
    fill(b, b->pool);
    fill(b, b->in = take(b, rows * 16384 * 4));
    fill(b, b->weight = take(b, rows * 8 * 4));
    b->out = take(b, rows * wide * 4);
    b->inner = take(b, rows * slots * 4);
    b->partial = take(b, rows * slots * 4);
    b->group = take(b, expert_group_numbers(EXPERTS_MOST, rows * 8) * 4);
    b->operand = take(b, rows * slots / 32 * sizeof(struct quantised));
    b->table = take(b, TABLES_MOST * EXPERTS_MOST * 8);
    b->expert = take(b, rows * 8 * 4);
    b->prefix = take(b, sizeof prefix);
    b->path_start = take(b, sizeof start);
    b->path = take(b, sizeof path);
    queue_upload(b->device, b->prefix, prefix, sizeof prefix);
    queue_upload(b->device, b->path_start, start, sizeof start);
    queue_upload(b->device, b->path, path, sizeof path);
    must(b, queue_wait(b->device, &b->err));
}

static void close_memory(struct bench *b)
{
    struct buffer *all[] = {&b->pool, &b->in, &b->out, &b->inner, &b->partial, &b->group, &b->operand, &b->weight,
                            &b->expert, &b->table, &b->prefix, &b->path_start, &b->path};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        device_free(b->device, all[i]);
}

/* ---- the three subcommands that time a model ---- */

static void stream_open(struct bench *b, const char *path, const char *device, char **argv, int argc)
{
    struct header header = {0};
    must(b, header_init(&header, STREAM_BENCH, "bench_device", "1", argc, argv, &b->err) ||
            header_set_device(&header, device, &b->err) || writer_open(&b->writer, path, &header, &b->err));
    header_free(&header);
}

static void know_device(struct bench *b, const char *name)
{
    for (size_t i = 0; i < sizeof NOMINAL / sizeof *NOMINAL; i++)
        if (strstr(name, NOMINAL[i].name))
            b->nominal = NOMINAL[i].speed;
}

static int kernels(struct bench *b, char **argv, int argc)
{
    b->tiny = !strcmp(argv[4], "tiny");
    for (int f = 0; f < FORMAT_COUNT; f++)
        if (!strcmp(format_name((enum weight_format)f), argv[5]))
            b->format = (enum weight_format)f;
    must(b, device_open(&b->device, &(struct device_setup){.name = argv[2]}, &b->err));
    const char *name = device_info(b->device)->name;
    stream_open(b, argv[3], name, argv, argc);
    know_device(b, name);
    b->copy = device_read_bandwidth(b->device, NULL, (size_t)(b->tiny ? 1 : 1024) << 20, b->tiny ? 0.01 : 0.3, &b->err);
    must(b, b->copy < 0);
    printf("%s: a copy within the device moves %.2f TB/s, read and written\n", name, b->copy * 1e-12);
    printf("us: a call among many in a row, all as one graph, by the device's clock; weights come from memory\n");
    take_memory(b);
    for (size_t i = 0; i < (b->tiny ? sizeof TINY : sizeof SHAPES) / sizeof *SHAPES; i++)
        bench_shape(b, b->tiny ? &TINY[i] : &SHAPES[i]);
    close_memory(b);
    device_close(&b->device);
    return writer_close(&b->writer, &b->err);
}

/* Experts of a model. */
static const char *experts_format(const struct model *model)
{
    for (int i = 0; i < model_tensor_count(model); i++)
        if (model_tensor_at(model, i)->kind == TENSOR_EXPERTS)
            return format_name(model_tensor_at(model, i)->format);
    return "mixed";
}

static int forwards(struct bench *b, char **argv, int argc)
{
    struct session *session = NULL;
    struct sweep sweep;
    struct text path = {0};
    const struct session_options options = {.model = argv[5], .device = argv[2], .context = 2048};
    must(b, session_open(&session, &options, 0, ROWS_MOST, &b->err));
    const char *name = device_info(session->device)->name, *model = model_identity(session->model)->name;
    const char *format = experts_format(session->model);
    const struct hparams *shape = model_hparams(session->model);
    stream_open(b, argv[3], name, argv, argc);
    know_device(b, name);
    const struct sweep_setup setup = {.rows = ROWS, .points = COLUMNS, .prefix = 64, .rounds_min = 3, .seconds = atof(argv[4])};
    must(b, sweep_run(&sweep, session, &setup, &b->err));
    b->copy = sweep.machine.bytes_per_second;
    double seconds[COLUMNS], bytes[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        seconds[i] = sweep.point[i].seconds;
        bytes[i] = sweep.point[i].bytes;
        record(b, &(struct bench_timing){.what = "forward", .shape = model, .format = format, .rows = ROWS[i],
                                         .calls = sweep.rounds, .seconds = seconds[i], .bytes = bytes[i],
                                         .copy = b->copy > 0 ? b->copy : NAN, .layers = shape->layers});
    }
    must(b, text_printf(&path, &b->err, "%s, %s, %d layers: %.1f tokens/s at batch 1; ", model, format, shape->layers,
                        1 / seconds[0]));
    say_head(b, path.data, "tokens of a forward");
    say_rows(b, "forward", seconds, bytes);
    text_free(&path);
    session_close(&session);
    return writer_close(&b->writer, &b->err);
}

/* Decoding of one text. */
struct decoding {
    struct engine *engine;
    struct sequence *sequence;                  /* contains the prompt but its last token */
    int32_t *text;                              /* [PREFIX + count] the prompt, then room for the answer */
    int count;
    double bytes;                               /* bytes of the last forward */
};

static double decode_on_host(struct bench *b, struct decoding *d)
{
    const int32_t root = 0;
    struct forward out;
    double start = clock_seconds();
    for (int i = 0; i < d->count; i++) {
        const struct batch batch = {.rows = 1, .token = d->text + PREFIX - 1 + i, .logit_rows = 1};
        must(b, engine_forward(d->engine, d->sequence, &batch, &out, &b->err) ||
                sequence_commit(d->sequence, &root, 1, &b->err));
        d->text[PREFIX + i] = sample_best(out.logits, out.vocab);
    }
    d->bytes = (double)out.bytes;
    return clock_seconds() - start;
}

/* `opening`: seconds until the loop runs. */
static double decode_on_device(struct bench *b, struct decoding *d, double *opening)
{
    const struct engine_loop_setup setup = {.sequence = d->sequence, .text = d->text, .length = PREFIX,
                                            .rules = {.prompt = PREFIX, .limit = d->count}, .filter = {.top_p = 1}};
    struct engine_loop *loop = NULL;
    struct engine_iteration out;
    double start = clock_seconds();
    must(b, engine_loop_open(&loop, d->engine, &setup, &b->err));
    *opening = clock_seconds() - start;
    start = clock_seconds();
    int length = PREFIX;
    do {
        must(b, engine_loop_next(loop, &out, &b->err));
        for (int i = 0; i < out.record->emitted; i++)
            d->text[length++] = out.emitted[i];
    } while (out.record->end == LOOP_CONTINUES);
    double took = clock_seconds() - start;
    must(b, engine_loop_close(&loop, &b->err));
    return took;
}

static void say_decoding(struct bench *b, const char *what, const struct decoding *d, double seconds)
{
    double speed = d->bytes * d->count / seconds;
    printf("| %s | %.1f |", what, d->count / seconds);
    b->copy > 0 ? printf(" %.3f |", speed / b->copy) : printf(" |");
    b->nominal ? printf(" %.3f |", speed / b->nominal) : printf(" |");
}

/* Decodes the same text by both loops alternately; the first round of each warms up, and the last counts. */
static int decode(struct bench *b, char **argv, int argc)
{
    enum { HOST, DEVICE, WAYS, TURNS = 3 };
    struct session *session = NULL;
    struct forward forward;
    struct decoding d = {.count = atoi(argv[4])};
    double seconds[WAYS] = {0}, opening[TURNS] = {0};
    const struct session_options options = {.model = argv[5], .device = argv[2], .context = PREFIX + d.count};
    must(b, session_open(&session, &options, PREFIX, 1, &b->err));
    const char *model = model_identity(session->model)->name, *format = experts_format(session->model);
    const bool loops = engine_loops(session->engine);
    b->device = session->device;
    stream_open(b, argv[3], device_info(b->device)->name, argv, argc);
    know_device(b, device_info(b->device)->name);
    must(b, roofline_measure(b->device, ROOFLINE_BYTES, 0.3, &b->copy, &b->err));
    d.engine = session->engine;
    int32_t *texts = mem_alloc((size_t)WAYS * (size_t)(PREFIX + d.count), sizeof *texts, &b->err);
    must(b, texts && d.count > 0 ? sequence_open(&d.sequence, d.engine, PREFIX + d.count, &b->err) : -1);
    for (int turn = 0; turn < TURNS; turn++)
        for (int way = HOST; way < WAYS - !loops; way++) {
            d.text = texts + way * (PREFIX + d.count);
            for (int i = 0; i < PREFIX; i++)
                d.text[i] = i % engine_hparams(d.engine)->vocab;
            must(b, sequence_truncate(d.sequence, 0, &b->err) ||
                    engine_prompt(d.engine, d.sequence, d.text, PREFIX - 1, NULL, NULL, NULL, &forward, &b->err));
            seconds[way] = way == HOST ? decode_on_host(b, &d) : decode_on_device(b, &d, &opening[turn]);
        }
    if (loops && memcmp(texts + HOST * (PREFIX + d.count), texts + DEVICE * (PREFIX + d.count),
                        (size_t)(PREFIX + d.count) * sizeof *texts))
        must(b, err_set(&b->err, ERR_INPUT, "the device's loop and the host's give other texts"));
    printf("\n%s, %s, %d layers, %d tokens after %d, one by one\n\n", model, format, engine_hparams(d.engine)->layers, d.count,
           PREFIX);
    printf("| | tokens/s at batch 1 | share | nominal |\n|---|---|---|---|\n");
    for (int way = HOST; way < WAYS - !loops; way++) {
        say_decoding(b, way == HOST ? "the host's loop" : "the device's loop", &d, seconds[way]);
        printf("\n");
        record(b, &(struct bench_timing){.what = way == HOST ? "decode by the host" : "decode by the device", .shape = model,
                                         .format = format, .rows = 1, .calls = d.count, .seconds = seconds[way] / d.count,
                                         .bytes = d.bytes, .copy = b->copy > 0 ? b->copy : NAN,
                                         .layers = engine_hparams(d.engine)->layers});
    }
    if (loops)
        printf("\nThe device's loop was made in %.1f ms, the next ones in %.1f.\n", 1e3 * opening[0], 1e3 * opening[TURNS - 1]);
    mem_free(&texts);
    sequence_close(&d.sequence);
    session_close(&session);
    return writer_close(&b->writer, &b->err);
}

/* Returns the seconds of a prompt in slabs of `rows` rows (0: none), the median of a few; the first run warms up. */
static double time_prompt(struct bench *b, struct engine *engine, const int32_t *token, int count)
{
    enum { RUNS = 4 };
    struct sequence *sequence = NULL;
    struct forward out;
    double seconds[RUNS];
    must(b, sequence_open(&sequence, engine, count, &b->err));
    for (int run = 0; run < RUNS; run++) {
        double start = clock_seconds();
        must(b, engine_prompt(engine, sequence, token, count, NULL, NULL, NULL, &out, &b->err));
        seconds[run] = clock_seconds() - start;
        must(b, sequence_truncate(sequence, 0, &b->err));
    }
    sequence_close(&sequence);
    qsort(seconds + 1, RUNS - 1, sizeof *seconds, compare);
    return seconds[RUNS / 2];
}

static int prompt(struct bench *b, char **argv, int argc)
{
    enum { WAYS = 4 };
    int count = atoi(argv[4]);
    const int slabs[WAYS] = {0, count / 4, count / 2, count};
    struct model *model = NULL;
    struct expert_source *experts = NULL;
    must(b, model_open(&model, argv[5], &b->err) || device_open(&b->device, &(struct device_setup){.name = argv[2]}, &b->err) ||
            expert_source_open(&experts, model, b->device, &b->err));
    const struct device_info *info = device_info(b->device);
    const struct hparams *shape = model_hparams(model);
    const char *name = model_identity(model)->name, *format = experts_format(model);
    int32_t *token = calloc((size_t)count, sizeof *token);
    double seconds[WAYS];
    for (int i = 0; token && i < count; i++)
        token[i] = (int32_t)(draw(b) % (uint32_t)shape->vocab);
    stream_open(b, argv[3], info->name, argv, argc);
    printf("\n%s, %s, %d layers, a prompt of %d tokens%s%s\n\n| |", name, format, shape->layers, count,
           info->no_slabs[0] ? "; " : "", info->no_slabs);
    for (int way = 0; way < WAYS; way++)
        slabs[way] ? printf(" slabs of %d |", slabs[way]) : printf(" tiles |");
    printf("\n|---|---|---|---|---|\n| ms |");
    for (int way = 0; token && way < WAYS; way++) {
        struct engine *engine = NULL;
        const struct engine_setup setup = {.model = model, .device = b->device, .experts = experts, .max_rows = ENGINE_ROWS_MAX,
                                           .max_logit_rows = 1, .max_positions = count, .slab_rows = slabs[way]};
        if (slabs[way] && !info->slabs) {
            printf(" |");
            continue;
        }
        must(b, engine_open(&engine, &setup, &b->err));
        seconds[way] = time_prompt(b, engine, token, count);
        engine_close(&engine);
        record(b, &(struct bench_timing){.what = slabs[way] ? "prompt in slabs" : "prompt", .shape = name, .format = format,
                                         .rows = slabs[way] ? slabs[way] : count, .calls = 3, .seconds = seconds[way],
                                         .bytes = 0, .copy = NAN, .layers = shape->layers});
        printf(" %.1f |", 1e3 * seconds[way]);
        fflush(stdout);
    }
    printf("\n");
    free(token);
    expert_source_close(&experts);
    device_close(&b->device);
    model_close(&model);
    return writer_close(&b->writer, &b->err);
}

/* ---- models deeper than those that were timed ---- */

/* Timings of whole models in a stream; operations by their own `what`. */
struct depth {
    int count, layers;
    struct { char what[32]; int rows; double seconds, bytes; } at[COLUMNS];
    char title[96];                             /* the model and its format */
    double copy;
};

static void read_depth(struct bench *b, const char *path, struct depth *out)
{
    struct reader *in = NULL;
    const struct record *record;
    int more;
    *out = (struct depth){0};
    must(b, reader_open(&in, path, STREAM_BENCH, NULL, &b->err));
    know_device(b, reader_header(in)->device);
    while ((more = reader_next(in, &record, &b->err)) > 0) {
        const struct bench_timing *t = record->body;
        if (record->kind != &bench_timing_kind || t->layers < 1)
            continue;
        if (out->count == COLUMNS || (out->count && t->layers != out->layers))
            must(b, err_set(&b->err, ERR_INPUT, "%s: not one model by one way", path));
        snprintf(out->at[out->count].what, sizeof out->at->what, "%s", t->what);
        snprintf(out->title, sizeof out->title, "%s, %s", t->shape, t->format);
        out->at[out->count].rows = t->rows;
        out->at[out->count].seconds = t->seconds;
        out->at[out->count++].bytes = t->bytes;
        out->layers = t->layers;
        out->copy = t->copy;
    }
    must(b, more);
    reader_close(&in);
}

/* Time and bytes consist of a part that every model has once, and a part per layer: the difference between two depths is
 * layers alone. The output head is a large part of a model of few layers, and a small one of the real model. */
static int deep(struct bench *b, char **argv, int argc)
{
    struct depth few, more;
    double seconds[COLUMNS], bytes[COLUMNS], layer[COLUMNS];
    const int layers = atoi(argv[2]);
    (void)argc;
    read_depth(b, argv[3], &few);
    read_depth(b, argv[4], &more);
    if (few.layers >= more.layers || few.count != more.count || strcmp(few.title, more.title) || layers < 1)
        return err_set(&b->err, ERR_INPUT, "%s and %s: not one model with few and with more layers", argv[3], argv[4]);
    b->copy = more.copy;
    const double far = (double)(layers - few.layers) / (more.layers - few.layers);
    for (int i = 0; i < few.count; i++) {
        const double slope = more.at[i].seconds - few.at[i].seconds;
        if (strcmp(few.at[i].what, more.at[i].what) || few.at[i].rows != more.at[i].rows)
            return err_set(&b->err, ERR_INPUT, "%s and %s: other timings", argv[3], argv[4]);
        layer[i] = slope > 0 ? slope / (more.layers - few.layers) : NAN;
        seconds[i] = slope > 0 ? few.at[i].seconds + slope * far : NAN;
        bytes[i] = few.at[i].bytes + (more.at[i].bytes - few.at[i].bytes) * far;
    }
    char title[192];
    snprintf(title, sizeof title, "%s, with %d layers, from %d and %d", more.title, layers, few.layers, more.layers);
    if (!strcmp(few.at[0].what, "forward") && few.count == COLUMNS) {
        say_head(b, title, "; tokens of a forward");
        say_rows(b, "forward", seconds, bytes);
        printf("| a layer, us |");
        for (int i = 0; i < COLUMNS; i++)
            isnan(layer[i]) ? printf(" |") : printf(" %.1f |", 1e6 * layer[i]);
        printf("\n");
    } else {
        printf("\n%s\n\n| | tokens/s at batch 1 | a layer, us | share | nominal |\n|---|---|---|---|---|\n", title);
        for (int i = 0; i < few.count; i++) {
            if (isnan(layer[i])) {
                printf("| %s | more layers took no longer | | | |\n", few.at[i].what);
                continue;
            }
            printf("| %s | %.1f | %.1f |", few.at[i].what, few.at[i].rows / seconds[i], 1e6 * layer[i]);
            b->copy > 0 ? printf(" %.3f |", bytes[i] / seconds[i] / b->copy) : printf(" |");
            b->nominal ? printf(" %.3f |\n", bytes[i] / seconds[i] / b->nominal) : printf(" |\n");
        }
    }
    return 0;
}

static int join(struct bench *b, char **argv, int argc)
{
    struct header header = {0};
    must(b, header_init(&header, STREAM_BENCH, "bench_device", "1", argc, argv, &b->err));
    for (int i = 3; i < argc; i++) {
        struct reader *in = NULL;
        must(b, reader_open(&in, argv[i], STREAM_BENCH, NULL, &b->err) || header_derive(&header, reader_header(in), &b->err));
        reader_close(&in);
    }
    must(b, writer_open(&b->writer, argv[2], &header, &b->err));
    header_free(&header);
    for (int i = 3; i < argc; i++) {
        struct reader *in = NULL;
        const struct record *record;
        int more;
        must(b, reader_open(&in, argv[i], STREAM_BENCH, NULL, &b->err));
        while ((more = reader_next(in, &record, &b->err)) > 0)
            must(b, writer_copy(b->writer, record, &b->err));
        must(b, more);
        reader_close(&in);
    }
    return writer_close(&b->writer, &b->err);
}

int main(int argc, char **argv)
{
    struct bench b = {.seed = 1};
    if (argc == 6 && !strcmp(argv[1], "kernels"))
        must(&b, kernels(&b, argv, argc));
    else if (argc == 6 && !strcmp(argv[1], "forwards"))
        must(&b, forwards(&b, argv, argc));
    else if (argc == 6 && !strcmp(argv[1], "decode"))
        must(&b, decode(&b, argv, argc));
    else if (argc == 6 && !strcmp(argv[1], "prompt"))
        must(&b, prompt(&b, argv, argc));
    else if (argc == 5 && !strcmp(argv[1], "deep"))
        must(&b, deep(&b, argv, argc));
    else if (argc > 3 && !strcmp(argv[1], "join"))
        must(&b, join(&b, argv, argc));
    else {
        fprintf(stderr, "usage: bench_device kernels|forwards|decode|prompt|deep|join ...: see tests/gpu/bench_device.c\n");
        return 2;
    }
    return 0;
}
