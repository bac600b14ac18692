#include "kernels/cpu/unit.h"

#include <stdint.h>
#include <string.h>

#include "common/base/float.h"
#include "kernels/cpu/fetch.h"
#include "kernels/cpu/vector.h"

#define INLINE static inline __attribute__((always_inline))

/* The two chains of every row: [row][even, odd][output]. */
enum { ODD = UNIT_OUTPUTS, ROW_CHAINS = 2 * UNIT_OUTPUTS };

static void add_chains(int rows, const float *chains, float *out)
{
    for (int r = 0; r < rows; r++, chains += ROW_CHAINS, out += UNIT_OUTPUTS)
        for (int o = 0; o < UNIT_OUTPUTS; o++)
            out[o] = chains[o] + chains[ODD + o];
}

/* Computes products of many rows with weights that must be decoded: each decoded chunk is used pass by pass, while the sums
 * stay in memory. */
static void unit_product_bulk(enum weight_format format, const unsigned char *unit, int inputs, int rows,
                              const void *const *in, float *out);

#if defined(ISA_VECTORS)

/* If one strip has all sums, weights are read as one stream (fetch.h). Otherwise inputs are processed in blocks that stay in
 * the first-level cache while strip after strip uses them, and each strip prefetches its share of the blocks that follow. */
enum { BLOCK_BYTES = 8192 };

/* Row counts with a product function of their own; more rows are processed in several turns. */
#if defined(ISA_AVX512)
enum { FEW_ROWS = 7 };
#else
enum { FEW_ROWS = PASS_ROWS };
#endif

/* Shape of a strip, the sums that are in registers at a time: number of rows, vectors of outputs, and chains (both, or one
 * after the other). A loaded activation should be used for two vectors if possible, because loads limit as soon as products
 * do. */
#if defined(ISA_AVX512)
#define STRIP_ROWS(rows) (rows)
#define STRIP_VECTORS(rows) 2
#define STRIP_CHAINS(rows) ((rows) <= 6 ? 2 : 1)
#elif defined(ISA_NEON)
#define STRIP_ROWS(rows) ((rows) <= 4 ? (rows) : 4)
#define STRIP_VECTORS(rows) 4
#define STRIP_CHAINS(rows) ((rows) <= 2 ? 2 : 1)
#else
#define STRIP_ROWS(rows) ((rows) <= 6 ? (rows) : 4)
#define STRIP_VECTORS(rows) ((rows) == 1 ? 4 : 2)
#define STRIP_CHAINS(rows) ((rows) <= 2 ? 2 : 1)
#endif
#define STRIPS(rows) \
    ((((rows) - 1) / STRIP_ROWS(rows) + 1) * (UNIT_OUTPUTS / LANES / STRIP_VECTORS(rows)) * (2 / STRIP_CHAINS(rows)))

/* Lines that each of `strips` strips prefetches per pair of inputs, at least one. */
#define STRIP_LINES(format, strips) \
    ((int)((unit_pair_bytes(format) / (size_t)(strips) + 63) / 64))

INLINE size_t unit_pair_bytes(enum weight_format format)
{
    return format == FORMAT_F32 ? 2 * UNIT_STEP_BYTES : UNIT_STEP_BYTES;
}

/* Processes pairs of inputs `from` .. `to` for `width` vectors of outputs from `lane` on, in `count` chains from `chain` on (0:
 * even). The call is strip `number` of `strips` (0: the weights are in a cache) and prefetches `lines` lines per pair. rows,
 * width, chain, count and lines must be constants at each call, so that the arrays become registers. */
