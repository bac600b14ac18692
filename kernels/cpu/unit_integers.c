/* Products of weights that are unpacked to bytes (codes.h) with quantised activations (formats.h). The integer sums are exact,
 * so all instruction sets have the same bits.
 *
 * For few rows, the bytes of a span of 32 inputs stay in registers and the unit is read as one stream. For more, a chunk of 256
 * inputs is unpacked to memory in the first-level cache once, and sets of rows use it one after the other. With VNNI, each set
 * unpacks codes of four bits in registers, and only their scales go through memory: decoding in registers runs beside the
 * products, while storing the bytes takes as long as the products of two rows. */
#include <string.h>

#include "common/base/float.h"
#include "kernels/cpu/codes.h"
#include "kernels/cpu/unit.h"
#include "kernels/formats_coded.h"

#if defined(ISA_VECTORS)

enum { GRID_BYTES = 1 };

INLINE void grid_begin(enum weight_format format, unsigned char *grid)
{
    (void)format;
    (void)grid;
}

INLINE void span_codes(enum weight_format format, const unsigned char *grid, const unsigned char *chunk, int lane, int span,
                       struct codes *c)
{
    (void)grid;
    codes_of(format, chunk, lane, span, c);
}

#include "kernels/cpu/integers.h"

/* ---- more rows ---- */

/* NIBBLE_ROWS: max rows of one of several sets that unpack codes themselves; sums of more rows do not fit into registers. */
enum { NIBBLE_SPAN_BYTES = BLOCK_INPUTS / 2 * UNIT_OUTPUTS, NIBBLE_ROWS = 7 };

INLINE struct nibbles nibbles_of(enum weight_format format)
{
#if defined(ISA_VNNI)
    switch (format) {
    case FORMAT_MXFP4: return (struct nibbles){MXFP4_GROUPS, 2, TABLE_E2M1};
    case FORMAT_NVFP4: return (struct nibbles){NVFP4_SCALES, 2, TABLE_E2M1};
    case FORMAT_NVFP4_S: return (struct nibbles){NVFP4_S_SCALES, 2, TABLE_E2M1};
    case FORMAT_Q4_K: return (struct nibbles){Q4_K_GROUPS, CHUNK_SPANS, NULL};
    case FORMAT_IQ4_XS: return (struct nibbles){256, CHUNK_SPANS, TABLE_IQ4};
    case FORMAT_IQ4_NL: return (struct nibbles){BLOCK_SCALE_BYTES, 1, TABLE_IQ4};
    default: break;
    }
#endif
    (void)format;
    return (struct nibbles){0, 1, NULL};
}

INLINE void set(int kind, int rows, int number, const struct chunk *chunk, const struct quantised *const *in, float *out)
{
    set_product(kind, FORMAT_F32, rows, number, chunk, in, out);
}

#if defined(ISA_VNNI)

/* Returns byte `number` of each word. */
INLINE words words_byte(words a, int number)
{
    const __m128i places = _mm_setr_epi32((int)0x80808000, (int)0x80808004, (int)0x80808008, (int)0x8080800c);
    return _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(_mm_add_epi32(places, _mm_set1_epi32(number))));
}

/* Store scales and minima of q4_k, four spans per 32-bit word (scales_q4_k), or scales of iq4_xs. */
INLINE void store_scales_q4_k(struct chunk *chunk)
{
    for (int v = 0; v < VECTORS; v++) {
        const unsigned char *at = chunk->packed + Q4_K_SCALES + v * LANES * 4;
        const words a = words_load(at), b = words_load(at + GROUP_BYTES), c = words_load(at + 2 * GROUP_BYTES);
        const words scale[2] = {words_and(a, 0x3f3f3f3f),
                                words_or(words_and(c, 0x0f0f0f0f), words_and(words_right(a, 2), 0x30303030))};
        const words minimum[2] = {words_and(b, 0x3f3f3f3f),
                                words_or(words_and(words_right(c, 4), 0x0f0f0f0f), words_and(words_right(b, 2), 0x30303030))};
        const vector d = vector_half(chunk->packed + v * LANES * 2);
        const vector less = vector_times(vector_half(chunk->packed + Q4_K_MINIMA + v * LANES * 2), vector_all(-1));
#pragma GCC unroll 8
        for (int span = 0; span < CHUNK_SPANS; span++) {
            struct codes *to = &chunk->codes[span][v];
            to->scale[0] = vector_times(d, words_convert(words_byte(scale[span / 4], span % 4)));
            to->less[0] = vector_times(less, words_convert(words_byte(minimum[span / 4], span % 4)));
        }
    }
}

