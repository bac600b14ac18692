/* Products of weights that are unpacked to bytes (codes.h) with quantised activations (formats.h). The integer sums are exact,
 * so all instruction sets have the same bits.
 *
 * For few rows, the bytes of a span of 32 inputs stay in registers and the unit is read as one stream. For more, a chunk of 256
 * inputs is unpacked to memory in the first-level cache once, and sets of rows use it one after the other. */
#include <string.h>

#include "common/base/float.h"
#include "kernels/cpu/codes.h"
#include "kernels/cpu/unit.h"
#include "kernels/formats_coded.h"

#if defined(ISA_VECTORS)

enum { VECTORS = UNIT_OUTPUTS / LANES, GROUPS = BLOCK_INPUTS / 4 };

/* Max rows whose weights are not unpacked to memory, and max rows of a set. */
#if defined(ISA_AVX512)
enum { DIRECT_ROWS = 3, SET_ROWS = 8 };
#else
enum { DIRECT_ROWS = 1, SET_ROWS = 4 };
#endif

/* The cache lines that a span prefetches, one after each product of four inputs; near, far: bytes ahead (fetch_after). */
struct lines {
    const unsigned char *line, *end;
    size_t near, far;
};

INLINE void fetch_next(struct lines *lines)
{
    if (lines->line < lines->end)
        fetch_after(lines->line, lines->near, lines->far);
    lines->line += 64;
}

/* Adds the products of a span to the sums of `rows` rows. x: each row's block. `kind` and `rows` must be constants at each
 * use. */
INLINE void span_product(int kind, int offset, int rows, const struct codes *c, const struct quantised *const *x,
                         struct lines *lines, vector *sum)
{
    const bool two = kind & (CODES_HALVES | CODES_STEPS);
    words count[SET_ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        count[r][0] = words_all(-offset * (two ? x[r]->sum[0] : x[r]->sum[0] + x[r]->sum[1]));
        if (two)
            count[r][1] = words_all(-offset * x[r]->sum[1]);
    }
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) {
        fetch_next(lines);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x[r]->q + 4 * g, sizeof four);
            words *to = &count[r][two && g >= GROUPS / 2];
            *to = words_dot(kind, *to, c->code[g], words_all(four));
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        const vector scale = vector_all(x[r]->scale);
        vector value = words_convert(count[r][0]);
        if (kind & CODES_HALVES)
            value = vector_fma(words_convert(count[r][1]), c->factor[1], vector_times(value, c->factor[0]));
        sum[r] = vector_fma(value, vector_times(c->scale[0], scale), sum[r]);
        if (kind & CODES_STEPS)
            sum[r] = vector_fma(words_convert(count[r][1]), vector_times(c->scale[1], scale), sum[r]);
        if (kind & CODES_LESS)
            sum[r] = vector_fma(c->less[0], vector_all(x[r]->total), sum[r]);
        if (kind & CODES_LESS_HALVES) {
            sum[r] = vector_fma(c->less[0], vector_all(x[r]->scale * (float)x[r]->sum[0]), sum[r]);
            sum[r] = vector_fma(c->less[1], vector_all(x[r]->scale * (float)x[r]->sum[1]), sum[r]);
        }
    }
}

/* ---- few rows ---- */

INLINE void direct(enum weight_format format, int rows, const unsigned char *unit, int inputs, const void *const *in,
                   float *out)
{
    const size_t chunk_bytes = unit_chunk_bytes(format), span_bytes = chunk_bytes / CHUNK_SPANS;
    vector sum[VECTORS][DIRECT_ROWS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++)
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
            sum[v][r] = vector_zero();
    for (int b = 0; b < quantised_blocks(inputs); b++) {
        const unsigned char *chunk = unit + (size_t)(b / CHUNK_SPANS) * chunk_bytes;
        const int span = b % CHUNK_SPANS;
        struct lines lines = {.line = chunk + (size_t)span * span_bytes, .near = FETCH_NEAR, .far = FETCH_FAR};
        const struct quantised *x[DIRECT_ROWS];
        lines.end = lines.line + span_bytes;
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
            x[r] = (const struct quantised *)in[r] + b;
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) {
            struct codes c;
            codes_of(format, chunk, v * LANES, span, &c);
            span_product(codes_kind(format), codes_offset(format), rows, &c, x, &lines, sum[v]);
        }
    }
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++)
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
            vector_store(out + r * UNIT_OUTPUTS + v * LANES, sum[v][r]);
}

