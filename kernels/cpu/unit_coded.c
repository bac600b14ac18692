/* Products with weights that are decoded (spans.h): they are converted in registers to exactly the f32 of formats.h and
 * multiplied with f32 activations in the two chains of linear.h.
 *
 * Inputs are processed in SPANS of 32, which share at least some scales; eight spans are a CHUNK of 256 inputs, which has the
 * same number of bytes everywhere in a unit. A strip of outputs processes a chunk with its sums in registers. If several strips
 * share the outputs, they take turns chunk by chunk, while the chunk is in the first-level cache. */
#include <string.h>

#include "common/base/float.h"
#include "kernels/cpu/spans.h"
#include "kernels/cpu/unit.h"

enum { CHAINS = 2 * DECODED_ROWS * UNIT_OUTPUTS, ODD = DECODED_ROWS * UNIT_OUTPUTS };

/* Copies the last inputs of rows whose length is not a multiple of 32, padded with zeros. */
INLINE void take_rest(int rows, int inputs, const void *const *in, float (*room)[SPAN], const float **rest)
{
    const int whole = inputs / SPAN * SPAN;
    for (int r = 0; r < rows; r++) {
        memset(room[r], 0, sizeof room[r]);
        memcpy(room[r], (const float *)in[r] + whole, (size_t)(inputs - whole) * sizeof(float));
        rest[r] = room[r];
    }
}

#if defined(ISA_VECTORS)

INLINE void decode(enum weight_format format, const unsigned char *chunk, int inputs, float *out)
{
    enum { WIDTH = LANES == 8 ? 1 : 2 };
    const size_t bytes = unit_chunk_bytes(format);
    for (int span = 0; span < inputs / SPAN; span++) {
        for (size_t line = 0; line < bytes / CHUNK_SPANS; line += 64)
            fetch_after(chunk + (size_t)span * (bytes / CHUNK_SPANS) + line, bytes, 2 * bytes);
        for (int lane = 0; lane < UNIT_OUTPUTS; lane += WIDTH * LANES) {
            struct sums sums = {.decoded = out + lane};
            span_of(format, &sums, 0, WIDTH, BOTH_CHAINS, chunk, lane, span, NULL, span * SPAN);
        }
    }
}

#define DECODE(NAME, name, kind, step, block, bytes) \
    IF_DECODED_##kind(case FORMAT_##NAME: decode(FORMAT_##NAME, chunk, inputs, out); break;)

void unit_decode(enum weight_format format, const void *chunk, int inputs, float *out)
{
    switch (format) {
        WEIGHT_FORMATS(DECODE)
    default: break;
    }
}

/* Processes spans `from` .. `to` of a chunk, whose first input is in[r][0], for `width` vectors of outputs from `lane` on, as
 * strip `number` of `strips`. */
INLINE void strip(enum weight_format format, int rows, int width, enum chains parts, int number, int strips,
                  const unsigned char *chunk, int lane, int from, int to, const float *const *in, float *chains)
{
    const size_t span_bytes = unit_chunk_bytes(format) / CHUNK_SPANS;
    struct sums sums = {.stream = strips == 1};
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            if (parts & EVEN_CHAIN)
                sums.even[r][v] = vector_load(chains + r * UNIT_OUTPUTS + lane + v * LANES);
            if (parts & ODD_CHAIN)
                sums.odd[r][v] = vector_load(chains + ODD + r * UNIT_OUTPUTS + lane + v * LANES);
        }
    for (int span = from; span < to; span++) {
        const unsigned char *at = chunk + (size_t)span * span_bytes;
#pragma GCC unroll 9
        for (size_t line = strips > 1 ? (size_t)number : span_bytes; line * 64 < span_bytes; line += (size_t)strips)
            fetch_after(at + line * 64, unit_chunk_bytes(format), 2 * unit_chunk_bytes(format));
        const int k = (span - from) * SPAN;
        span_of(format, &sums, rows, width, parts, chunk, lane, span, in, k);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < width; v++) {
            if (parts & EVEN_CHAIN)
                vector_store(chains + r * UNIT_OUTPUTS + lane + v * LANES, sums.even[r][v]);
            if (parts & ODD_CHAIN)
                vector_store(chains + ODD + r * UNIT_OUTPUTS + lane + v * LANES, sums.odd[r][v]);
        }
}

