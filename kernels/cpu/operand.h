/* Activations in the form in which the products of unit.h read them:
 *
 *   with q8 and q4 weights; with mxfp4 and all formats after it if queue->integer_activations
 *                              blocks of integers (quantise.h)
 *   with bf16 weights          rounded to bf16 if queue->bf16_activations (rounded.h); else, on tiles, in parts (parts.h)
 *   with other weights         the floats themselves
 *
 * Blocks and parts are computed once for all products with the same rows, by all threads. */
#ifndef MOE_KERNELS_CPU_OPERAND_H
#define MOE_KERNELS_CPU_OPERAND_H

#include <stdbool.h>

#include "kernels/cpu/order.h"
#include "kernels/cpu/parts.h"
#include "kernels/cpu/quantise.h"
#include "kernels/cpu/rounded.h"
#include "kernels/formats.h"

#if defined(ISA_AMX)
enum { TILES = 1 };
#else
enum { TILES = 0 };
#endif

/* Up to this many rows of q8 and q4 the vector unit is faster than tiles. */
enum { VECTOR_ROWS = 8 };

/* Returns whether products with this format may use matrix tiles, which need rows in contiguous order. */
static inline bool format_tiled(enum weight_format format)
{
    return TILES && (format == FORMAT_BF16 || format_quantised(format));
}

struct operand_rows {
    const float *in;                    /* [rows] of `stride` floats, the first `inputs` used */
    size_t stride;
    int rows, inputs;
    const uint8_t *order;               /* of the inputs of quantised blocks (order.h); NULL: ascending */
    void *scratch;                      /* operand_bytes for each row, or for each pair if pairs are given */
    /* For experts: pair p (row * slots + slot) uses row p / slots. */
    const int32_t *expert;              /* [rows] rows with -1 are skipped; or NULL. Only with slots 1 */
    const int32_t *pair;                /* [pairs] requested pairs, in the order in which products read them; or NULL */
    int pairs, slots;
};

/* Returns the number of operands in scratch: one for each pair, in their order, or else one for each row. */
static inline size_t operand_count(const struct operand_rows *rows)
{
    return (size_t)(rows->pair ? rows->pairs : rows->rows);
}

/* Returns the row from which operand i is made; NULL: the row is skipped. */
static inline const float *operand_source(const struct operand_rows *rows, size_t i)
{
    size_t row = rows->pair ? (size_t)(rows->pair[i] / rows->slots) : i;
    return rows->expert && rows->expert[row] < 0 ? NULL : rows->in + row * rows->stride;
}

/* The operands: that of row r, or with by_pair that of pair i, begins at data + r * stride. */
struct operand {
    const unsigned char *data;
    size_t stride;
    bool by_pair, rounded, integers;    /* integers: products are those of unit_product_integers */
};

/* Makes the operands. Only tiles need them in the order of pairs; if no expert can have enough rows for tiles, a row is
 * converted once for all its pairs. */
static inline struct operand operand_make(struct queue *queue, enum weight_format format, const struct operand_rows *wanted)
{
    struct operand_rows rows = *wanted;
    if (format == FORMAT_BF16 && queue->bf16_activations) {
        rows.pair = NULL;
        cpu_round(queue, &rows);
        return (struct operand){rows.scratch, rounded_bytes(rows.inputs), false, true, false};
    }
    if (format_integers(format) && !format_quantised(format) && queue->integer_activations) {
        rows.pair = NULL;
        rows.order = codes_order(format);
        cpu_quantise(queue, &rows);
        return (struct operand){rows.scratch, operand_bytes(format, rows.inputs), false, false, true};
    }
    if (!format_tiled(format) || (format_quantised(format) && rows.rows <= VECTOR_ROWS))
        rows.pair = NULL;
    if (format_quantised(format))
        cpu_quantise(queue, &rows);
    else if (format_tiled(format))
        cpu_parts(queue, &rows);
    else
        return (struct operand){(const unsigned char *)rows.in, rows.stride * sizeof *rows.in, false, false, false};
    return (struct operand){rows.scratch, operand_bytes(format, rows.inputs), rows.pair != NULL, false, false};
}

static inline const void *operand_at(const struct operand *operand, size_t row)
{
    return operand->data + row * operand->stride;
}

#endif