INLINE void strip(enum weight_format format, int rows, int width, int chain, int count, int number, int strips, int lines,
                  const unsigned char *unit, int lane, int from, int to, const float *const *in, float *chains)
{
    const size_t pair_bytes = unit_pair_bytes(format);
    const int lane_bytes = format == FORMAT_F16 ? 2 : 4;
    const size_t share = strips ? pair_bytes / (size_t)strips : 0;
    const unsigned char *share_at = unit + (size_t)from * pair_bytes + (size_t)((to - from) * number) * share;
    vector sum[2][FEW_ROWS][4], weight[2][4];
#pragma GCC unroll 2
    for (int c = chain; c < chain + count; c++)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < width; v++)
                sum[c][r][v] = vector_load(chains + r * ROW_CHAINS + c * ODD + lane + v * LANES);
    for (int pair = from; pair < to; pair++) {
        const unsigned char *at = unit + (size_t)pair * pair_bytes;
#pragma GCC unroll 4
        for (int line = 0; line < lines; line++)
            if (strips == 1)
                fetch_ahead(at + 64 * line);
            else
                fetch_after(share_at + 64 * line, BLOCK_BYTES, 2 * BLOCK_BYTES);
        share_at += share;
#pragma GCC unroll 4
        for (int v = 0; v < width; v++)
            vector_pair(format, at + (lane + v * LANES) * lane_bytes, &weight[0][v], &weight[1][v]);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            vector x[2];
#pragma GCC unroll 2
            for (int c = chain; c < chain + count; c++)
                x[c] = vector_all(in[r][2 * pair + c]);
#pragma GCC unroll 4
            for (int v = 0; v < width; v++)
#pragma GCC unroll 2
                for (int c = chain; c < chain + count; c++)
                    sum[c][r][v] = vector_fma(weight[c][v], x[c], sum[c][r][v]);
        }
    }
#pragma GCC unroll 2
    for (int c = chain; c < chain + count; c++)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < width; v++)
                vector_store(chains + r * ROW_CHAINS + c * ODD + lane + v * LANES, sum[c][r][v]);
}

/* Computes all sums of these rows, strip after strip. The call is turn `turn` of `turns` over the block of weights; one of the
 * turns prefetches the blocks that follow. turns is a constant or more than 1; 0: the weights are in a cache. */
INLINE void strips(enum weight_format format, int rows, int turn, int turns, int lines, const unsigned char *unit, int from,
                   int to, const float *const *in, float *chains)
{
    const int width = STRIP_VECTORS(rows), all = turns * STRIPS(rows);
    int number = turn * STRIPS(rows);
#pragma GCC unroll 2
    for (int first = 0; first < rows; first += STRIP_ROWS(rows)) {
        const int some = rows - first < STRIP_ROWS(rows) ? rows - first : STRIP_ROWS(rows);
        const float *const *x = in + first;
        float *sums = chains + first * ROW_CHAINS;
        for (int lane = 0; lane < UNIT_OUTPUTS; lane += width * LANES)
            if (STRIP_CHAINS(rows) == 2) {
                strip(format, some, width, 0, 2, number++, all, lines, unit, lane, from, to, x, sums);
            } else {
                strip(format, some, width, 0, 1, number++, all, lines, unit, lane, from, to, x, sums);
                strip(format, some, width, 1, 1, number++, all, lines, unit, lane, from, to, x, sums);
            }
    }
}

/* Adds the last input if their number is odd: it belongs to the even chain, and the second half of its pair must not be read as
 * f32. */
INLINE void last_input(enum weight_format format, int rows, const unsigned char *step, int input, const float *const *in,
                       float *chains)
{
    for (int lane = 0; lane < UNIT_OUTPUTS; lane += LANES) {
        vector even, odd;
        if (format == FORMAT_F32)
            even = vector_load((const float *)(const void *)step + lane);
        else
            vector_pair(format, step + lane * (format == FORMAT_F16 ? 2 : 4), &even, &odd);
        for (int r = 0; r < rows; r++) {
            float *sum = chains + r * ROW_CHAINS + lane;
            vector_store(sum, vector_fma(even, vector_all(in[r][input]), vector_load(sum)));
        }
    }
}