/* Computes all sums of some spans, strip after strip. */
INLINE void strips(enum weight_format format, int rows, const unsigned char *chunk, int from, int to, const float *const *in,
                   float *chains)
{
    const int width = STRIP_VECTORS(rows), all = UNIT_OUTPUTS / (width * LANES) * (STRIP_CHAINS(rows) == BOTH_CHAINS ? 1 : 2);
    int number = 0;
    for (int lane = 0; lane < UNIT_OUTPUTS; lane += width * LANES)
        if (STRIP_CHAINS(rows) == BOTH_CHAINS) {
            strip(format, rows, width, BOTH_CHAINS, number++, all, chunk, lane, from, to, in, chains);
        } else {
            strip(format, rows, width, EVEN_CHAIN, number++, all, chunk, lane, from, to, in, chains);
            strip(format, rows, width, ODD_CHAIN, number++, all, chunk, lane, from, to, in, chains);
        }
}

/* The last inputs of rows whose length is not a multiple of 32, one row at a time: a version for several rows would be compiled
 * once for each number of rows. The sums of a row do not depend on the other rows. */
#define REST(format) \
    static __attribute__((noinline)) void rest_##format(const unsigned char *chunk, int span, const float *in, \
                                                        float *chains) \
    { \
        strips(format, 1, chunk, span, span + 1, &in, chains); \
    }

#define REST_OF(NAME, name, kind, step, block, bytes) IF_DECODED_##kind(REST(FORMAT_##NAME))
WEIGHT_FORMATS(REST_OF)

typedef void rest_function(const unsigned char *chunk, int span, const float *in, float *chains);

#define REST_NAME(NAME, name, kind, step, block, bytes) IF_DECODED_##kind([FORMAT_##NAME] = rest_FORMAT_##NAME,)
static rest_function *const REST_TABLE[FORMAT_COUNT] = {WEIGHT_FORMATS(REST_NAME)};

INLINE void product(enum weight_format format, int rows, const unsigned char *unit, int inputs, const void *const *in,
                    float *out)
{
    const int whole = inputs / SPAN;
    _Alignas(64) float chains[CHAINS];
    const float *x[DECODED_ROWS];
    for (int r = 0; r < rows; r++) {
        memset(chains + r * UNIT_OUTPUTS, 0, UNIT_OUTPUTS * sizeof *chains);
        memset(chains + ODD + r * UNIT_OUTPUTS, 0, UNIT_OUTPUTS * sizeof *chains);
    }
    for (int span = 0; span < whole; span += CHUNK_SPANS) {
        const unsigned char *chunk = unit + (size_t)(span / CHUNK_SPANS) * unit_chunk_bytes(format);
        int count = whole - span < CHUNK_SPANS ? whole - span : CHUNK_SPANS;
        for (int r = 0; r < rows; r++)
            x[r] = (const float *)in[r] + span * SPAN;
        strips(format, rows, chunk, 0, count, x, chains);
    }
    if (inputs % SPAN) {
        const unsigned char *chunk = unit + (size_t)(whole / CHUNK_SPANS) * unit_chunk_bytes(format);
        float room[DECODED_ROWS][SPAN];
        take_rest(rows, inputs, in, room, x);
        for (int r = 0; r < rows; r++)
            REST_TABLE[format](chunk, whole % CHUNK_SPANS, x[r], chains + r * UNIT_OUTPUTS);
    }
    for (int i = 0; i < rows * UNIT_OUTPUTS; i += LANES)
        vector_store(out + i, vector_add(vector_load(chains + i), vector_load(chains + ODD + i)));
}

