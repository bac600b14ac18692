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

/* Prefetches a span of the next two chunks. */
INLINE void fetch_chunks(const unsigned char *chunk, size_t bytes, int span)
{
    for (size_t line = 0; line < bytes / CHUNK_SPANS; line += 64)
        fetch_after(chunk + (size_t)span * (bytes / CHUNK_SPANS) + line, bytes, 2 * bytes);
}

/* Functions of a format are made by macros from the name of its decoder: a function with the format as an argument would
 * be compiled with the decoders of all formats at each use. */
#define DECODE(NAME, name) \
    static void decode_##name(const unsigned char *chunk, int inputs, float *out) \
    { \
        enum { WIDTH = LANES == 8 ? 1 : 2 }; \
        for (int span = 0; span < inputs / SPAN; span++) { \
            fetch_chunks(chunk, unit_chunk_bytes(FORMAT_##NAME), span); \
            for (int lane = 0; lane < UNIT_OUTPUTS; lane += WIDTH * LANES) { \
                struct sums sums = {.decoded = out + lane}; \
                span_##name(&sums, 0, WIDTH, BOTH_CHAINS, chunk, lane, span, NULL, span * SPAN); \
            } \
        } \
    }

/* A part of a unit's sums: the chains selected by `parts`, for `width` vectors of outputs from output `lane` on. It is the part
 * with this `number` among `all` parts. */
struct strip {
    enum chains parts;
    int width, lane, number, all;
};

/* Returns the vector of sums of `row` and vector `v` of the strip. */
INLINE float *chain_at(const struct strip *strip, float *chains, int row, int v)
{
    return chains + row * UNIT_OUTPUTS + strip->lane + v * LANES;
}

INLINE void sums_load(struct sums *sums, int rows, const struct strip *strip, float *chains)
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < strip->width; v++) {
            if (strip->parts & EVEN_CHAIN)
                sums->even[r][v] = vector_load(chain_at(strip, chains, r, v));
            if (strip->parts & ODD_CHAIN)
                sums->odd[r][v] = vector_load(chain_at(strip, chains + ODD, r, v));
        }
}

INLINE void sums_store(const struct sums *sums, int rows, const struct strip *strip, float *chains)
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < strip->width; v++) {
            if (strip->parts & EVEN_CHAIN)
                vector_store(chain_at(strip, chains, r, v), sums->even[r][v]);
            if (strip->parts & ODD_CHAIN)
                vector_store(chain_at(strip, chains + ODD, r, v), sums->odd[r][v]);
        }
}

/* Prefetches the strip's share of a span of the next two chunks. */
INLINE void fetch_share(const struct strip *strip, const unsigned char *span, size_t chunk_bytes)
{
    const size_t bytes = chunk_bytes / CHUNK_SPANS;
#pragma GCC unroll 9
    for (size_t line = strip->all > 1 ? (size_t)strip->number : bytes; line * 64 < bytes; line += (size_t)strip->all)
        fetch_after(span + line * 64, chunk_bytes, 2 * chunk_bytes);
}

/* strip_NAME processes spans `from` .. `to` of a chunk, whose first input is in[r][0], for one strip. strips_NAME computes all
 * sums of these spans, strip after strip. */