/* Computes the products from the chains over all complete pairs. */
INLINE void finish(enum weight_format format, int rows, const unsigned char *unit, int inputs, const float *const *in,
                   float *chains, float *out)
{
    if (inputs % 2)
        last_input(format, rows, unit + unit_bytes(format, inputs - 1), inputs - 1, in, chains);
    for (int r = 0; r < rows; r++, chains += ROW_CHAINS, out += UNIT_OUTPUTS)
        for (int lane = 0; lane < UNIT_OUTPUTS; lane += LANES)
            vector_store(out + lane, vector_add(vector_load(chains + lane), vector_load(chains + ODD + lane)));
}

INLINE void product(enum weight_format format, int rows, const unsigned char *unit, int inputs, const float *const *in,
                    float *out)
{
    const int pairs = inputs / 2;
    const int block = STRIPS(rows) == 1 ? pairs : BLOCK_BYTES / (int)unit_pair_bytes(format);
    _Alignas(64) float chains[FEW_ROWS * ROW_CHAINS];
    memset(chains, 0, (size_t)(rows * ROW_CHAINS) * sizeof *chains);
    for (int from = 0; from < pairs; from += block) {
        int to = pairs - from < block ? pairs : from + block;
        strips(format, rows, 0, 1, STRIP_LINES(format, STRIPS(rows)), unit, from, to, in, chains);
    }
    finish(format, rows, unit, inputs, in, chains, out);
}

#define PRODUCT(format, rows) \
    static void product_##format##_##rows(const unsigned char *unit, int inputs, const void *const *in, float *out) \
    { \
        const float *x[FEW_ROWS]; \
        for (int r = 0; r < rows; r++) \
            x[r] = in[r]; \
        product(format, rows, unit, inputs, x, out); \
    }
#if defined(ISA_AVX512)
#define LAST_PRODUCT(format)
#define LAST_NAME(format)
#else
#define LAST_PRODUCT(format) PRODUCT(format, 8)
#define LAST_NAME(format) , product_##format##_8
#endif
#define PRODUCTS(format) \
    PRODUCT(format, 1) PRODUCT(format, 2) PRODUCT(format, 3) PRODUCT(format, 4) \
    PRODUCT(format, 5) PRODUCT(format, 6) PRODUCT(format, 7) LAST_PRODUCT(format)
#define PRODUCT_NAMES(format) \
    [format] = {product_##format##_1, product_##format##_2, product_##format##_3, product_##format##_4, \
                product_##format##_5, product_##format##_6, product_##format##_7 LAST_NAME(format)}

PRODUCTS(FORMAT_F32)
PRODUCTS(FORMAT_F16)
PRODUCTS(FORMAT_BF16)

typedef void product_function(const unsigned char *unit, int inputs, const void *const *in, float *out);

static product_function *const PRODUCT_TABLE[][FEW_ROWS] = {PRODUCT_NAMES(FORMAT_F32), PRODUCT_NAMES(FORMAT_F16),
                                                             PRODUCT_NAMES(FORMAT_BF16)};

#if defined(ISA_AVX512)

/* A pass with more rows is divided into turns of 4, 5 or 6 rows. Each is a separate function, because otherwise compilers keep
 * the sums of several turns at once and run out of registers. */
enum { TURN_ROWS_MIN = 4, TURN_ROWS = 6 };

#define TURN(format, rows) \
    static __attribute__((noinline)) void turn_##format##_##rows(int turn, int turns, const unsigned char *unit, int from, \
                                                                 int to, const float *const *in, float *chains) \
    { \
        strips(format, rows, turn, turns, STRIP_LINES(format, 2 * STRIPS(rows)), unit, from, to, in, chains); \
    }
#define TURNS(format) TURN(format, 4) TURN(format, 5) TURN(format, 6)
#define TURN_NAMES(format) [format] = {turn_##format##_4, turn_##format##_5, turn_##format##_6}

TURNS(FORMAT_F32)
TURNS(FORMAT_F16)
TURNS(FORMAT_BF16)

typedef void turn_function(int turn, int turns, const unsigned char *unit, int from, int to, const float *const *in,
                           float *chains);

