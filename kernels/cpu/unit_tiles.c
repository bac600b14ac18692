/* Products with bf16 weights by matrix tiles (AMX). The pairs of inputs of a unit have the layout of a tile, so weights are
 * loaded from the mapped file directly into tiles of 16 pairs by 16 outputs. A pass is one walk over the unit with up to 16
 * rows, and each of the three parts of these rows has its own sums: tiles 0, 2 and 4 for outputs 0..15, 1, 3 and 5 for outputs
 * 16..31. */
#if defined(ISA_AMX)

#include <immintrin.h>

#include "kernels/cpu/fetch.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/unit.h"

#define INLINE static inline __attribute__((always_inline))

enum { STEP_INPUTS = BLOCK_INPUTS, STEP_BYTES = STEP_INPUTS / 2 * UNIT_STEP_BYTES, STRIPS = UNIT_OUTPUTS / TILE_OUTPUTS,
       OUT_BYTES = UNIT_OUTPUTS * 4 };

static void shape(int rows)
{
    struct tile_shapes shapes = {0};
    for (int tile = 0; tile < TILES_THERE; tile++)
        tile_shape(&shapes, tile, tile < 7 ? rows : STEP_INPUTS / 2, TILE_BYTES);
    tiles_begin(&shapes);
}

/* Prefetches the `number`-th sixth of the lines that follow a step's. */
INLINE void fetch_sixth(bool fetch, const unsigned char *weights, int number)
{
    enum { LINES = STEP_BYTES / 64 };
    if (!fetch)
        return;
#pragma GCC unroll 6
    for (int line = number * LINES / 6; line < (number + 1) * LINES / 6; line++)
        fetch_ahead(weights + line * 64);
}

INLINE void step(const unsigned char *weights, const unsigned char *in, size_t stride, bool fetch)
{
    TILE_LOAD(7, weights, UNIT_STEP_BYTES);
    TILE_LOAD(6, in, stride);
    TILE_MULTIPLY_BF16(0, 6, 7);
    fetch_sixth(fetch, weights, 0);
    TILE_LOAD(6, in + PARTS_LINE, stride);
    TILE_MULTIPLY_BF16(2, 6, 7);
    fetch_sixth(fetch, weights, 1);
    TILE_LOAD(6, in + 2 * PARTS_LINE, stride);
    TILE_MULTIPLY_BF16(4, 6, 7);
    fetch_sixth(fetch, weights, 2);
    TILE_LOAD(7, weights + TILE_BYTES, UNIT_STEP_BYTES);
    TILE_MULTIPLY_BF16(5, 6, 7);
    fetch_sixth(fetch, weights, 3);
    TILE_LOAD(6, in + PARTS_LINE, stride);
    TILE_MULTIPLY_BF16(3, 6, 7);
    fetch_sixth(fetch, weights, 4);
    TILE_LOAD(6, in, stride);
    TILE_MULTIPLY_BF16(1, 6, 7);
    fetch_sixth(fetch, weights, 5);
}

/* Runs one pass of up to 16 rows. `fetch`: prefetches the unit's next bytes; later passes find them in a cache. */
INLINE void pass(const unsigned char *unit, int inputs, int rows, const unsigned char *in, bool fetch, float *out)
{
    const size_t stride = operand_bytes(FORMAT_BF16, inputs);
    const unsigned char *weights = unit;
    _Alignas(64) float sums[PARTS][TILE_ROWS * UNIT_OUTPUTS];
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    TILE_ZERO(4);
    TILE_ZERO(5);
    const int whole = inputs / STEP_INPUTS;
    for (int k = 0; k < whole; k++, weights += STEP_BYTES, in += PARTS_STEP)
        step(weights, in, stride, fetch);
    if (inputs % STEP_INPUTS) {
        _Alignas(64) unsigned char last[STEP_BYTES] = {0};
        memcpy(last, weights, unit_bytes(FORMAT_BF16, inputs % STEP_INPUTS));
        step(last, in, stride, false);
    }
    TILE_STORE(0, sums[0], OUT_BYTES);
    TILE_STORE(1, sums[0] + TILE_OUTPUTS, OUT_BYTES);
    TILE_STORE(2, sums[1], OUT_BYTES);
    TILE_STORE(3, sums[1] + TILE_OUTPUTS, OUT_BYTES);
    TILE_STORE(4, sums[2], OUT_BYTES);
    TILE_STORE(5, sums[2] + TILE_OUTPUTS, OUT_BYTES);
    for (int i = 0; i < rows * UNIT_OUTPUTS; i++)
        out[i] = sums[0][i] + (sums[1][i] + sums[2][i]);
}

