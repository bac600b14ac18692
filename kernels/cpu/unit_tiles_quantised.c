/* Products with q8 and q4 weights by matrix tiles (AMX), for more rows than the vector unit multiplies in one pass. The integer
 * sums of a block are exact in any order, so the bits are those of unit_quantised.c.
 *
 * Inputs are processed in chunks that stay in the first-level cache. A chunk's weights are converted to signed bytes in the
 * layout of tiles, once for all rows. Then up to 16 rows at a time are multiplied with 16 outputs: a tile product gives the
 * integers of each block, which are stored to memory, loaded by the vector unit, scaled and added to sums in registers.
 * Meanwhile the next chunks are prefetched. */
#if defined(ISA_AMX)

#include <immintrin.h>

#include "kernels/cpu/fetch.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/unit.h"

#define INLINE static inline __attribute__((always_inline))

enum { CHUNK_BLOCKS = 8, STRIPS = UNIT_OUTPUTS / TILE_OUTPUTS, GROUPS = BLOCK_INPUTS / 4, STRIP_BYTES = GROUPS * TILE_BYTES };

struct chunk {
    _Alignas(64) unsigned char weights[CHUNK_BLOCKS][STRIPS][STRIP_BYTES];
    const unsigned char *packed;            /* the stored weights */
    int blocks;
    bool fetch;                             /* prefetch the next chunk */
};

/* Rows of activations: address of the first row's first block in the chunk, and bytes from row to row. */
struct rows {
    const unsigned char *first;
    size_t stride;
};

INLINE size_t block_bytes(enum weight_format format) { return format == FORMAT_Q8 ? Q8_BLOCK_BYTES : Q4_BLOCK_BYTES; }

INLINE void unpack_block(enum weight_format format, struct chunk *chunk, int number)
{
    const __m512i bias = _mm512_set1_epi8(format == FORMAT_Q8 ? -128 : 8), mask = _mm512_set1_epi8(15);
    const unsigned char *stored = chunk->packed + (size_t)number * block_bytes(format);
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g += format == FORMAT_Q8 ? 1 : 2)
#pragma GCC unroll 2
        for (int s = 0; s < STRIPS; s++, stored += TILE_BYTES) {
            unsigned char *out = chunk->weights[number][s] + g * TILE_BYTES;
            __m512i bytes = _mm512_loadu_si512((const void *)stored);
            if (format == FORMAT_Q4) {
                const __m512i second = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
                _mm512_store_si512((void *)(out + TILE_BYTES), _mm512_sub_epi8(second, bias));
                bytes = _mm512_and_si512(bytes, mask);
            }
            _mm512_store_si512((void *)out, _mm512_sub_epi8(bytes, bias));
        }
}

/* Collects the scales of the rows' activations, block after block. */
INLINE void rows_scales(int count, int blocks, const struct rows *rows, float (*scale)[TILE_ROWS])
{
    const unsigned char *at = rows->first + offsetof(struct quantised, scale);
    for (int b = 0; b < blocks; b++, at += sizeof(struct quantised))
#pragma GCC unroll 16
        for (int r = 0; r < count; r++)
            memcpy(&scale[b][r], at + (size_t)r * rows->stride, sizeof scale[b][r]);
}

/* Prefetches one line of the blocks one chunk and two chunks ahead. A strip calls this for every row, because the first pass
 * has more rows than a strip's half of a block has lines. */
INLINE void fetch_line(enum weight_format format, const unsigned char *block, int strip, int row)
{
    const size_t bytes = block_bytes(format), line = (size_t)(row * STRIPS + strip) * TILE_BYTES;
    if (line >= bytes)
        return;
    fetch_after(block + line, CHUNK_BLOCKS * bytes, 2 * CHUNK_BLOCKS * bytes);
}

/* Multiplies a strip with the chunk's blocks, two at a time, so that one result is stored while the other is computed. */
INLINE void strip_integers(int strip, const struct chunk *chunk, const struct rows *rows,
                           int32_t (*out)[TILE_ROWS][TILE_OUTPUTS])
{
    for (int b = 0; b < chunk->blocks; b += 2) {
        const unsigned char *in = rows->first + (size_t)b * sizeof(struct quantised);
        const bool both = b + 1 < chunk->blocks;
        TILE_ZERO(0);
        TILE_LOAD(1, in, rows->stride);
        TILE_LOAD(2, chunk->weights[b][strip], TILE_BYTES);
        TILE_MULTIPLY_BYTES(0, 1, 2);
        if (both) {
            TILE_ZERO(3);
            TILE_LOAD(4, in + sizeof(struct quantised), rows->stride);
            TILE_LOAD(5, chunk->weights[b + 1][strip], TILE_BYTES);
            TILE_MULTIPLY_BYTES(3, 4, 5);
        }
        TILE_STORE(0, out[b], TILE_BYTES);
        if (both)
            TILE_STORE(3, out[b + 1], TILE_BYTES);
    }
}

/* count is a constant at each use. out: [count][32], sums so far. All tile products come first, because next to loads and
 * stores of tiles the vector unit runs at half its speed (docs/benchmarks.md). */
