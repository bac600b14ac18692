/* Products of one unit of bf16 weights with activations that are rounded to bf16: rows in sets whose sums fit into registers.
 * Rows in one set read the unit as one stream. With several sets, inputs are processed in chunks that stay in the
 * first-level cache while each set uses them, and the sets share the prefetches of the next chunk.
 *
 * The file that includes this header defines how a pair of inputs is multiplied: the type `factors`, factors_weights (one
 * vector of outputs), factors_all (the same activations for all outputs) and factors_add, which returns the sum with the pair's
 * products added. */
#ifndef MOE_KERNELS_CPU_ROUNDED_SETS_H
#define MOE_KERNELS_CPU_ROUNDED_SETS_H

#include "kernels/cpu/fetch.h"
#include "kernels/cpu/unit.h"
#include "kernels/cpu/vector.h"

#if defined(ISA_AVX512) || defined(ISA_AVX2)

/* A strip has two vectors of outputs. SET_ROWS: rows with a product function of their own. */
#if defined(ISA_AVX512)
enum { SET_ROWS = 12 };
#else
enum { SET_ROWS = 4 };
#endif
enum { STRIP_VECTORS = 2, STRIP_OUTPUTS = STRIP_VECTORS * LANES, CHUNK_PAIRS = 96 };

struct span {
    int from, to;                       /* pairs */
    int set, sets;
    size_t near, far;                   /* see fetch_after */
};

/* Adds the products of the span to `out`, the sums so far, or begins the sums. rows is a constant at each use, so that the sums
 * become registers. */
INLINE void strip(int rows, const struct span *given, const unsigned char *unit, int lane, const void *const *in, float *out)
{
    const struct span whole = {0, given->to, 0, 1, FETCH_NEAR, FETCH_FAR};
    const struct span *const span = rows < SET_ROWS / 2 ? &whole : given;           /* sets of several are larger */
    vector sum[SET_ROWS][STRIP_VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < STRIP_VECTORS; v++)
            sum[r][v] = span->from ? vector_load(out + r * UNIT_OUTPUTS + lane + v * LANES) : vector_zero();
    for (int pair = span->from, turn = span->set; pair < span->to; pair++, turn = turn ? turn - 1 : span->sets - 1) {
        const unsigned char *at = unit + (size_t)pair * UNIT_STEP_BYTES + lane * 4;
        factors weight[STRIP_VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < STRIP_VECTORS; v++)
            weight[v] = factors_weights(at + v * LANES * 4);
        if (turn == 0)
            fetch_after(at, span->near, span->far);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const factors x = factors_all((const uint16_t *)in[r] + 2 * pair);
#pragma GCC unroll 2
            for (int v = 0; v < STRIP_VECTORS; v++)
                sum[r][v] = factors_add(weight[v], x, sum[r][v]);
        }
        if (turn == 0 && (int)STRIP_OUTPUTS == (int)UNIT_OUTPUTS)
            fetch_after(at + 64, span->near, span->far);
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < STRIP_VECTORS; v++)
            vector_store(out + r * UNIT_OUTPUTS + lane + v * LANES, sum[r][v]);
}

typedef void set_function(const struct span *span, const unsigned char *unit, const void *const *in, float *out);

#define SET(rows) \
    static void set_##rows(const struct span *span, const unsigned char *unit, const void *const *in, float *out) \
    { \
        for (int lane = 0; lane < UNIT_OUTPUTS; lane += STRIP_OUTPUTS) \
            strip(rows, span, unit, lane, in, out); \
    }

SET(1) SET(2) SET(3) SET(4)
#if defined(ISA_AVX512)
SET(5) SET(6) SET(7) SET(8) SET(9) SET(10) SET(11) SET(12)
#endif

static set_function *const SETS[SET_ROWS] = {
    set_1, set_2, set_3, set_4,
#if defined(ISA_AVX512)
    set_5, set_6, set_7, set_8, set_9, set_10, set_11, set_12
#endif
};

static void run_sets(const void *unit, int inputs, int rows, const void *const *in, float *out)
{
    const int pairs = (inputs + 1) / 2, sets = (rows + SET_ROWS - 1) / SET_ROWS;
    if (sets == 1) {
        SETS[rows - 1](&(struct span){0, pairs, 0, 1, FETCH_NEAR, FETCH_FAR}, unit, in, out);
        return;
    }
    const size_t bytes = CHUNK_PAIRS * UNIT_STEP_BYTES;
    for (int from = 0; from < pairs; from += CHUNK_PAIRS)
        for (int set = 0; set < sets; set++) {
            const int first = pass_first(rows, sets, set), count = pass_first(rows, sets, set + 1) - first;
            const int to = pairs - from < CHUNK_PAIRS ? pairs : from + CHUNK_PAIRS;
            const struct span span = {from, to, set, sets, bytes, 2 * bytes};
            SETS[count - 1](&span, unit, in + first, out + first * UNIT_OUTPUTS);
        }
}

#endif
#endif