#define DIRECT(format, rows) \
    static void direct_##format##_##rows(const unsigned char *unit, int inputs, const void *const *in, float *out) \
    { \
        direct(format, rows, unit, inputs, in, out); \
    }
#if defined(ISA_AVX512)
#define DIRECTS(format) DIRECT(format, 1) DIRECT(format, 2) DIRECT(format, 3)
#define DIRECT_NAMES(format) {direct_##format##_1, direct_##format##_2, direct_##format##_3}
#else
#define DIRECTS(format) DIRECT(format, 1)
#define DIRECT_NAMES(format) {direct_##format##_1}
#endif

/* ---- more rows ---- */

struct chunk {
    struct codes codes[CHUNK_SPANS][VECTORS];
    int spans, sets;
    int offset;                         /* 0 if weights have minima */
    bool first;                         /* the first chunk of the unit: sums begin at 0 */
    const unsigned char *packed;
    size_t bytes;
};

INLINE void unpack(enum weight_format format, struct chunk *chunk)
{
    chunk->offset = codes_offset(format);
    for (int span = 0; span < chunk->spans; span++)
        for (int v = 0; v < VECTORS; v++)
            codes_of(format, chunk->packed, v * LANES, span, &chunk->codes[span][v]);
}

/* Each set prefetches its share of the chunks that follow. */
INLINE void set(int kind, int rows, int number, const struct chunk *chunk, const struct quantised *const *in, float *out)
{
    const size_t share = (chunk->bytes / (size_t)chunk->sets + 63) & ~(size_t)63;
    const size_t each = (share / (size_t)(VECTORS * chunk->spans) + 63) & ~(size_t)63;
    const unsigned char *const end = chunk->packed + share * (size_t)(number + 1);
    struct lines lines = {.end = end - share, .near = chunk->bytes, .far = 2 * chunk->bytes};
    for (int v = 0; v < VECTORS; v++) {
        vector sum[SET_ROWS];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            sum[r] = chunk->first ? vector_zero() : vector_load(out + r * UNIT_OUTPUTS + v * LANES);
        for (int span = 0; span < chunk->spans; span++) {
            const struct quantised *x[SET_ROWS];
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                x[r] = in[r] + span;
            lines.line = lines.end;
            lines.end = (size_t)(end - lines.line) < each ? end : lines.line + each;
            span_product(kind, kind & (CODES_LESS | CODES_LESS_HALVES) ? 0 : chunk->offset, rows, &chunk->codes[span][v], x,
                         &lines, sum);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            vector_store(out + r * UNIT_OUTPUTS + v * LANES, sum[r]);
    }
}

#define SET(kind, rows) \
    static void set_##kind##_##rows(int number, const struct chunk *chunk, const struct quantised *const *in, float *out) \
    { \
        set(kind, rows, number, chunk, in, out); \
    }
#if defined(ISA_AVX512)
#define SETS(kind) SET(kind, 1) SET(kind, 2) SET(kind, 3) SET(kind, 4) SET(kind, 5) SET(kind, 6) SET(kind, 7) SET(kind, 8)
#define SET_NAMES(kind) [kind] = {set_##kind##_1, set_##kind##_2, set_##kind##_3, set_##kind##_4, \
                                  set_##kind##_5, set_##kind##_6, set_##kind##_7, set_##kind##_8}
#else
#define SETS(kind) SET(kind, 1) SET(kind, 2) SET(kind, 3) SET(kind, 4)
#define SET_NAMES(kind) [kind] = {set_##kind##_1, set_##kind##_2, set_##kind##_3, set_##kind##_4}
#endif

enum { ONE = 0, HALVES = CODES_HALVES, STEPS = CODES_STEPS, LESS = CODES_LESS, HALVES_LESS = CODES_HALVES | CODES_LESS_HALVES,
       LEVELS = CODES_SIGNED };

SETS(ONE)
SETS(HALVES)
SETS(STEPS)
SETS(LESS)
SETS(HALVES_LESS)
#if !defined(ISA_VNNI)
SETS(LEVELS)
#endif

typedef void set_function(int number, const struct chunk *chunk, const struct quantised *const *in, float *out);

static set_function *const SET_TABLE[CODES_KINDS][SET_ROWS] = {
    SET_NAMES(ONE), SET_NAMES(HALVES), SET_NAMES(STEPS), SET_NAMES(LESS), SET_NAMES(HALVES_LESS),
#if !defined(ISA_VNNI)
    SET_NAMES(LEVELS)
#endif
};

/* ---- all formats ---- */

#define UNPACK(format) \
    static void unpack_##format(struct chunk *chunk) { unpack(format, chunk); }

typedef void direct_function(const unsigned char *unit, int inputs, const void *const *in, float *out);
typedef void unpack_function(struct chunk *chunk);

struct functions {
    direct_function *direct[DIRECT_ROWS];
    unpack_function *unpack;
    int kind;
};

#define INTEGERS_PLAIN(use, NAME)
#define INTEGERS_INTEGER(use, NAME)
#define INTEGERS_CODED(use, NAME)
#define INTEGERS_WOVEN(use, NAME) use(FORMAT_##NAME)
#define INTEGERS_GRID(use, NAME) use(FORMAT_##NAME)
#define FUNCTIONS_OF(NAME, name, kind, step, block, bytes) INTEGERS_##kind(FUNCTIONS, NAME)
#define ROW_OF(NAME, name, kind, step, block, bytes) INTEGERS_##kind(ROW, NAME)
#define FUNCTIONS(format) DIRECTS(format) UNPACK(format)
#define ROW(format) [format] = {DIRECT_NAMES(format), unpack_##format},

FUNCTIONS(FORMAT_MXFP4)
WEIGHT_FORMATS(FUNCTIONS_OF)

static const struct functions TABLE[FORMAT_COUNT] = {ROW(FORMAT_MXFP4) WEIGHT_FORMATS(ROW_OF)};

void unit_product_integers(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in,
                           float *out)
{
    const struct functions *f = &TABLE[format];
    const int blocks = quantised_blocks(inputs), sets = (rows + SET_ROWS - 1) / SET_ROWS;
    if (rows <= DIRECT_ROWS) {
        f->direct[rows - 1](unit, inputs, in, out);
        return;
    }
    set_function *const *const table = SET_TABLE[codes_kind(format)];
    struct chunk chunk;
    chunk.sets = sets;
    chunk.bytes = unit_chunk_bytes(format);
    for (int b = 0; b < blocks; b += CHUNK_SPANS) {
        chunk.packed = (const unsigned char *)unit + (size_t)(b / CHUNK_SPANS) * chunk.bytes;
        chunk.spans = blocks - b < CHUNK_SPANS ? blocks - b : CHUNK_SPANS;
        chunk.first = b == 0;
        f->unpack(&chunk);
        for (int s = 0; s < sets; s++) {
            const int first = pass_first(rows, sets, s), count = pass_first(rows, sets, s + 1) - first;
            const struct quantised *x[SET_ROWS];
            for (int r = 0; r < count; r++)
                x[r] = (const struct quantised *)in[first + r] + b;
            table[count - 1](s, &chunk, x, out + first * UNIT_OUTPUTS);
        }
    }
}

#else

/* Adds the products of one block with one output to the sums of all rows. */
static void block_output(enum weight_format format, const unsigned char *unit, int block, int output, int rows,
                         const void *const *in, float *out)
{
    const int minima = format == FORMAT_Q4_K || format == FORMAT_Q5_K ? 1 : format == FORMAT_Q2_K ? 2 : 0;
    const int step = format == FORMAT_NVFP4 ? BLOCK_INPUTS / 2 : BLOCK_INPUTS;
    struct woven_parts part[BLOCK_INPUTS];
    for (int i = 0; i < BLOCK_INPUTS; i++)
        part[i] = coded_parts(format, unit, output, block * BLOCK_INPUTS + i);
    for (int r = 0; r < rows; r++) {
        const struct quantised *x = (const struct quantised *)in[r] + block;
        float y = out[r * UNIT_OUTPUTS + output];
        for (int first = 0; first < BLOCK_INPUTS; first += step) {
            int32_t sum = 0;
            for (int i = first; i < first + step; i++)
                sum += (format_halves(format) ? part[i].factor * part[i].code : part[i].code) * x->q[i];
            const float scale = format_halves(format) ? part[first].scale : part[first].scale * (float)part[first].factor;
            y = __builtin_fmaf((float)sum, scale * x->scale, y);
        }
        for (int i = 0; i < minima; i++)
            y = __builtin_fmaf(-part[i * BLOCK_INPUTS / 2].less, minima == 1 ? x->total : x->scale * (float)x->sum[i], y);
        out[r * UNIT_OUTPUTS + output] = y;
    }
}

void unit_product_integers(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in,
                           float *out)
{
    memset(out, 0, (size_t)rows * UNIT_OUTPUTS * sizeof *out);
    for (int b = 0; b < quantised_blocks(inputs); b++)
        for (int o = 0; o < UNIT_OUTPUTS; o++)
            block_output(format, unit, b, o, rows, in, out);
}

#endif
