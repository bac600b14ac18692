/* Parts of the products of weights that are unpacked to bytes (unit_integers.c): the products of a span, complete products for
 * few rows, and unpacking for more rows.
 *
 * The file that includes this header defines how a span is unpacked:
 *     GRID_BYTES   size of the result of grid_begin, at most GRID_BYTES_MAX
 *     grid_begin   prepares the tables that span_codes reads in addition to weights, once per unit
 *     span_codes   unpacks a span of a vector of outputs (codes.h) */
#ifndef MOE_KERNELS_CPU_INTEGERS_H
#define MOE_KERNELS_CPU_INTEGERS_H

#include <string.h>

#include "kernels/cpu/codes.h"
#include "kernels/cpu/unit.h"

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

/* Computes the sums of integers of halves `first` .. `last` of a span. */
INLINE void groups_product(int kind, int offset, int rows, int first, int last, const struct codes *c,
                           const struct quantised *const *x, struct lines *lines, words *count)
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        count[r] = words_all(-offset * (first == last ? x[r]->sum[first] : x[r]->sum[0] + x[r]->sum[1]));
#pragma GCC unroll 8
    for (int g = first * GROUPS / 2; g < (last + 1) * GROUPS / 2; g++) {
        fetch_next(lines);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x[r]->q + 4 * g, sizeof four);
            count[r] = words_dot(kind, count[r], c->code[g], words_all(four));
        }
    }
}

/* Adds the products of a span to the sums of `rows` rows. x: each row's block. `kind` and `rows` must be constants at each use.
 * With HALVES, the first half is converted before the second one, because registers do not suffice for the integers of both. */
INLINE void span_product(int kind, int offset, int rows, const struct codes *c, const struct quantised *const *x,
                         struct lines *lines, vector *sum)
{
    const bool two = kind & (CODES_HALVES | CODES_STEPS);
    words count[2][SET_ROWS];
    vector half[SET_ROWS];
    groups_product(kind, offset, rows, 0, two ? 0 : 1, c, x, lines, count[0]);
    if (kind & CODES_HALVES)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            half[r] = vector_times(words_convert(count[0][r]), c->factor[0]);
    if (two)
        groups_product(kind, offset, rows, 1, 1, c, x, lines, count[1]);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        const vector scale = vector_all(x[r]->scale);
        const vector value = kind & CODES_HALVES ? vector_fma(words_convert(count[1][r]), c->factor[1], half[r])
                                                 : words_convert(count[0][r]);
        sum[r] = vector_fma(value, vector_times(c->scale[0], scale), sum[r]);
        if (kind & CODES_STEPS)
            sum[r] = vector_fma(words_convert(count[1][r]), vector_times(c->scale[1], scale), sum[r]);
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
    _Alignas(64) unsigned char grid[GRID_BYTES];
    vector sum[VECTORS][DIRECT_ROWS];
    grid_begin(format, grid);
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
            span_codes(format, grid, chunk, v * LANES, span, &c);
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

/* Location of the codes in a format with codes of four bits: span s begins at byte head + s * NIBBLE_SPAN_BYTES + s / share *
 * head of a chunk, because `share` spans have a common head. table: the byte of each code; NULL: the code itself. head is 0 for
 * other formats, and on instruction sets without nibble_set. */
struct nibbles { int head, share; const int8_t *table; };

enum { GRID_BYTES_MAX = 2048 };

struct chunk {
    struct codes codes[CHUNK_SPANS][VECTORS];
    _Alignas(64) unsigned char grid[GRID_BYTES_MAX];
    int spans, sets;
    int offset;                         /* 0 if weights have minima */
    bool first;                         /* the first chunk of the unit: sums begin at 0 */
    const unsigned char *packed;
    size_t bytes;
    struct nibbles nibbles;             /* only for nibble_set */
};

INLINE void unpack(enum weight_format format, struct chunk *chunk)
{
    chunk->offset = codes_offset(format);
    if (chunk->first)
        grid_begin(format, chunk->grid);
    for (int span = 0; span < chunk->spans; span++)
        for (int v = 0; v < VECTORS; v++)
            span_codes(format, chunk->grid, chunk->packed, v * LANES, span, &chunk->codes[span][v]);
}

/* Adds the products of a chunk to the sums of a set of rows. Each set prefetches its share of the chunks that follow. format:
 * that of weights that are unpacked here; FORMAT_F32 if chunk->codes has them. */
INLINE void set_product(int kind, enum weight_format format, int rows, int number, const struct chunk *chunk,
                        const struct quantised *const *in, float *out)
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
            if (format == FORMAT_F32) {
                const int offset = kind & (CODES_LESS | CODES_LESS_HALVES) ? 0 : chunk->offset;
                span_product(kind, offset, rows, &chunk->codes[span][v], x, &lines, sum);
            } else {
                struct codes c;
                span_codes(format, chunk->grid, chunk->packed, v * LANES, span, &c);
                span_product(kind, codes_offset(format), rows, &c, x, &lines, sum);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            vector_store(out + r * UNIT_OUTPUTS + v * LANES, sum[r]);
    }
}

#define UNPACK(format) \
    static void unpack_##format(struct chunk *chunk) { unpack(format, chunk); }

typedef void direct_function(const unsigned char *unit, int inputs, const void *const *in, float *out);
typedef void unpack_function(struct chunk *chunk);
typedef void set_function(int number, const struct chunk *chunk, const struct quantised *const *in, float *out);

/* alone: the products of a single set with packed weights; NULL if they are unpacked to memory. */
struct functions {
    direct_function *direct[DIRECT_ROWS];
    unpack_function *unpack;
    set_function *alone[SET_ROWS];
};

/* Return the functions of IQ2 and IQ3, and those for processors with VNNI, VBMI and GFNI: each NULL for other formats. */
#define grid_functions ISA_VECTOR_NAME(grid_functions)
#define byte_functions ISA_VECTOR_NAME(byte_functions)

const struct functions *grid_functions(enum weight_format format);
const struct functions *byte_functions(enum weight_format format);

#endif
#endif