/* Adds the even and the odd input of each pair in the order of tiles, for 32 inputs of one row. */
INLINE void one_row_step(const unsigned char *weights, const unsigned char *in, __m512 zero, __m512 (*sum)[STRIPS])
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    _Alignas(64) float x[2][PARTS][STEP_INPUTS / 2];
    __m512 half[2][PARTS][STRIPS];
#pragma GCC unroll 3
    for (int p = 0; p < PARTS; p++) {
        const __m512i pairs = _mm512_loadu_si512((const void *)(in + p * PARTS_LINE));
        _mm512_store_si512((void *)x[0][p], _mm512_slli_epi32(pairs, 16));
        _mm512_store_si512((void *)x[1][p], _mm512_and_si512(pairs, upper));
        half[0][p][0] = half[0][p][1] = half[1][p][0] = half[1][p][1] = zero;
    }
#pragma GCC unroll 4
    for (int i = 0; i < STEP_INPUTS / 2; i++)
#pragma GCC unroll 2
        for (int s = 0; s < STRIPS; s++, weights += TILE_BYTES) {
            fetch_ahead(weights);
            const __m512i pairs = _mm512_loadu_si512((const void *)weights);
            const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
            const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, upper));
#pragma GCC unroll 3
            for (int p = 0; p < PARTS; p++) {
                half[0][p][s] = _mm512_fmadd_ps(even, _mm512_set1_ps(x[0][p][i]), half[0][p][s]);
                half[1][p][s] = _mm512_fmadd_ps(odd, _mm512_set1_ps(x[1][p][i]), half[1][p][s]);
            }
        }
#pragma GCC unroll 3
    for (int p = 0; p < PARTS; p++)
#pragma GCC unroll 2
        for (int s = 0; s < STRIPS; s++)
            sum[p][s] = _mm512_add_ps(sum[p][s], _mm512_add_ps(half[0][p][s], half[1][p][s]));
}

/* Computes one row with the vector unit, which reads weights faster than tiles do, in the order of tiles. Like tiles, it
 * flushes subnormal numbers to zero while sums are computed. */
static void one_row(const unsigned char *unit, int inputs, const unsigned char *in, float *out)
{
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    __m512 zero = _mm512_setzero_ps(), sum[PARTS][STRIPS];
    __asm__ volatile("" : "+v"(zero));              /* keeps the compiler from computing sums before the control word is set */
    for (int p = 0; p < PARTS; p++)
        sum[p][0] = sum[p][1] = zero;
    for (int k = 0; k < inputs; k += STEP_INPUTS, unit += STEP_BYTES, in += PARTS_STEP) {
        _Alignas(64) unsigned char last[STEP_BYTES];
        const unsigned char *weights = unit;
        if (inputs - k < STEP_INPUTS) {
            memset(last, 0, sizeof last);
            weights = memcpy(last, unit, unit_bytes(FORMAT_BF16, inputs - k));
        }
        one_row_step(weights, in, zero, sum);
    }
    for (int p = 0; p < PARTS; p++)
        __asm__ volatile("" : "+v"(sum[p][0]), "+v"(sum[p][1]));
    _mm_setcsr(control);
    for (int s = 0; s < STRIPS; s++)
        _mm512_storeu_ps(out + s * TILE_OUTPUTS, _mm512_add_ps(sum[0][s], _mm512_add_ps(sum[1][s], sum[2][s])));
}

void unit_product_tiles(const void *unit, int inputs, int rows, const void *parts, float *out)
{
    const size_t stride = operand_bytes(FORMAT_BF16, inputs);
    int shaped = 0;
    if (rows == 1) {
        one_row(unit, inputs, parts, out);
        return;
    }
    for (int first = 0; first < rows; first += TILE_ROWS) {
        const int count = rows - first < TILE_ROWS ? rows - first : TILE_ROWS;
        if (count != shaped)
            shape(shaped = count);
        if (first == 0)
            pass(unit, inputs, count, parts, true, out);
        else
            pass(unit, inputs, count, (const unsigned char *)parts + (size_t)first * stride, false, out + first * UNIT_OUTPUTS);
    }
    tiles_end();
}

#endif