static turn_function *const TURN_TABLE[][TURN_ROWS - TURN_ROWS_MIN + 1] = {TURN_NAMES(FORMAT_F32), TURN_NAMES(FORMAT_F16),
                                                                           TURN_NAMES(FORMAT_BF16)};

static void product_in_turns(enum weight_format format, const unsigned char *unit, int inputs, int rows,
                             const void *const *in, float *out)
{
    const int pairs = inputs / 2, block = BLOCK_BYTES / (int)unit_pair_bytes(format);
    const int turns = (rows + TURN_ROWS - 1) / TURN_ROWS;
    _Alignas(64) float chains[PASS_ROWS * ROW_CHAINS];
    const float *x[PASS_ROWS];
    for (int r = 0; r < rows; r++)
        x[r] = in[r];
    memset(chains, 0, (size_t)(rows * ROW_CHAINS) * sizeof *chains);
    for (int from = 0; from < pairs; from += block)
        for (int turn = 0; turn < turns; turn++) {
            const int first = pass_first(rows, turns, turn), count = pass_first(rows, turns, turn + 1) - first;
            TURN_TABLE[format][count - TURN_ROWS_MIN](turn, turns, unit, from, pairs - from < block ? pairs : from + block,
                                                      x + first, chains + first * ROW_CHAINS);
        }
    finish(format, rows, unit, inputs, x, chains, out);
}

#endif

#define BULK(rows) \
    static void bulk_##rows(const float *unit, int inputs, const float *const *in, float *chains) \
    { \
        strips(FORMAT_F32, rows, 0, 0, 0, (const void *)unit, 0, inputs / 2, in, chains); \
    }

BULK(1) BULK(2) BULK(3) BULK(4) BULK(5) BULK(6)

/* inputs must be even. */
static void bulk(const float *unit, int inputs, int rows, const float *const *in, float *chains)
{
    static void (*const table[BULK_ROWS])(const float *, int, const float *const *, float *) = {
        bulk_1, bulk_2, bulk_3, bulk_4, bulk_5, bulk_6};
    table[rows - 1](unit, inputs, in, chains);
}

void unit_product(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out)
{
#if defined(ISA_AMX)
    if (format == FORMAT_BF16) {
        unit_product_tiles(unit, inputs, rows, in[0], out);
        return;
    }
    if (format_quantised(format) && rows > VECTOR_ROWS) {
        unit_product_tiles_quantised(format, unit, inputs, rows, in[0], out);
        return;
    }
#endif
    if (format_quantised(format))
        unit_product_quantised(format, unit, inputs, rows, in, out);
    else if (format_scaled(format) && rows > decoded_rows(format))
        unit_product_bulk(format, unit, inputs, rows, in, out);
    else if (format_scaled(format))
        unit_product_coded(format, unit, inputs, rows, in, out);
#if defined(ISA_AVX512)
    else if (rows > FEW_ROWS)
        product_in_turns(format, unit, inputs, rows, in, out);
#endif
    else
        PRODUCT_TABLE[format][rows - 1](unit, inputs, in, out);
}

#else

/* Returns the weights of one input for all outputs. */
static void input_weights(enum weight_format format, const unsigned char *unit, int input, float *weight)
{
    const unsigned char *step = unit + (size_t)(format == FORMAT_F32 ? input : input / 2) * UNIT_STEP_BYTES;
    uint16_t halves[2 * UNIT_OUTPUTS];
    int odd = input % 2;
    if (format == FORMAT_F32) {
        memcpy(weight, step, UNIT_OUTPUTS * sizeof *weight);
        return;
    }
    memcpy(halves, step, sizeof halves);
    for (int o = 0; o < UNIT_OUTPUTS; o++)
        weight[o] = format == FORMAT_F16 ? f16_to_f32(halves[odd * UNIT_OUTPUTS + o]) : bf16_to_f32(halves[2 * o + odd]);
}