INLINE void store_scales_iq4_xs(struct chunk *chunk)
{
    static const int8_t upper[8] = {-32, -16, 0, 16, -32, -16, 0, 16};
    for (int v = 0; v < VECTORS; v++) {
        const vector d = vector_half(chunk->packed + v * LANES * 2);
        const words high = words_shorts(chunk->packed + 64 + v * LANES * 2);
        const words low = words_load(chunk->packed + 128 + v * LANES * 4);
#pragma GCC unroll 8
        for (int span = 0; span < CHUNK_SPANS; span++)
            chunk->codes[span][v].scale[0] = vector_times(d, vector_add(nibble_number(low, 4 * span),
                                                                        entry8(high, 2 * span, upper)));
    }
}

/* Stores only scales and minima, for nibble_set. */
INLINE void store_scales(enum weight_format format, struct chunk *chunk)
{
    chunk->offset = codes_offset(format);
    chunk->nibbles = nibbles_of(format);
    if (format == FORMAT_Q4_K) {
        store_scales_q4_k(chunk);
    } else if (format == FORMAT_IQ4_XS) {
        store_scales_iq4_xs(chunk);
    } else {
        for (int span = 0; span < chunk->spans; span++)
            for (int v = 0; v < VECTORS; v++) {
                struct codes c;
                codes_of(format, chunk->packed, v * LANES, span, &c);
                chunk->codes[span][v].scale[0] = c.scale[0];
                if (codes_kind(format) & CODES_STEPS)
                    chunk->codes[span][v].scale[1] = c.scale[1];
            }
    }
}

/* Adds the products of one span, or of its half `part` if the kind has STEPS, to the sums of `rows` rows. */
INLINE void nibble_product(int kind, int rows, int part, const unsigned char *at, const struct chunk *chunk,
                           const struct codes *c, const struct quantised *const *x, vector (*sum)[VECTORS])
{
    const bool two = kind & CODES_STEPS;
    const int from = two ? 2 * part : 0, to = two ? from + 2 : 4;
    words count[SET_ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        count[r][0] = count[r][1] = words_all(kind & CODES_LESS ? 0
                                              : -chunk->offset * (two ? x[r]->sum[part] : x[r]->sum[0] + x[r]->sum[1]));
#pragma GCC unroll 8
    for (int g = 2 * from; g < 2 * to; g++) {
        words code[VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) {
            const words word = words_load(at + g / 2 * GROUP_BYTES + v * LANES * 4);
            code[v] = words_and(g % 2 ? words_right(word, 4) : word, 0x0f0f0f0f);
            if (!(kind & CODES_LESS))
                code[v] = words_table(chunk->nibbles.table, code[v]);
        }
        fetch_ahead(at + g * 64);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x[r]->q + 4 * g, sizeof four);
            const words all = words_all(four);
            count[r][0] = words_dot(kind, count[r][0], code[0], all);
            count[r][1] = words_dot(kind, count[r][1], code[1], all);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) {
            const vector scale = vector_times(c[v].scale[part], vector_all(x[r]->scale));
            sum[r][v] = vector_fma(words_convert(count[r][v]), scale, sum[r][v]);
            if (kind & CODES_LESS)
                sum[r][v] = vector_fma(c[v].less[0], vector_all(x[r]->total), sum[r][v]);
        }
}