#define PRODUCT(format, rows) \
    static void product_##format##_##rows(const unsigned char *unit, int inputs, const void *const *in, float *out) \
    { \
        product(format, rows, unit, inputs, in, out); \
    }
#define PRODUCTS(format) \
    PRODUCT(format, 1) PRODUCT(format, 2) PRODUCT(format, 3) PRODUCT(format, 4) \
    PRODUCT(format, 5) PRODUCT(format, 6) PRODUCT(format, 7) PRODUCT(format, 8)
#define PRODUCTS_CODED(format) PRODUCTS(format)
#define PRODUCTS_WOVEN(format) PRODUCTS(format)
#define PRODUCTS_GRID(format) PRODUCT(format, 1)
#define PRODUCT_NAMES(format) \
    [format] = {product_##format##_1, product_##format##_2, product_##format##_3, product_##format##_4, \
                product_##format##_5, product_##format##_6, product_##format##_7, product_##format##_8}

#define PRODUCT_NAMES_CODED(format) PRODUCT_NAMES(format)
#define PRODUCT_NAMES_WOVEN(format) PRODUCT_NAMES(format)
#define PRODUCT_NAMES_GRID(format) [format] = {product_##format##_1}

#define PRODUCTS_OF(NAME, name, kind, step, block, bytes) IF_DECODED_##kind(PRODUCTS_##kind(FORMAT_##NAME))
WEIGHT_FORMATS(PRODUCTS_OF)

typedef void product_function(const unsigned char *unit, int inputs, const void *const *in, float *out);

#define PRODUCT_ROW(NAME, name, kind, step, block, bytes) IF_DECODED_##kind(PRODUCT_NAMES_##kind(FORMAT_##NAME),)
static product_function *const PRODUCT_TABLE[FORMAT_COUNT][DECODED_ROWS] = {WEIGHT_FORMATS(PRODUCT_ROW)};

void unit_product_coded(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out)
{
    PRODUCT_TABLE[format][rows - 1](unit, inputs, in, out);
}

#else

/* ---- plain C ---- */

static void span_weights(enum weight_format format, const unsigned char *chunk, int span, float (*weight)[UNIT_OUTPUTS])
{
    for (int i = 0; i < SPAN; i++)
        for (int o = 0; o < UNIT_OUTPUTS; o++)
            weight[i][o] = coded_at(format, chunk, o, span * SPAN + i);
}

void unit_decode(enum weight_format format, const void *chunk, int inputs, float *out)
{
    for (int k = 0; k < inputs; k += SPAN)
        span_weights(format, chunk, k / SPAN, (float (*)[UNIT_OUTPUTS])(out + (size_t)k * UNIT_OUTPUTS));
}

void unit_product_coded(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out)
{
    float chains[CHAINS], weight[SPAN][UNIT_OUTPUTS], room[DECODED_ROWS][SPAN];
    const float *rest[DECODED_ROWS];
    memset(chains, 0, sizeof chains);
    take_rest(rows, inputs, in, room, rest);
    for (int k = 0; k < inputs; k += SPAN) {
        const unsigned char *chunk = (const unsigned char *)unit + (size_t)(k / SUPERBLOCK_INPUTS) * unit_chunk_bytes(format);
        const int span = k / SPAN % CHUNK_SPANS;
        span_weights(format, chunk, span, weight);
        for (int r = 0; r < rows; r++) {
            const float *x = inputs - k < SPAN ? rest[r] : (const float *)in[r] + k;
            for (int i = 0; i < SPAN; i++) {
                float *sum = chains + i % 2 * ODD + r * UNIT_OUTPUTS;
                for (int o = 0; o < UNIT_OUTPUTS; o++)
                    sum[o] = __builtin_fmaf(weight[i][o], x[i], sum[o]);
            }
        }
    }
    for (int i = 0; i < rows * UNIT_OUTPUTS; i++)
        out[i] = chains[i] + chains[ODD + i];
}

#endif
