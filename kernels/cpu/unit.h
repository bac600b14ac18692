/* The product of one unit of weights (32 outputs, formats.h) with some rows, the building block of linear and expert_ffn.
 *
 *   out[r][o] = sum over k of weight[o][k] * in[r][k], in the order of linear.h
 *
 * unit    unit_bytes(format, inputs), read forward once and prefetched (fetch.h; beyond its end: the beginning of the next
 * unit) in      one pointer per row to `inputs` floats, of any alignment; floats after them are not read. q8 and q4: to the
 *         row's blocks, struct quantised [quantised_blocks(inputs)]. bf16 with tiles: to its parts. For tiles, blocks and parts
 *         must be contiguous from row to row
 * rows    up to PASS_ROWS; up to MAX_ROWS for q8 and q4, with tiles, and for weights that must be decoded, where each chunk of
 *         256 inputs is decoded once for all rows
 * out     [rows][32]; outputs of zero weights are zero */
#ifndef MOE_KERNELS_CPU_UNIT_H
#define MOE_KERNELS_CPU_UNIT_H

#include <string.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/operand.h"
#include "kernels/cpu/tiles.h"
#include "kernels/formats.h"

/* Max rows of a pass. PASS_ROWS: with AVX-512 enough for a level of a draft tree to read the weights from memory once; more
 * do not help where products are the bottleneck. LONG_PASS_ROWS: if several passes are needed, since 6 rows of all 32 outputs
 * fit into the registers of AVX-512. DECODED_ROWS: of weights that must be decoded. */
#if defined(ISA_AVX512)
enum { PASS_ROWS = 16, LONG_PASS_ROWS = 12 };
#else
enum { PASS_ROWS = 8, LONG_PASS_ROWS = 6 };
#endif
enum { DECODED_ROWS = 8, BULK_ROWS = 6, MAX_ROWS = 64 };

#define unit_product ISA_NAME(unit_product)

void unit_product(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out);

/* Computes the same product for mxfp4 and the formats after it, and rows of quantised activations in the order of codes_order
 * (order.h), up to MAX_ROWS. */
#define unit_product_integers ISA_NAME(unit_product_integers)

void unit_product_integers(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in,
                           float *out);

/* The part of unit_product for q8 and q4. */
#define unit_product_quantised ISA_NAME(unit_product_quantised)

void unit_product_quantised(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in,
                            float *out);

/* Compute the same product for bf16 weights and rows of rounded activations (rounded.h), up to MAX_ROWS. The second one is the
 * form with fused multiply-adds, the third one that with AVX512-BF16. */
#define unit_product_rounded ISA_NAME(unit_product_rounded)
#define unit_product_flushed ISA_VECTOR_NAME(unit_product_flushed)
#define unit_product_dot ISA_NAME(unit_product_dot)

void unit_product_rounded(const void *unit, int inputs, int rows, const void *const *in, float *out);
void unit_product_flushed(const void *unit, int inputs, int rows, const void *const *in, float *out);
void unit_product_dot(const void *unit, int inputs, int rows, const void *const *in, float *out);

/* The parts of unit_product for tiles, with up to 64 contiguous rows of operand_bytes. */
#define unit_product_tiles ISA_NAME(unit_product_tiles)
#define unit_product_tiles_quantised ISA_NAME(unit_product_tiles_quantised)

void unit_product_tiles(const void *unit, int inputs, int rows, const void *parts, float *out);
void unit_product_tiles_quantised(enum weight_format format, const void *unit, int inputs, int rows, const void *in,
                                  float *out);

/* For rows of WEIGHT_FORMATS: expand to the argument for formats that are decoded, to nothing for others. */
#define IF_DECODED_PLAIN(...)
#define IF_DECODED_INTEGER(...)
#define IF_DECODED_CODED(...) __VA_ARGS__
#define IF_DECODED_WOVEN(...) __VA_ARGS__
#define IF_DECODED_GRID(...) __VA_ARGS__

/* The part of unit_product for formats that are decoded, of up to decoded_rows rows. */
#define unit_product_coded ISA_VECTOR_NAME(unit_product_coded)

void unit_product_coded(enum weight_format format, const void *unit, int inputs, int rows, const void *const *in, float *out);

/* Decodes `inputs` inputs (a multiple of 32, up to 256) of a chunk of such weights to a unit of f32. */
#define unit_decode ISA_VECTOR_NAME(unit_decode)

void unit_decode(enum weight_format format, const void *chunk, int inputs, float *out);

/* Returns the bytes of a chunk of 256 inputs; 0 for a format that is not decoded. */
static inline size_t unit_chunk_bytes(enum weight_format format)
{
    const bool decoded = format_scaled(format) && !format_quantised(format);
    return decoded ? (size_t)(SUPERBLOCK_INPUTS / format_step_inputs(format)) * format_step_bytes(format) : 0;
}

/* Returns the max rows for which weights are decoded in registers; for more they are decoded to memory. */
#define DECODED_ROWS_OF(NAME, name, kind, step, block, bytes) case FORMAT_##NAME: return DECODED_ROWS_##kind;
enum { DECODED_ROWS_PLAIN = 0, DECODED_ROWS_INTEGER = 0, DECODED_ROWS_CODED = DECODED_ROWS, DECODED_ROWS_WOVEN = DECODED_ROWS,
       DECODED_ROWS_GRID = 1 };
static inline int decoded_rows(enum weight_format format)
{
    switch (format) {
        WEIGHT_FORMATS(DECODED_ROWS_OF)
    default: return 0;
    }
}

/* Divide rows into passes whose sizes differ by at most one. work_passes returns the work in units of simple passes: a pass
 * that decodes for many rows, or that reads the unit several times with tiles, counts as several. */
static inline int bulk_passes(int rows) { return rows <= DECODED_ROWS ? rows > 0 : (rows + BULK_ROWS - 1) / BULK_ROWS; }
static inline int work_passes(enum weight_format format, int rows)
{
    return format_tiled(format) ? (rows + TILE_ROWS - 1) / TILE_ROWS : bulk_passes(rows);
}
static inline int pass_count(const struct operand *in, enum weight_format format, int rows)
{
    if (unit_chunk_bytes(format) || format_quantised(format) || format_tiled(format) || in->rounded)
        return (rows + MAX_ROWS - 1) / MAX_ROWS;
    return rows <= PASS_ROWS ? rows > 0 : (rows + LONG_PASS_ROWS - 1) / LONG_PASS_ROWS;
}
static inline int pass_first(int rows, int passes, int pass) { return (int)((long)rows * pass / passes); }

/* Computes the product with operands of this kind. */
static inline void operand_product(const struct operand *operand, enum weight_format format, const void *unit, int inputs,
                                   int rows, const void *const *in, float *out)
{
    if (operand->rounded)
        unit_product_rounded(unit, inputs, rows, in, out);
    else if (operand->integers)
        unit_product_integers(format, unit, inputs, rows, in, out);
    else
        unit_product(format, unit, inputs, rows, in, out);
}

/* Store the first `used` of `all` results of a row. unit_expect, called before the products, requests the lines that they will
 * be stored in, because a row's results of one unit are far from those of the next row, and caches would load each line only
 * then. `all` is a constant: a copy of constant size needs no call. */
static inline void unit_expect(const float *out, int all)
{
    for (int i = 0; i < all; i += 16)
        __builtin_prefetch(out + i, 1, 3);
}
static inline void unit_store(float *out, const float *value, int used, int all)
{
    if (used == all)
        memcpy(out, value, (size_t)all * sizeof *out);
    else
        memcpy(out, value, (size_t)used * sizeof *out);
}

#endif