/* inputs must be even. */
static void bulk(const float *unit, int inputs, int rows, const float *const *in, float *chains)
{
    for (int k = 0; k < inputs; k++)
        for (int r = 0; r < rows; r++) {
            float *sum = chains + r * ROW_CHAINS + k % 2 * ODD;
            for (int o = 0; o < UNIT_OUTPUTS; o++)
                sum[o] = __builtin_fmaf(unit[k * UNIT_OUTPUTS + o], in[r][k], sum[o]);
        }
}

void unit_product(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out)
{
    float chains[PASS_ROWS * ROW_CHAINS], weight[UNIT_OUTPUTS];
    if (format_quantised(format)) {
        unit_product_quantised(format, unit, inputs, rows, in, out);
        return;
    }
    if (format_scaled(format) && rows > decoded_rows(format)) {
        unit_product_bulk(format, unit, inputs, rows, in, out);
        return;
    }
    if (format_scaled(format)) {
        unit_product_coded(format, unit, inputs, rows, in, out);
        return;
    }
    memset(chains, 0, sizeof chains);
    for (int k = 0; k < inputs; k++) {
        input_weights(format, unit, k, weight);
        for (int r = 0; r < rows; r++) {
            float *sum = chains + r * ROW_CHAINS + k % 2 * ODD, x = ((const float *)in[r])[k];
            for (int o = 0; o < UNIT_OUTPUTS; o++)
                sum[o] = __builtin_fmaf(weight[o], x, sum[o]);
        }
    }
    add_chains(rows, chains, out);
}

#endif

void unit_product_rounded(const void *unit, int inputs, int rows, const void *const *in, float *out)
{
#if defined(ISA_VNNI)
    if (__builtin_cpu_supports("avx512bf16")) {
        unit_product_dot(unit, inputs, rows, in, out);
        return;
    }
#endif
    unit_product_flushed(unit, inputs, rows, in, out);
}

enum { BULK_INPUTS = 256, MAX_PASSES = (MAX_ROWS + BULK_ROWS - 1) / BULK_ROWS };

static void unit_product_bulk(enum weight_format format, const unsigned char *unit, int inputs, int rows,
                              const void *const *in, float *out)
{
    _Alignas(64) float weight[BULK_INPUTS * UNIT_OUTPUTS], chains[MAX_PASSES][BULK_ROWS * ROW_CHAINS];
    _Alignas(64) float rest[BULK_ROWS][BLOCK_INPUTS];
    const int passes = (rows + BULK_ROWS - 1) / BULK_ROWS, odd = inputs % BLOCK_INPUTS, whole = inputs - odd;
    for (int p = 0; p < passes; p++)
        memset(chains[p], 0, sizeof chains[p]);
    for (int k = 0; k < inputs; k += BULK_INPUTS) {
        const int left = inputs - k < BULK_INPUTS ? inputs - k : BULK_INPUTS, even = left / BLOCK_INPUTS * BLOCK_INPUTS;
        unit_decode(format, unit + (size_t)(k / BULK_INPUTS) * unit_chunk_bytes(format),
                    (left + BLOCK_INPUTS - 1) / BLOCK_INPUTS * BLOCK_INPUTS, weight);
        for (int p = 0; p < passes; p++) {
            const int first = pass_first(rows, passes, p), count = pass_first(rows, passes, p + 1) - first;
            const float *x[BULK_ROWS];
            for (int r = 0; r < count; r++)
                x[r] = (const float *)in[first + r] + k;
            if (even)
                bulk(weight, even, count, x, chains[p]);
            if (even == left)
                continue;
            for (int r = 0; r < count; r++) {
                memset(rest[r], 0, sizeof rest[r]);
                memcpy(rest[r], (const float *)in[first + r] + whole, (size_t)odd * sizeof(float));
                x[r] = rest[r];
            }
            bulk(weight + (size_t)even * UNIT_OUTPUTS, BLOCK_INPUTS, count, x, chains[p]);
        }
    }
    for (int p = 0; p < passes; p++) {
        const int first = pass_first(rows, passes, p), count = pass_first(rows, passes, p + 1) - first;
        add_chains(count, chains[p], out + first * UNIT_OUTPUTS);
    }
}