INLINE void strip(enum weight_format format, int count, int strip, bool fetch, const struct chunk *chunk,
                  const struct rows *rows, float (*in_scale)[TILE_ROWS], float *out)
{
    _Alignas(64) int32_t integers[CHUNK_BLOCKS][TILE_ROWS][TILE_OUTPUTS];
    __m512 sum[TILE_ROWS];
    strip_integers(strip, chunk, rows, integers);
    out += strip * TILE_OUTPUTS;
#pragma GCC unroll 16
    for (int r = 0; r < count; r++)
        sum[r] = _mm512_loadu_ps(out + r * UNIT_OUTPUTS);
    for (int b = 0; b < chunk->blocks; b++) {
        const unsigned char *block = chunk->packed + (size_t)b * block_bytes(format);
        const unsigned char *scale = block + block_bytes(format) - BLOCK_SCALE_BYTES + strip * TILE_OUTPUTS * 2;
        const __m512 weight = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)scale));
#pragma GCC unroll 16
        for (int r = 0; r < count; r++) {
            sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(integers[b][r])),
                                     _mm512_mul_ps(weight, _mm512_set1_ps(in_scale[b][r])), sum[r]);
            if (fetch)
                fetch_line(format, block, strip, r);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < count; r++)
        _mm512_storeu_ps(out + r * UNIT_OUTPUTS, sum[r]);
}

#define ROWS(format, count) \
    static void rows_##format##_##count(const struct chunk *chunk, const struct rows *rows, float *out) \
    { \
        _Alignas(64) float scale[CHUNK_BLOCKS][TILE_ROWS]; \
        rows_scales(count, chunk->blocks, rows, scale); \
        for (int s = 0; s < STRIPS; s++) \
            if (chunk->fetch) \
                strip(format, count, s, true, chunk, rows, scale, out); \
            else \
                strip(format, count, s, false, chunk, rows, scale, out); \
    }
#define ALL_ROWS(format) \
    ROWS(format, 1) ROWS(format, 2) ROWS(format, 3) ROWS(format, 4) ROWS(format, 5) ROWS(format, 6) ROWS(format, 7) \
    ROWS(format, 8) ROWS(format, 9) ROWS(format, 10) ROWS(format, 11) ROWS(format, 12) ROWS(format, 13) ROWS(format, 14) \
    ROWS(format, 15) ROWS(format, 16)
#define ROWS_NAMES(format) \
    {rows_##format##_1, rows_##format##_2, rows_##format##_3, rows_##format##_4, rows_##format##_5, rows_##format##_6, \
     rows_##format##_7, rows_##format##_8, rows_##format##_9, rows_##format##_10, rows_##format##_11, rows_##format##_12, \
     rows_##format##_13, rows_##format##_14, rows_##format##_15, rows_##format##_16}

ALL_ROWS(FORMAT_Q8)
ALL_ROWS(FORMAT_Q4)

typedef void rows_function(const struct chunk *chunk, const struct rows *rows, float *out);

static rows_function *const ROWS_TABLE[][TILE_ROWS] = {ROWS_NAMES(FORMAT_Q8), ROWS_NAMES(FORMAT_Q4)};

/* Tile 0: sums, 1: inputs, 2: weights; 3, 4 and 5 likewise. */
static void shape(int rows)
{
    struct tile_shapes shapes = {0};
    for (int tile = 0; tile < 6; tile += 3) {
        tile_shape(&shapes, tile, rows, TILE_BYTES);
        tile_shape(&shapes, tile + 1, rows, BLOCK_INPUTS);
        tile_shape(&shapes, tile + 2, GROUPS, TILE_BYTES);
    }
    tiles_begin(&shapes);
}

void unit_product_tiles_quantised(enum weight_format format, const void *unit, int inputs, int rows, const void *in,
                                  float *out)
{
    const int blocks = quantised_blocks(inputs);
    const size_t stride = operand_bytes(format, inputs);
    int shaped = 0;
    struct chunk chunk;
    memset(out, 0, (size_t)rows * UNIT_OUTPUTS * sizeof *out);
    for (int block = 0; block < blocks; block += CHUNK_BLOCKS) {
        chunk.blocks = blocks - block < CHUNK_BLOCKS ? blocks - block : CHUNK_BLOCKS;
        chunk.packed = (const unsigned char *)unit + (size_t)block * block_bytes(format);
        for (int b = 0; b < chunk.blocks; b++)
            if (format == FORMAT_Q8)
                unpack_block(FORMAT_Q8, &chunk, b);
            else
                unpack_block(FORMAT_Q4, &chunk, b);
        for (int first = 0; first < rows; first += TILE_ROWS) {
            const int count = rows - first < TILE_ROWS ? rows - first : TILE_ROWS;
            const size_t from = (size_t)first * stride + (size_t)block * sizeof(struct quantised);
            if (count != shaped)
                shape(shaped = count);
            chunk.fetch = first == 0;
            ROWS_TABLE[format - FORMAT_Q8][count - 1](&chunk, &(struct rows){(const unsigned char *)in + from, stride},
                                                      out + first * UNIT_OUTPUTS);
        }
    }
    tiles_end();
}

#endif