/* Computes a set for codes of four bits, which are unpacked in this function, for all outputs at a time. */
INLINE void nibble_set(int kind, int rows, int number, const struct chunk *chunk, const struct quantised *const *in, float *out)
{
    (void)number;
    vector sum[SET_ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = chunk->first ? vector_zero() : vector_load(out + r * UNIT_OUTPUTS + v * LANES);
    for (int span = 0; span < chunk->spans; span++) {
        const unsigned char *at = chunk->packed + span * NIBBLE_SPAN_BYTES +
                                  (span / chunk->nibbles.share + 1) * chunk->nibbles.head;
        const struct quantised *x[SET_ROWS];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            x[r] = in[r] + span;
        fetch_ahead(chunk->nibbles.share < CHUNK_SPANS ? at - 64 : chunk->packed + span * 64);
        nibble_product(kind, rows, 0, at, chunk, chunk->codes[span], x, sum);
        if (kind & CODES_STEPS)
            nibble_product(kind, rows, 1, at, chunk, chunk->codes[span], x, sum);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++)
            vector_store(out + r * UNIT_OUTPUTS + v * LANES, sum[r][v]);
}

#endif

/* A set has at least half of the max rows, because fewer rows in all are not unpacked to memory. */
#define SET(name, kind, rows) \
    static void name##_##kind##_##rows(int number, const struct chunk *chunk, const struct quantised *const *in, float *out) \
    { \
        name(kind, rows, number, chunk, in, out); \
    }
#if defined(ISA_AVX512)
#define SETS(name, kind) SET(name, kind, 4) SET(name, kind, 5) SET(name, kind, 6) SET(name, kind, 7) SET(name, kind, 8)
#define SET_NAMES(name, kind) \
    [kind] = {[3] = name##_##kind##_4, name##_##kind##_5, name##_##kind##_6, name##_##kind##_7, name##_##kind##_8}
#else
#define SETS(name, kind) SET(name, kind, 2) SET(name, kind, 3) SET(name, kind, 4)
#define SET_NAMES(name, kind) [kind] = {[1] = name##_##kind##_2, name##_##kind##_3, name##_##kind##_4}
#endif

enum { ONE = 0, HALVES = CODES_HALVES, STEPS = CODES_STEPS, LESS = CODES_LESS, HALVES_LESS = CODES_HALVES | CODES_LESS_HALVES,
       LEVELS = CODES_SIGNED };

SETS(set, ONE)
SETS(set, HALVES)
SETS(set, LESS)
SETS(set, HALVES_LESS)
#if defined(ISA_VNNI)
SETS(nibble_set, ONE)
SETS(nibble_set, STEPS)
SETS(nibble_set, LESS)
#else
SETS(set, STEPS)
SETS(set, LEVELS)
#endif

static set_function *const SET_TABLE[CODES_KINDS][SET_ROWS] = {
    SET_NAMES(set, ONE), SET_NAMES(set, HALVES), SET_NAMES(set, LESS), SET_NAMES(set, HALVES_LESS),
#if !defined(ISA_VNNI)
    SET_NAMES(set, STEPS), SET_NAMES(set, LEVELS)
#endif
};

static set_function *const NIBBLE_TABLE[CODES_KINDS][SET_ROWS] = {
#if defined(ISA_VNNI)
    SET_NAMES(nibble_set, ONE), SET_NAMES(nibble_set, STEPS), SET_NAMES(nibble_set, LESS)
#else
    {0}
#endif
};

/* ---- all formats ---- */

#if defined(ISA_VNNI)
#define PREPARE(format) \
    static void unpack_##format(struct chunk *chunk) \
    { \
        if (nibbles_of(format).head) \
            store_scales(format, chunk); \
        else \
            unpack(format, chunk); \
    }
#else
#define PREPARE(format) UNPACK(format)
#endif

#define INTEGERS_PLAIN(use, NAME)
#define INTEGERS_INTEGER(use, NAME)
#define INTEGERS_CODED(use, NAME)
#define INTEGERS_WOVEN(use, NAME) use(FORMAT_##NAME)
#define INTEGERS_GRID(use, NAME)
#define FUNCTIONS_OF(NAME, name, kind, step, block, bytes) INTEGERS_##kind(FUNCTIONS, NAME)
#define ROW_OF(NAME, name, kind, step, block, bytes) INTEGERS_##kind(ROW, NAME)
#define FUNCTIONS(format) DIRECTS(format) PREPARE(format)
#define ROW(format) [format] = {DIRECT_NAMES(format), unpack_##format},

FUNCTIONS(FORMAT_MXFP4)
WEIGHT_FORMATS(FUNCTIONS_OF)

static const struct functions TABLE[FORMAT_COUNT] = {ROW(FORMAT_MXFP4) WEIGHT_FORMATS(ROW_OF)};

static const struct functions *functions_of(enum weight_format format)
{
#if defined(ISA_VNNI)
    if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni") && byte_functions(format)->unpack)
        return byte_functions(format);
#endif
    return TABLE[format].unpack ? &TABLE[format] : grid_functions(format);
}

void unit_product_integers(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in,
                           float *out)
{
    const struct functions *f = functions_of(format);
    const int blocks = quantised_blocks(inputs);
    if (rows <= DIRECT_ROWS) {
        f->direct[rows - 1](unit, inputs, in, out);
        return;
    }
    const bool nibbles = nibbles_of(format).head, alone = rows <= SET_ROWS && f->alone[SET_ROWS - 1];
    const int max = nibbles && rows > SET_ROWS ? NIBBLE_ROWS : SET_ROWS, sets = (rows + max - 1) / max;
    set_function *const *const table = alone ? f->alone : (nibbles ? NIBBLE_TABLE : SET_TABLE)[codes_kind(format)];
    struct chunk chunk;
    chunk.sets = sets;
    chunk.bytes = unit_chunk_bytes(format);
    for (int b = 0; b < blocks; b += CHUNK_SPANS) {
        chunk.packed = (const unsigned char *)unit + (size_t)(b / CHUNK_SPANS) * chunk.bytes;
        chunk.spans = blocks - b < CHUNK_SPANS ? blocks - b : CHUNK_SPANS;
        chunk.first = b == 0;
        if (!alone)
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
    const int step = format_steps(format) ? BLOCK_INPUTS / 2 : BLOCK_INPUTS;
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
