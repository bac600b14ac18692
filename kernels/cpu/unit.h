/* The product of one unit of weights (32 outputs, formats.h) with some rows: what linear and expert_ffn are made of.
 *
 *   out[r][o] = sum over k of weight[o][k] * in[r][k], as linear.h orders it
 *
 * unit    unit_bytes(format, inputs), read forward once, asked for ahead (fetch.h; past its end: the next unit's beginning)
 * in      one pointer a row to `inputs` floats, of any alignment; floats after them are not read. q8 and q4: to the row's
 *         blocks, struct quantised [quantised_blocks(inputs)]. bf16 with tiles: to its parts. With tiles both lie
 *         one row after the other
 * rows    up to PASS_ROWS, of q8 and q4 QUANTISED_ROWS; where weights must be decoded, up to 64: then each chunk of 256
 *         inputs is decoded once for all of them;
 *         with tiles up to 64, too
 * out     [rows][32]; outputs of zero weights are zero */
#ifndef MOE_KERNELS_CPU_UNIT_H
#define MOE_KERNELS_CPU_UNIT_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/operand.h"
#include "kernels/cpu/tiles.h"
#include "kernels/formats.h"

/* The most rows of a pass: with AVX-512 so many that a level of a draft tree reads weights from memory once. Where products
 * bind, and not memory, more would only take turns with the weights. Of weights that must be decoded; and of each pass where
 * these must be several, for up to 6 rows of all 32 outputs fit into the registers of AVX-512. */
#if defined(ISA_AVX512)
enum { PASS_ROWS = 16, LONG_PASS_ROWS = 12 };
#else
enum { PASS_ROWS = 8, LONG_PASS_ROWS = 6 };
#endif
enum { DECODED_ROWS = 8, BULK_ROWS = 6, MAX_ROWS = 64 };
#if defined(ISA_VNNI)
enum { QUANTISED_ROWS = PASS_ROWS, QUANTISED_LONG_ROWS = LONG_PASS_ROWS };
#else
enum { QUANTISED_ROWS = 8, QUANTISED_LONG_ROWS = 6 };
#endif

#define unit_product ISA_NAME(unit_product)

void unit_product(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out);

/* Its part for q8 and q4. */
#define unit_product_quantised ISA_NAME(unit_product_quantised)

void unit_product_quantised(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in,
                            float *out);

/* Its parts for products by tiles, of up to 64 rows of operand_bytes, one after the other. */
#define unit_product_tiles ISA_NAME(unit_product_tiles)
#define unit_product_tiles_quantised ISA_NAME(unit_product_tiles_quantised)

void unit_product_tiles(const void *unit, int inputs, int rows, const void *parts, float *out);
void unit_product_tiles_quantised(enum weight_format format, const void *unit, int inputs, int rows, const void *in,
                                  float *out);

/* Its part for fp8, mxfp4, q4_k and q6_k. */
#define unit_product_coded ISA_VECTOR_NAME(unit_product_coded)

void unit_product_coded(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out);

/* A chunk of a unit of such weights, `inputs` of them (a multiple of 32, up to 256), as a unit of f32. */
#define unit_decode ISA_VECTOR_NAME(unit_decode)

void unit_decode(enum weight_format format, const void *chunk, int inputs, float *out);

/* The bytes of a chunk, which is one of 256 inputs; 0 of a format that is not decoded. */
static inline size_t unit_chunk_bytes(enum weight_format format)
{
    switch (format) {
    case FORMAT_FP8: return 2 * FP8_BLOCK_BYTES;
    case FORMAT_MXFP4: return 4 * MXFP4_PAIR_BYTES;
    case FORMAT_Q4_K: return Q4_K_BLOCK_BYTES;
    case FORMAT_Q6_K: return Q6_K_BLOCK_BYTES;
    default: return 0;
    }
}

/* How rows are cut into passes: of sizes that differ by at most one. The work of a pass that decodes for many rows, or makes
 * several walks with tiles, is that of so many passes that do not. */
static inline int bulk_passes(int rows) { return rows <= DECODED_ROWS ? rows > 0 : (rows + BULK_ROWS - 1) / BULK_ROWS; }
static inline int work_passes(enum weight_format format, int rows)
{
    return format_tiled(format) ? (rows + TILE_ROWS - 1) / TILE_ROWS : bulk_passes(rows);
}
static inline int pass_count(enum weight_format format, int rows)
{
    const bool whole = format_quantised(format);
    if (unit_chunk_bytes(format) || format_tiled(format))
        return (rows + MAX_ROWS - 1) / MAX_ROWS;
    if (rows <= (whole ? QUANTISED_ROWS : PASS_ROWS))
        return rows > 0;
    const int most = whole ? QUANTISED_LONG_ROWS : LONG_PASS_ROWS;
    return (rows + most - 1) / most;
}
static inline int pass_first(int rows, int passes, int pass) { return (int)((long)rows * pass / passes); }

#endif