#define STRIP(NAME, name) \
    INLINE void strip_##name(int rows, struct strip strip, const unsigned char *chunk, int from, int to, \
                             const float *const *in, float *chains) \
    { \
        struct sums sums = {.stream = strip.all == 1}; \
        sums_load(&sums, rows, &strip, chains); \
        for (int span = from; span < to; span++) { \
            fetch_share(&strip, chunk + (size_t)span * (unit_chunk_bytes(FORMAT_##NAME) / CHUNK_SPANS), \
                        unit_chunk_bytes(FORMAT_##NAME)); \
            span_##name(&sums, rows, strip.width, strip.parts, chunk, strip.lane, span, in, (span - from) * SPAN); \
        } \
        sums_store(&sums, rows, &strip, chains); \
    }
#define STRIPS(NAME, name) \
    INLINE void strips_##name(int rows, const unsigned char *chunk, int from, int to, const float *const *in, float *chains) \
    { \
        const int width = STRIP_VECTORS(rows), once = STRIP_CHAINS(rows) == BOTH_CHAINS; \
        const int all = UNIT_OUTPUTS / (width * LANES) * (once ? 1 : 2); \
        int number = 0; \
        for (int lane = 0; lane < UNIT_OUTPUTS; lane += width * LANES) \
            if (once) { \
                strip_##name(rows, (struct strip){BOTH_CHAINS, width, lane, number++, all}, chunk, from, to, in, chains); \
            } else { \
                strip_##name(rows, (struct strip){EVEN_CHAIN, width, lane, number++, all}, chunk, from, to, in, chains); \
                strip_##name(rows, (struct strip){ODD_CHAIN, width, lane, number++, all}, chunk, from, to, in, chains); \
            } \
    }
#define CHUNK_ROWS(name, rows) \
    static void chunk_##name##_##rows(const unsigned char *chunk, int from, int to, const float *const *in, float *chains) \
    { \
        strips_##name(rows, chunk, from, to, in, chains); \
    }
#define CHUNK_CODED(name) \
    CHUNK_ROWS(name, 1) CHUNK_ROWS(name, 2) CHUNK_ROWS(name, 3) CHUNK_ROWS(name, 4) \
    CHUNK_ROWS(name, 5) CHUNK_ROWS(name, 6) CHUNK_ROWS(name, 7) CHUNK_ROWS(name, 8)
#define CHUNK_WOVEN(name) CHUNK_CODED(name)
#define CHUNK_GRID(name) CHUNK_ROWS(name, 1)
#define FUNCTIONS_OF(NAME, name, kind, step, block, bytes) \
    IF_DECODED_##kind(DECODE(NAME, name) STRIP(NAME, name) STRIPS(NAME, name) CHUNK_##kind(name))
WEIGHT_FORMATS(FUNCTIONS_OF)

#define DECODE_OF(NAME, name, kind, step, block, bytes) \
    IF_DECODED_##kind(case FORMAT_##NAME: decode_##name(chunk, inputs, out); break;)

void unit_decode(enum weight_format format, const void *chunk, int inputs, float *out)
{
    switch (format) {
        WEIGHT_FORMATS(DECODE_OF)
    default: break;
    }
}

typedef void chunk_function(const unsigned char *chunk, int from, int to, const float *const *in, float *chains);

#define CHUNK_NAMES_CODED(name) \
    {chunk_##name##_1, chunk_##name##_2, chunk_##name##_3, chunk_##name##_4, \
     chunk_##name##_5, chunk_##name##_6, chunk_##name##_7, chunk_##name##_8}
#define CHUNK_NAMES_WOVEN(name) CHUNK_NAMES_CODED(name)
#define CHUNK_NAMES_GRID(name) {chunk_##name##_1}
#define CHUNK_NAMES_OF(NAME, name, kind, step, block, bytes) \
    IF_DECODED_##kind([FORMAT_##NAME] = CHUNK_NAMES_##kind(name),)
static chunk_function *const CHUNK_TABLE[FORMAT_COUNT][DECODED_ROWS] = {WEIGHT_FORMATS(CHUNK_NAMES_OF)};

void unit_product_coded(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out)
{
    chunk_function *const all = CHUNK_TABLE[format][rows - 1], *const one = CHUNK_TABLE[format][0];
    const size_t bytes = unit_chunk_bytes(format);
    const int whole = inputs / SPAN;
    _Alignas(64) float chains[CHAINS];
    const float *x[DECODED_ROWS];
    for (int r = 0; r < rows; r++) {
        memset(chains + r * UNIT_OUTPUTS, 0, UNIT_OUTPUTS * sizeof *chains);
        memset(chains + ODD + r * UNIT_OUTPUTS, 0, UNIT_OUTPUTS * sizeof *chains);
    }
    for (int span = 0; span < whole; span += CHUNK_SPANS) {
        for (int r = 0; r < rows; r++)
            x[r] = (const float *)in[r] + span * SPAN;
        all((const unsigned char *)unit + (size_t)(span / CHUNK_SPANS) * bytes, 0,
            whole - span < CHUNK_SPANS ? whole - span : CHUNK_SPANS, x, chains);
    }
    if (inputs % SPAN) {
        /* One row at a time: a span is filled up with zeros, and the sums of a row do not depend on the other rows. */
        const unsigned char *chunk = (const unsigned char *)unit + (size_t)(whole / CHUNK_SPANS) * bytes;
        float room[DECODED_ROWS][SPAN];
        take_rest(rows, inputs, in, room, x);
        for (int r = 0; r < rows; r++)
            one(chunk, whole % CHUNK_SPANS, whole % CHUNK_SPANS + 1, &x[r], chains + r * UNIT_OUTPUTS);
    }
    for (int i = 0; i < rows * UNIT_OUTPUTS; i += LANES)
        vector_store(out + i, vector_add(vector_load(chains + i), vector_load(chains + ODD + i)));
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
